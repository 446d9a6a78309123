"""What a version of A2A is over JSON-RPC, and what the older ones share."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol, TypeAlias

from trunkline_bridge.bindings.http_handler import EventsContext
from trunkline_bridge.bindings.jsonrpc_envelope import error_object
from trunkline_bridge.bindings.operation_table import StreamMethod, UnaryMethod
from trunkline_bridge.edge.caller import Caller
from trunkline_bridge.errors import INTERNAL_ERROR, WireError, invalid_params
from trunkline_bridge.protocol import LAST_EVENT_ID_KEY
from trunkline_bridge.streams.event_renderer import EventWriter
from trunkline_bridge.versions.json_values import Json

OLDER_VOCABULARY = {
    "ROLE_USER": "user",
    "give text, raw, url or data": "give text, file or data",
    "].raw": "].file.bytes",
    "].url": "].file.uri",
    "].mediaType": "].file.mimeType",
    "].filename": "].file.name",
    "must have only one of raw, url": "must have only one of bytes, uri",
    "send large data as raw, or by url": "send large data as bytes, or by uri",
}
"""What every version before 1.0 calls otherwise: who speaks, and what is in parts."""

# A2A's own codes, in all versions.
_FIRST_OF_A2A = -32001
_LAST_OF_A2A = -32099

# Opens a stream, and says how its events are written.
StreamOpener: TypeAlias = Callable[[Caller, object], tuple[EventWriter, EventsContext]]


class JsonRpcVersion(Protocol):
    """A version of A2A over JSON-RPC."""

    version: str

    @property
    def unary(self) -> Mapping[str, UnaryMethod]:
        """Methods that have one result."""
        ...

    @property
    def streams(self) -> Mapping[str, StreamOpener]:
        """Methods whose result is a stream."""
        ...

    @property
    def sends(self) -> Mapping[str, str]:
        """Methods that give a message and wait, and those that stream what comes of it."""
        ...

    def find_task_id(self, method: str, params: object) -> str:
        """Return the task that parameters may name, before they are read; empty: none."""
        ...

    def error_object(self, error: WireError) -> Json:
        """Return JSON-RPC's error object."""
        ...


class ErrorVocabulary:
    """What of v1.0's words has another name in an older version, for the texts of errors."""

    def __init__(self, words: Mapping[str, str], *, codes: range) -> None:
        """`codes` are those of the version's own errors; the others have no name there."""
        self._words = words
        self._codes = codes
        ordered = sorted(words, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered)))

    def error(self, error: WireError) -> Json:
        """Return an error's object, in the words and with the codes of the version."""
        violations = tuple((self._say(name), self._say(said)) for name, said in error.violations)
        result = error_object(replace(error, text=self._say(error.text), violations=violations))
        code = error.kind.rpc_code
        if _FIRST_OF_A2A >= code >= _LAST_OF_A2A and code not in self._codes:
            result["code"] = INTERNAL_ERROR.rpc_code
        return result

    def _say(self, text: str) -> str:
        return self._pattern.sub(lambda found: self._words[found[0]], text)


def with_shape(stream: StreamMethod, shape: Callable[[], EventWriter]) -> StreamOpener:
    """Return a stream together with a shape of its own."""
    return lambda caller, given: (shape(), stream(caller, given))


def find_task_id(params: object, *names: str) -> str:
    """Return the task that parameters name by one of these members; empty: they name none."""
    if isinstance(params, dict):
        for name in names:
            task_id = params.get(name)
            if isinstance(task_id, str):
                return task_id
    return ""


def with_cursor_from_metadata(caller: Caller, params: object) -> Caller:
    """Return a caller that goes on where the metadata of its request says, unless a header does."""
    metadata = params.get("metadata") if isinstance(params, dict) else None
    cursor = metadata.get(LAST_EVENT_ID_KEY) if isinstance(metadata, dict) else None
    if cursor is None or caller.last_event_id is not None:
        return caller
    if not isinstance(cursor, str):
        raise invalid_params((f"metadata.{LAST_EVENT_ID_KEY}", "must be a string"))
    return caller._replace(last_event_id=cursor)


@contextmanager
def renamed_fields(names: Mapping[str, str]) -> Iterator[None]:
    """Give fields that a WireError complains of the names that the version has for them."""
    try:
        yield
    except WireError as error:
        if not error.violations:
            raise
        said = ((_called(field, names), problem) for field, problem in error.violations)
        raise invalid_params(*said) from None


def _called(field: str, names: Mapping[str, str]) -> str:
    first, dot, rest = field.partition(".")
    return f"{names.get(first, first)}{dot}{rest}"
