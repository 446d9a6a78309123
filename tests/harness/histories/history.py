"""A history: what clients, agents and faults did in one run, in a file of one JSON object a line.

Times are seconds of the machine's monotonic clock, which all processes of a run share. A fault that
moves the wall clock does not change them.
"""

import dataclasses
import json
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path


class Kind(StrEnum):
    """The kinds of records."""

    INVOKED = "invoked"
    """A client has sent a request."""
    OK = "ok"
    """The request was answered. A stream has ended."""
    REFUSED = "refused"
    """The request was answered by an error that is no outage: it has changed nothing."""
    UNKNOWN = "unknown"
    """No answer, or an outage: the request may have had its effect, or may have it later."""
    EVENT = "event"
    """A client has received an event of a stream."""
    EFFECT = "effect"
    """Code of the agent has run: an effect outside of the journal."""
    FAULT = "fault"
    """A fault begins."""
    HEALED = "healed"
    """A fault is over."""
    EXIT = "exit"
    """A process has ended that no fault had killed. The text is its exit code."""
    FINISHED = "finished"
    """The clients have asked for the end of each task, and will ask no more."""


class Request(StrEnum):
    """The requests of clients."""

    SEND = "send"
    """Send a message and return at once."""
    STREAM = "stream"
    """Send a message and follow its task."""
    SUBSCRIBE = "subscribe"
    """Follow a task: after a cursor, or from its snapshot."""
    GET = "get"
    LIST = "list"
    CANCEL = "cancel"


class Effect(StrEnum):
    """What an agent's code reports outside of the journal."""

    BEGIN = "begin"
    PIECE = "piece"
    END = "end"


@dataclass(frozen=True, slots=True)
class Record:
    """One line of a history. Empty fields do not apply to its kind."""

    at: float
    kind: Kind
    name: str = ""
    """The request, the effect, or the kind of the fault."""
    number: int = 0
    """The number of the request or of the fault, the same in all of its records."""
    where: str = ""
    """The node that was asked, that ran the agent's code, or the nodes with the fault."""
    message: str = ""
    """The id of the message that the request sends."""
    context: str = ""
    """The conversation of the message."""
    pieces: int = 0
    """The number of pieces that the message asks for."""
    is_answer: bool = False
    """The message answers a question of its task."""
    task: str = ""
    cursor: str = ""
    """The id of the event, or the id after which a subscription continues."""
    state: str = ""
    """The task's state: of a snapshot, or in a change of the status."""
    texts: dict[str, str] | None = None
    """The texts of a snapshot, by artifact."""
    artifact: str = ""
    text: str = ""
    """The text of an event of an artifact; the words of an error; the run of the agent's code."""
    is_append: bool = False
    listed: list[str] | None = None
    """The ids of the tasks in a list."""

    def encode(self) -> str:
        """Return the line, without fields that have their default."""
        values = {
            field.name: getattr(self, field.name)
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != field.default
        }
        return json.dumps(values, ensure_ascii=False)

    @classmethod
    def decode(cls, line: str) -> "Record":
        """Read a line."""
        values = json.loads(line)
        return cls(**{**values, "kind": Kind(values["kind"])})


class HistoryFile:
    """Appends records to a file. Several processes may append to one."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def add(self, record: Record) -> None:
        """Append a record, in one write."""
        os.write(self._file, f"{record.encode()}\n".encode())

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def now() -> float:
    """Return the time for a record."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def read_history(*paths: Path) -> list[Record]:
    """Return the records of files, by time. A killed process may leave half of its last line."""
    records = [
        Record.decode(line)
        for path in paths
        for line in path.read_text().splitlines(keepends=True)
        if line.endswith("\n")
    ]
    return sorted(records, key=lambda record: record.at)


def write_history(path: Path, records: Iterable[Record]) -> None:
    """Write a whole history."""
    path.write_text("".join(f"{record.encode()}\n" for record in records))
