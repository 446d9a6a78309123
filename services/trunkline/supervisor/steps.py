"""What a supervisor works on: the steps of a plan, and what became of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias, TypedDict
from urllib.parse import unquote, urlsplit

from trunkline.artifacts.references import sanitize_filename
from trunkline.supervisor.references import find_needed_steps
from trunkline.tasks.lifecycle import INTERRUPTED, State
from trunkline.v1 import event_pb2, message_pb2, part_pb2, task_pb2

# The type of a state, which the generated code has for type checkers only.
StateValue: TypeAlias = "task_pb2.TaskState.ValueType"

LINE_CHARS = 80
_RECORDED_CHARS = 1000


def clip(text: str, limit: int = _RECORDED_CHARS) -> str:
    """Return a text as it is recorded beside the message that holds all of it."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def summary_line(text: str) -> str:
    """Return a text cut to what fits a line."""
    return clip(" ".join(clip(text).split()), LINE_CHARS)


def shorten(text: str, chars: int, limit: int, agent: str) -> str:
    """Return what is kept of an agent's text of `chars` characters; what is left out is said."""
    if chars <= limit:
        return text
    return f"{text[:limit]}\n[Shortened: {chars:,} characters in all; agent {agent} has the rest.]"


@dataclass(frozen=True, slots=True)
class Step:
    """One piece of a request, for one agent."""

    id: str
    text: str
    route: event_pb2.RouteDecided
    after: tuple[str, ...] = ()
    """Steps that must be over before it begins."""
    child_id: str = ""
    """The waiting child that this step goes on with."""
    called_child_id: str = ""
    """The child that was called for it before the task's host was lost."""
    answers: tuple[event_pb2.ApprovalAnswered, ...] = ()
    """What the waiting child is told of the approvals that it asked for, in place of the text."""
    plan_text: str = ""
    """What the plan says of it, where its text doesn't: that is what the waiting child is told, or
    there is none."""

    @property
    def agent(self) -> str:
        """Who works on it; empty: nobody fits."""
        return self.route.agent

    @property
    def needed_steps(self) -> tuple[str, ...]:
        """Those of the earlier steps whose results its text speaks of."""
        return find_needed_steps(self.text, self.after) if self.after else ()

    @property
    def line(self) -> str:
        """What it is about, cut to what fits a line."""
        return summary_line(self.plan_text or self.text)

    @property
    def quoted(self) -> str:
        """The line in quotes."""
        return f'"{self.line}"'


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a step stopped."""

    agent: str
    state: StateValue
    text: str = ""
    """The answer, the question, or the reason."""
    has_files: bool = False
    """It left content that is not text."""
    child_id: str = ""
    is_status_text: bool = False
    """Its text is in no artifact: it was the last status, or a direct reply."""

    @property
    def is_answer(self) -> bool:
        """The step was done."""
        return self.state == State.TASK_STATE_COMPLETED

    @property
    def is_waiting(self) -> bool:
        """The step asks for something."""
        return self.state in INTERRUPTED

    @property
    def is_failure(self) -> bool:
        """The step will not be done."""
        return not self.is_answer and not self.is_waiting


def failed_outcome(agent: str, reason: str, *, child_id: str = "") -> Outcome:
    """Return the outcome of a step that could not be done."""
    return Outcome(agent, State.TASK_STATE_FAILED, reason, child_id=child_id)


def describe_files(message: message_pb2.Message) -> str:
    """Return what a message has beside its text, as it is called; empty: nothing."""
    return clip(", ".join(_name(part) for part in message.parts if not part.HasField("text")))


def _name(part: part_pb2.Part) -> str:
    if part.HasField("data"):
        return part.filename or "data"
    in_url = unquote(urlsplit(part.url).path) if part.HasField("url") else ""
    return sanitize_filename(part.filename) or sanitize_filename(in_url) or "a file"


class SupervisorState(TypedDict, total=False):
    """What the nodes of the graph hand on during a turn."""

    steps: tuple[Step, ...]
    outcomes: Mapping[str, Outcome]
    retries: tuple[Step, ...]
    """Failed steps that another agent is to try."""
    is_revised: bool
    """The plan has been made anew once; it isn't a second time."""
