"""The steps of a plan, and their references to the results of earlier steps.

{1} in a later step stands for the result of step 1: the whole answer if it is alone on its line,
else its value.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypedDict
from urllib.parse import unquote, urlsplit

from trunkline.agents.calls.outcome import Outcome, clip
from trunkline.journal.artifacts.references import sanitize_filename
from trunkline.v1 import event_pb2, message_pb2, part_pb2
from trunkline.workflows.values import extract_value

LINE_CHARS = 80
PLACEHOLDER: Final = re.compile(r"\{(\d{1,3})\}")
"""A reference to the result of an earlier step, by its number."""


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


def format_step_id(number: int) -> str:
    """Return the id of a step by its number, counted from 1."""
    return f"step-{number}"


def find_needed_steps(text: str, after: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of the earlier steps whose results the text refers to."""
    ids = {format_step_id(int(match[1])) for match in PLACEHOLDER.finditer(text)}
    return tuple(earlier for earlier in after if earlier in ids)


def fill_references(text: str, results: Mapping[str, str]) -> str:
    """Return a text with the results of steps in place of its references.

    `results` are answers by the ids of steps. References to other steps stay as they are.
    """

    def fill(match: re.Match[str]) -> str:
        result = results.get(format_step_id(int(match[1])))
        if result is None:
            return match[0]
        return result.strip() if is_whole_line(text, match) else extract_value(result)

    return PLACEHOLDER.sub(fill, text)


def is_whole_line(text: str, match: re.Match[str]) -> bool:
    """Return whether a match stands alone on its line."""
    start, end = match.span()
    return text[start - 1 : start] in ("", "\n") and text[end : end + 1] in ("", "\n")


def describe_files(message: message_pb2.Message) -> str:
    """Return the names of a message's parts that are not text, or ""."""
    return clip(", ".join(_name_part(part) for part in message.parts if not part.HasField("text")))


def _name_part(part: part_pb2.Part) -> str:
    if part.HasField("data"):
        return part.filename or "data"
    in_url = unquote(urlsplit(part.url).path) if part.HasField("url") else ""
    return sanitize_filename(part.filename) or sanitize_filename(in_url) or "a file"


class SupervisorState(TypedDict, total=False):
    """The state that the nodes of the graph share during a turn."""

    steps: tuple[Step, ...]
    outcomes: Mapping[str, Outcome]
    """The outcomes of the steps that have ended, by their ids."""
    is_revised: bool
    """True if the plan has been revised. It is revised only once."""
