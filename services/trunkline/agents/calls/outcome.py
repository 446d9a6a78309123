"""The outcome of a call to another agent."""

from dataclasses import dataclass, field
from typing import Final

from trunkline.core.json_values import read_member
from trunkline.core.redaction import redact_addresses
from trunkline.core.task_states import StateValue, TaskOutcome
from trunkline.errors import TrunklineError
from trunkline.tasks.lifecycle import INTERRUPTED, State
from trunkline.v1 import json_pb2, part_pb2, tree_pb2

MAX_TEXT_CHARS: Final = 256 * 1024
"""The limit of a child's text in its outcome. The child's own artifacts have the whole text."""
AGENTS_KEY: Final = "trunkline/agents"
"""The key of the agents that answered in the metadata of a supervisor's answer."""
_RECORDED_CHARS: Final = 1000
# The names that are taken over from a child's answer.
_AGENTS: Final = 64
_AGENT_CHARS: Final = 128


def clip(text: str, limit: int = _RECORDED_CHARS) -> str:
    """Clip a text for the journal, where a message has the whole text."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def shorten(text: str, chars: int, limit: int, agent: str) -> str:
    """Clip an agent's text of `chars` characters, with a note about the omission."""
    if chars <= limit:
        return text
    return f"{text[:limit]}\n[Shortened: {chars:,} characters in all; agent {agent} has the rest.]"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one turn of a child."""

    agent: str
    state: StateValue
    text: str = ""
    """The answer, the question, or the reason."""
    files: tuple[part_pb2.Part, ...] = field(default=(), repr=False)
    """The parts of its answer that are not text."""
    is_partial: bool = False
    """True if it completed with a part of its answer missing."""
    names_failures: bool = False
    """True if it failed, and its text names each step that failed."""
    child_id: str = ""
    is_status_text: bool = False
    """True if its text came as the last status or a direct reply, and is in no artifact."""
    named_agents: tuple[str, ...] = ()
    """The agents that answered, as the child names them. Only supervisors do."""
    usage: tree_pb2.TreeUsage | None = None
    """The usage of the child and of the tasks below it, if the child reported it."""
    error: TrunklineError | None = field(default=None, compare=False, repr=False)
    """The error of the call, if the call failed and not the child."""

    @property
    def task_outcome(self) -> TaskOutcome | None:
        """The outcome by the metadata of the child, unless the child waits for input."""
        if self.is_waiting:
            return None
        if not self.is_answer:
            return TaskOutcome.FAILED
        return TaskOutcome.PARTIAL if self.is_partial else TaskOutcome.COMPLETE

    @property
    def answering_agents(self) -> tuple[str, ...]:
        """The agents that answered: the agents that a supervisor names, or the child itself."""
        return self.named_agents or (self.agent,)

    @property
    def is_answer(self) -> bool:
        """True if the child completed."""
        return self.state == State.TASK_STATE_COMPLETED

    @property
    def is_waiting(self) -> bool:
        """True if the child waits for input."""
        return self.state in INTERRUPTED

    @property
    def is_failure(self) -> bool:
        """True if the child has ended without completing."""
        return not self.is_answer and not self.is_waiting


def parse_agents(metadata: json_pb2.Struct) -> tuple[str, ...]:
    """Return the agents that the metadata of an answer names, if it names agents."""
    names = read_member(metadata, AGENTS_KEY)
    if not isinstance(names, list):
        return ()
    return tuple(clip(name, _AGENT_CHARS) for name in names if name and isinstance(name, str))[
        :_AGENTS
    ]


def failed_outcome(
    agent: str,
    reason: str | TrunklineError,
    *,
    child_id: str = "",
    usage: tree_pb2.TreeUsage | None = None,
) -> Outcome:
    """Return the outcome of a child that failed, or that could not be called."""
    error = reason if isinstance(reason, TrunklineError) else None
    text = reason if isinstance(reason, str) else str(redact_addresses(reason))
    return Outcome(
        agent, State.TASK_STATE_FAILED, text, child_id=child_id, usage=usage, error=error
    )
