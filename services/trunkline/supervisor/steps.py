"""The steps of a plan."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypedDict
from urllib.parse import unquote, urlsplit

from trunkline.agents.calls.outcome import Outcome, clip
from trunkline.journal.artifacts.references import sanitize_filename
from trunkline.supervisor.references import find_needed_steps
from trunkline.v1 import event_pb2, message_pb2, part_pb2

LINE_CHARS = 80


def summary_line(text: str) -> str:
    """Clip a text to one line."""
    return clip(" ".join(clip(text).split()), LINE_CHARS)


@dataclass(frozen=True, slots=True)
class Step:
    """One part of a request, for one agent."""

    id: str
    text: str
    route: event_pb2.RouteDecided
    after: tuple[str, ...] = ()
    """The steps that must end before it starts."""
    child_id: str = ""
    """The waiting child that this step continues."""
    called_child_id: str = ""
    """The child that was called for it before the task's host was lost."""
    answers: tuple[event_pb2.ApprovalAnswered, ...] = ()
    """Answers to the waiting child's approvals, sent instead of the text."""
    plan_text: str = ""
    """The plan's text for the step, if it is not `text`: for a waiting child, or for files without
    text."""
    earlier_failure: str = ""
    """A line about the agent that was asked before and failed."""

    @property
    def agent(self) -> str:
        """The agent that runs it, or "" if none fits."""
        return self.route.agent

    @property
    def started_child_id(self) -> str:
        """The child that was started for it before, or "" if there is none."""
        return self.child_id or self.called_child_id

    @property
    def needed_steps(self) -> tuple[str, ...]:
        """The earlier steps whose results its text refers to."""
        return find_needed_steps(self.text, self.after) if self.after else ()

    @property
    def line(self) -> str:
        """Its text, clipped to one line."""
        return summary_line(self.plan_text or self.text)

    @property
    def quoted(self) -> str:
        """The line in quotes."""
        return f'"{self.line}"'

    def describe_failure(self, outcome: Outcome) -> str:
        """Return a line about its failed outcome, after the line about an earlier agent."""
        if outcome.names_failures:
            line = outcome.text
        else:
            reason = " ".join(outcome.text.split()).removesuffix(".") or "it gave no reason"
            source = f" (agent {outcome.agent})" if outcome.agent else ""
            line = f"Could not answer {self.quoted}: {reason}{source}."
        return self.add_earlier_failure(line)

    def add_earlier_failure(self, text: str) -> str:
        """Return a text that is no answer, after the line about an earlier agent's failure."""
        return "\n".join(filter(None, (self.earlier_failure, text)))


def describe_files(message: message_pb2.Message) -> str:
    """Return the names of a message's parts that are not text, or ""."""
    return clip(", ".join(_name_part(part) for part in message.parts if not part.HasField("text")))


def _name_part(part: part_pb2.Part) -> str:
    if part.HasField("data"):
        return part.filename or "data"
    in_url = unquote(urlsplit(part.url).path) if part.HasField("url") else ""
    return sanitize_filename(part.filename) or sanitize_filename(in_url) or "a file"


def _merge_outcomes(
    earlier: Mapping[str, Outcome], new: Mapping[str, Outcome]
) -> Mapping[str, Outcome]:
    return {**earlier, **new}


class SupervisorState(TypedDict, total=False):
    """The state that the nodes of the graph share during a turn."""

    steps: tuple[Step, ...]
    outcomes: Annotated[Mapping[str, Outcome], _merge_outcomes]
    is_revised: bool
    """True if the plan has been revised. It is revised only once."""
