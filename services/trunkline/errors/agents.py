"""Errors of an agent's code, or of its model."""

from dataclasses import dataclass
from typing import ClassVar

from trunkline.errors.error import Code, TrunklineError


@dataclass(eq=False)
class AgentError(TrunklineError):
    """The agent's code, or its model, did wrong."""


@dataclass(eq=False)
class InvalidAgentResponseError(AgentError):
    """The agent did what its declaration or the lifecycle forbids."""

    agent: str
    problem: str
    code: ClassVar[Code] = Code.INTERNAL
    reason: ClassVar[str] = "INVALID_AGENT_RESPONSE"
    template: ClassVar[str] = "agent {agent!r} broke its contract: {problem}"


@dataclass(eq=False)
class StepLimitError(AgentError):
    """The reasoning loop took more steps than it may."""

    agent: str
    limit: str
    code: ClassVar[Code] = Code.FAILED_PRECONDITION
    reason: ClassVar[str] = "STEP_LIMIT"
    template: ClassVar[str] = (
        "agent {agent!r} found no answer within {limit} messages; ask for less at once, or say "
        "more exactly what you want"
    )


@dataclass(eq=False)
class TokenLimitError(AgentError):
    """A turn has read and written as many tokens as it may."""

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
    """The model can't be reached or isn't set up."""

    model: str
    problem: str
    code: ClassVar[Code] = Code.UNAVAILABLE
    reason: ClassVar[str] = "MODEL_UNAVAILABLE"
    retryable: ClassVar[bool] = True
    template: ClassVar[str] = "model {model!r}: {problem}"


@dataclass(eq=False)
class ModelOverflowError(ModelUnavailableError):
    """What was said is too long for the model: whoever asked can mend that."""
