"""Reads a remote agent's JSON, without entries of its lists that can't be read."""

import logging
import re
from collections.abc import Callable
from typing import Final, TypeVar

from trunkline.a2a_wire.json_values import Json
from trunkline.core.json_types import JsonValue

logger = logging.getLogger(__name__)

_Read = TypeVar("_Read")

_ERRORS: Final = (ValueError, TypeError, AttributeError, RecursionError)
# The lists of an answer whose entries have a meaning of their own. `content` are v0.3's parts.
_PARTS: Final = frozenset({"parts", "content"})
_LISTS: Final = frozenset({"artifacts", "history"}) | _PARTS
_MAX_REPORTED: Final = 100
_NUMBER: Final = re.compile(r"\[\d+\]")


class LeftOutLog:
    """Logs the members that are left out of an agent's answers, each kind of member once."""

    def __init__(self, peer: Callable[[], str]) -> None:
        """`peer` returns the agent's name."""
        self._peer = peer
        self._reported: set[tuple[str, str]] = set()

    def report(self, member: str, problem: str) -> None:
        """Log that a member, such as `artifacts[1].parts[0]`, was left out."""
        kind = (_NUMBER.sub("[]", member), problem)
        if kind in self._reported or len(self._reported) >= _MAX_REPORTED:
            return
        self._reported.add(kind)
        extra = {"peer": self._peer(), "member": member, "problem": problem}
        logger.warning("remote.left_out", extra=extra)


class LenientReader:
    """Reads JSON; if it can't be read, without the entries that can't be read.

    Entries are parts, artifacts and messages of a history.
    """

    def __init__(self, read_event: Callable[[object], object], log: LeftOutLog) -> None:
        """`read_event` reads an event of a stream in the version of the interface."""
        self._read_event = read_event
        self._log = log

    def read(self, read: Callable[[object], _Read], value: object) -> _Read:
        """Return what `read` makes of a value.

        Raises:
            Exception: That of `read`, if not only entries of lists are wrong.
        """
        try:
            return read(value)
        except _ERRORS:
            try:
                readable = self._without_unreadable(value, "")
                if readable == value:
                    raise
            except RecursionError:
                readable = value
            return read(readable)

    def _without_unreadable(self, value: JsonValue, path: str) -> JsonValue:
        """Return an object without the entries that can't be read, also in its members."""
        if not isinstance(value, dict):
            return value
        result: Json = {}
        for name, member in value.items():
            where = f"{path}.{name}" if path else name
            if name in _LISTS and isinstance(member, list):
                entries = (
                    (self._without_unreadable(entry, f"{where}[{index}]"), f"{where}[{index}]")
                    for index, entry in enumerate(member)
                )
                result[name] = [
                    entry for entry, at in entries if self._is_readable(name, entry, at)
                ]
            elif name not in ("metadata", "data"):
                result[name] = self._without_unreadable(member, where)
            else:
                result[name] = member
        return result

    def _is_readable(self, name: str, entry: object, path: str) -> bool:
        try:
            self._read_event(_event_with(name, entry))
        except _ERRORS as error:
            text = str(error) if type(error) is ValueError else "it does not match the A2A schema"
            self._log.report(path, text)
            return False
        return True


def _event_with(name: str, entry: object) -> Json:
    """Return the smallest event that has an entry."""
    if name in _PARTS:
        artifact = {"artifactId": "a", "parts": [entry]}
        return {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact}}
    status = {"state": "TASK_STATE_WORKING"}
    return {"task": {"id": "t", "contextId": "c", "status": status, name: [entry]}}
