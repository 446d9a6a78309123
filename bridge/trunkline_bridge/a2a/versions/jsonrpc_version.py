"""A protocol version over JSON-RPC: its methods and errors, and helpers of the older versions."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from trunkline.a2a_wire.errors import INTERNAL_ERROR, WireError, invalid_params
from trunkline.a2a_wire.json_values import Json
from trunkline.a2a_wire.operations import OPERATIONS, SEND_MESSAGE, SEND_STREAMING_MESSAGE
from trunkline.a2a_wire.protocol import LAST_EVENT_ID_KEY, V0_1, V0_3, V1_0
from trunkline_bridge.a2a.operations.operation_table import StreamMethod, UnaryMethod
from trunkline_bridge.a2a.versions.jsonrpc_envelope import error_object
from trunkline_bridge.callers.caller import Caller

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
"""Words in errors of v1.0, and the words of all versions before: roles and members of parts."""

# The range of A2A's error codes in all versions, from the first one downwards.
_FIRST_A2A_CODE = -32001
_LAST_A2A_CODE = -32099


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonRpcVersion:
    """A version of A2A over JSON-RPC."""

    version: str
    methods: Mapping[str, UnaryMethod | StreamMethod]
    """The methods by their names."""
    error_object: Callable[[WireError], Json]
    """Returns JSON-RPC's error object."""

    def find_streaming(self, method: UnaryMethod | StreamMethod) -> UnaryMethod | StreamMethod:
        """Return the streaming method that replaces a method that sends a message and waits."""
        if method.operation.wire is not SEND_MESSAGE:
            return method
        others = self.methods.values()
        return next(other for other in others if other.operation.wire is SEND_STREAMING_MESSAGE)


def older_names(version: str) -> dict[str, str]:
    """Return the methods of v0.3 or v0.1 over JSON-RPC, by the names of the operations in v1.0."""
    index = (V1_0, V0_3, V0_1).index(version)
    return {row.name: row.method_names[index] for row in OPERATIONS if row.method_names[index]}


class ErrorVocabulary:
    """Translates the errors of v1.0 to the words and codes of an older version."""

    def __init__(self, words: Mapping[str, str], *, codes: range) -> None:
        """Convert by the words and the error codes of a version.

        `words` maps the words of v1.0 to the older words. `codes` has the version's codes of A2A
        errors. A2A errors with other codes become internal errors.
        """
        self._words = words
        self._codes = codes
        ordered = sorted(words, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, ordered)))

    def error_object(self, error: WireError) -> Json:
        """Return the error object with the words and codes of the version."""
        violations = tuple(
            (self._translate(name), self._translate(problem)) for name, problem in error.violations
        )
        result = error_object(
            replace(error, text=self._translate(error.text), violations=violations)
        )
        code = error.kind.rpc_code
        if _FIRST_A2A_CODE >= code >= _LAST_A2A_CODE and code not in self._codes:
            result["code"] = INTERNAL_ERROR.rpc_code
        return result

    def _translate(self, text: str) -> str:
        return self._pattern.sub(lambda match: self._words[match[0]], text)


def with_cursor_from_metadata(caller: Caller, params: object) -> Caller:
    """Return a caller with the last event id of the parameters, unless a header has one.

    Raises:
        WireError: the last event id in the parameters is not a string.
    """
    metadata = params.get("metadata") if isinstance(params, dict) else None
    cursor = metadata.get(LAST_EVENT_ID_KEY) if isinstance(metadata, dict) else None
    if cursor is None or caller.last_event_id is not None:
        return caller
    if not isinstance(cursor, str):
        raise invalid_params((f"metadata.{LAST_EVENT_ID_KEY}", "must be a string"))
    return caller._replace(last_event_id=cursor)
