"""Lines of a server that are no valid JSON-RPC messages, and the requests that they answer.

It imports mcp: load it lazily.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from mcp_types import RequestId

UNDECODABLE: Final = "the answer is no valid message of JSON-RPC"
"""The problem with a call whose answer can't be decoded."""

# The part of a longer line that is searched.
_HEAD_BYTES: Final = 65_536
_QUOTED_CHARS: Final = 200
# Text before a message may have braces, too.
_ATTEMPTS: Final = 16
_ID: Final = re.compile(r'"id"\s*:\s*(?:(-?\d{1,18})\b(?![.eE])|"([^"\\]{1,200})")')
_DECODER: Final = json.JSONDecoder()


class UndecodableLineError(Exception):
    """A line is no valid JSON-RPC message. A transport passes it on in place of a message."""

    def __init__(self, line: bytes, *, shown: str) -> None:
        """`shown` is the line in the form for people, without secrets."""
        super().__init__("a line is no MCP message")
        self._text = line[:_HEAD_BYTES].replace(b"\0", b"").decode(errors="replace")
        self.shown = shown if len(shown) <= _QUOTED_CHARS else f"{shown[:_QUOTED_CHARS]}…"

    def answered_ids(self) -> list[RequestId] | None:
        """Return the ids of the requests that the line answers, or None if it is no answer.

        The list is empty for an answer whose id can't be read. Log lines, notifications and
        requests of the server are no answers.
        """
        answers = [each for each in _find_objects(self._text) if _is_answer(each)]
        if answers:
            ids = [each.get("id") for each in answers]
            return [each for each in ids if isinstance(each, str) or type(each) is int]
        if '"jsonrpc"' not in self._text or '"method"' in self._text:
            return None
        match = _ID.search(self._text)
        if match is None:
            return []
        number, name = match.groups()
        return [int(number) if number else name]


class UndecodableAnswer(str):
    """The problem with an answer that can't be decoded, in one line.

    It is the data of the error that the request gets. No server can send data of this type.
    """

    __slots__ = ()


def _is_answer(value: dict[str, Any]) -> bool:
    if "method" in value:
        return False
    return "jsonrpc" in value or ("id" in value and not value.keys().isdisjoint(_OUTCOMES))


_OUTCOMES: Final = frozenset({"result", "error"})


def _find_objects(text: str) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects in a text that can be decoded, without objects inside of objects."""
    position = 0
    for _ in range(_ATTEMPTS):
        position = text.find("{", position)
        if position < 0:
            return
        try:
            value, position = _DECODER.raw_decode(text, position)
        except (ValueError, RecursionError):
            position += 1
        else:
            yield value
