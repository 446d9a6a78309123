"""Errors of an agent's code or of its model."""

from dataclasses import dataclass
from typing import ClassVar

from trunkline.errors.error import Code, TrunklineError


@dataclass(eq=False)
class AgentError(TrunklineError):
    """The agent's code or its model failed."""


@dataclass(eq=False)
class InvalidAgentResponseError(AgentError):
    """The agent broke the rules of its declaration or of the task lifecycle."""

    agent: str
    problem: str
    code: ClassVar[Code] = Code.INTERNAL
    reason: ClassVar[str] = "INVALID_AGENT_RESPONSE"
    template: ClassVar[str] = "agent {agent!r} broke its contract: {problem}"


@dataclass(eq=False)
class StepLimitError(AgentError):
    """The reasoning loop reached its limit of steps."""

    agent: str
    limit: str
    code: ClassVar[Code] = Code.FAILED_PRECONDITION
    reason: ClassVar[str] = "STEP_LIMIT"
    template: ClassVar[str] = (
        "agent {agent!r} found no answer within {limit} messages; ask for less at once, or "
        "more precisely"
    )


@dataclass(eq=False)
class TokenLimitError(AgentError):
    """A turn reached its limit of tokens read and written."""

    agent: str
    limit: str
    code: ClassVar[Code] = Code.FAILED_PRECONDITION
    reason: ClassVar[str] = "TOKEN_LIMIT"
    template: ClassVar[str] = (
        "agent {agent!r} found no answer within {limit} tokens; ask more narrowly, or raise "
        "turn_tokens of its model"
    )


@dataclass(eq=False)
class ModelUnavailableError(AgentError):
    """The model can't be reached, or is not configured."""

    model: str
    problem: str
    code: ClassVar[Code] = Code.UNAVAILABLE
    reason: ClassVar[str] = "MODEL_UNAVAILABLE"
    retryable: ClassVar[bool] = True
    template: ClassVar[str] = "model {model!r}: {problem}"


@dataclass(eq=False)
class ModelOverflowError(ModelUnavailableError):
    """The conversation is too long for the model; the caller can shorten the request."""
