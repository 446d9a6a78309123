"""The envelope of JSON-RPC 2.0: parses requests, encodes responses."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from trunkline.a2a_wire.errors import INVALID_REQUEST, WireError
from trunkline.a2a_wire.json_values import Json, dumps
from trunkline_bridge.a2a.streams.event_renderer import EventFrame

RequestId: TypeAlias = str | int | float | None


@dataclass(frozen=True, slots=True)
class JsonRpcRequest:
    """A request with a valid envelope and unparsed parameters."""

    request_id: RequestId
    method: str
    params: Any
    is_notification: bool = False
    """True if the request has no id, so that it gets no response (JSON-RPC 2.0, 4.1)."""


def find_request_id(value: object) -> RequestId:
    """Return the id of a request that may be invalid, or None if it has no valid id."""
    request_id = value.get("id") if isinstance(value, dict) else None
    return request_id if _is_id(request_id) else None


def parse_envelope(value: object) -> JsonRpcRequest:
    """Parse the envelope of a request.

    Raises:
        WireError: the envelope is invalid, or the value is a batch, which A2A does not have.
    """
    if isinstance(value, list):
        raise _invalid("batches are not supported; send one request at a time")
    if not isinstance(value, dict):
        raise _invalid("the body must be a JSON object")
    if value.get("jsonrpc") != "2.0":
        raise _invalid('jsonrpc must be "2.0"')
    request_id = value.get("id")
    if not _is_id(request_id):
        raise _invalid("id must be a string, a number or null")
    method = value.get("method")
    if not isinstance(method, str) or not method:
        raise _invalid("method must be a string that is not empty")
    return JsonRpcRequest(
        request_id, method, value.get("params"), is_notification="id" not in value
    )


def error_object(error: WireError) -> Json:
    """Return JSON-RPC's error object. Its `data` is A2A v1.0's array of details."""
    return {"code": error.kind.rpc_code, "message": error.text, "data": error.details()}


def encode_result(request_id: RequestId, result: object) -> bytes:
    """Return a response with a result."""
    return _response(request_id, "result", result)


def encode_error(request_id: RequestId, error: Json) -> bytes:
    """Return a response with an error object."""
    return _response(request_id, "error", error)


def event_frame(
    request_id: RequestId,
    error_object: Callable[[WireError], Json] = error_object,
    *,
    error_event: str = "error",
) -> EventFrame:
    """Return the envelope around each event of a stream; `error_event` is the type of errors."""
    return EventFrame(
        f'{{"jsonrpc":"2.0","id":{dumps(request_id)},"result":',
        "}",
        lambda error: {"jsonrpc": "2.0", "id": request_id, "error": error_object(error)},
        error_event,
    )


def _response(request_id: RequestId, member: str, value: object) -> bytes:
    body = dumps({"jsonrpc": "2.0", "id": request_id, member: value})
    return body.encode("utf-8")


def _is_id(value: object) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or isinstance(value, str) or is_number


def _invalid(problem: str) -> WireError:
    return WireError(INVALID_REQUEST, f"not a JSON-RPC 2.0 request: {problem}")
