"""Errors of calls to a remote agent, built from the responses of the agent or its HTTP server.

    PeerUnavailableError
    ├─ NotProcessedError       the request can be sent again
    │  └─ ServerBusyError      HTTP 429 and 503
    └─ ConnectionLostError     the request may have been processed
    PeerRefusedError
    └─ RpcError                the agent responded with an error object

PeerTimeoutError and PeerProtocolError have no subclasses here.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trunkline.a2a_wire.errors import BRIDGE, SPECIFIED_KINDS
from trunkline.core.network import parse_retry_after
from trunkline.errors import PeerRefusedError, PeerUnavailableError

# The reasons of A2A's JSON-RPC error codes; v0.3 uses the same codes.
_REASONS: Final[Mapping[int, str]] = {kind.rpc_code: kind.reason for kind in SPECIFIED_KINDS}
WRONG_VERSION_REASONS: Final = frozenset({"METHOD_NOT_FOUND", "VERSION_NOT_SUPPORTED"})
"""Refusals by a peer that speaks another version of A2A."""
STATUS_ERRORS: Final = frozenset({401, 403, 429, 503})
"""HTTP statuses whose meaning doesn't depend on the body."""
# JSON-RPC's code for errors of the server itself.
_SERVER_ERROR: Final = -32000
_TEXT_LIMIT: Final = 300
_MAX_RETRY_AFTER_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class ErrorObject:
    """The error object of a response: JSON-RPC's, or google.rpc.Status as JSON."""

    code: object = None
    text: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The metadata of its ErrorInfo."""
    reason: str = ""
    """See `parse_reason`."""

    @classmethod
    def from_json(cls, error: Mapping[str, Any]) -> "ErrorObject":
        """Read an error object; members of other types are ignored."""
        code = error.get("code")
        text = str(error.get("message") or "") or f"error {code}"
        details = error.get("data", error.get("details"))
        reason = parse_reason(code, details)
        for entry in details if isinstance(details, list) else ():
            if isinstance(entry, dict) and isinstance(entry.get("metadata"), dict):
                metadata = {str(name): str(value) for name, value in entry["metadata"].items()}
                return cls(code, text, metadata, reason)
        return cls(code, text, reason=reason)

    @classmethod
    def from_body(cls, body: bytes) -> "ErrorObject":
        """Read the error object in a response body, or return an empty object."""
        try:
            response = json.loads(body)
        except (ValueError, RecursionError):
            return cls()
        error = response.get("error") if isinstance(response, dict) else None
        return cls.from_json(error) if isinstance(error, dict) else cls()


@dataclass(eq=False)
class NotProcessedError(PeerUnavailableError):
    """The peer has not processed the request, so the client may send it again."""

    retry_after_s: float = 0.0


# The error object is not a dataclass field: fields travel as metadata of the error.
class ServerBusyError(NotProcessedError):
    """The peer's HTTP server answered with 429 or 503."""

    def __init__(
        self,
        peer: str,
        problem: str,
        retry_after_s: float = 0.0,
        *,
        status: int = 503,
        error: ErrorObject | None = None,
    ) -> None:
        super().__init__(peer, problem, retry_after_s)
        self.status = status
        self.error = error or ErrorObject()


@dataclass(eq=False)
class ConnectionLostError(PeerUnavailableError):
    """The connection broke; the peer may have processed the request."""


class RpcError(PeerRefusedError):
    """The peer answered with an error object, or with an HTTP status that refuses the caller."""

    def __init__(
        self, peer: str, problem: str, refusal: str, *, error: ErrorObject | None = None
    ) -> None:
        super().__init__(peer, problem, refusal)
        self.error = error or ErrorObject()


def is_shutdown(error: RpcError) -> bool:
    """Return whether Trunkline's bridge ended a stream because the bridge stops.

    The task runs on, so its stream can be resumed. A bridge that names another peer in its error
    has already waited for that peer.
    """
    is_of_bridge = error.error.metadata.get("peer", BRIDGE) == BRIDGE
    return error.error.code == _SERVER_ERROR and is_of_bridge


def parse_reason(code: object, details: object) -> str:
    """Return the reason named in an error's details, else the reason of its JSON-RPC code."""
    for entry in details if isinstance(details, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("reason"), str):
            return str(entry["reason"])
    return _REASONS.get(code, "") if isinstance(code, int) else ""


def refusal_error(
    peer: str,
    text: object,
    refusal: str,
    error: ErrorObject | None = None,
    *,
    status: int | None = None,
) -> RpcError:
    """Build the error for a refusal; its text is one line of about 300 characters at most.

    The text names an HTTP `status` of a failed server (500 to 599).
    """
    problem = " ".join(str(text or "").split())
    if len(problem) > _TEXT_LIMIT:
        problem = problem[:_TEXT_LIMIT] + "…"
    problem = problem or refusal or "it didn't say why"
    if status is not None and status >= 500 and f"HTTP {status}" not in problem:
        problem = f"{problem} (HTTP {status})"
    return RpcError(peer, problem, refusal, error=error)


def status_failure(peer: str, status: int) -> ConnectionLostError:
    """Build the error for an HTTP status of 500 to 599 whose body does not say why."""
    return ConnectionLostError(peer, f"it answers with HTTP {status}")


def jsonrpc_refusal(peer: str, error: Mapping[str, Any], status: int) -> RpcError:
    """Convert a JSON-RPC error object, in a response with an HTTP status, to an error."""
    parsed = ErrorObject.from_json(error)
    return refusal_error(peer, parsed.text, parsed.reason, parsed, status=status)


def http_status_error(
    peer: str, status: int, headers: Mapping[str, str], error: ErrorObject
) -> RpcError | ServerBusyError:
    """Build the error for one of `STATUS_ERRORS`; `error` is the body's error object."""
    if status in (401, 403):
        problem = f"it rejects the credentials (HTTP {status}); set them in its settings"
        reason = "UNAUTHENTICATED" if status == 401 else "PERMISSION_DENIED"
        return RpcError(peer, problem, reason, error=error)
    problem = "it is overloaded" if status == 429 else "it is not available"
    delay_s = parse_retry_after(headers.get("retry-after", ""), limit_s=_MAX_RETRY_AFTER_S)
    return ServerBusyError(peer, f"{problem} (HTTP {status})", delay_s, status=status, error=error)
