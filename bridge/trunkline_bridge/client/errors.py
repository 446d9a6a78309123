"""What can go wrong with a remote agent, as errors of the mesh."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from trunkline.errors import PeerRefusedError, PeerUnavailableError
from trunkline_bridge.errors import SPECIFIED_KINDS
from trunkline_bridge.http_client import parse_retry_after

# A2A's error codes by the reasons that it names them with, v0.3's included.
_REASONS: Final[Mapping[int, str]] = {row.rpc_code: row.reason for row in SPECIFIED_KINDS}
# The peer speaks another version, or doesn't know what was asked for.
WRONG_VERSION_REASONS: Final = frozenset({"METHOD_NOT_FOUND", "VERSION_NOT_SUPPORTED"})
_TEXT_LIMIT: Final = 300
_PAUSE_LIMIT_S: Final = 60.0


@dataclass(eq=False)
class NotProcessedError(PeerUnavailableError):
    """The peer can't have begun with what it was sent: it may be sent again."""

    retry_after_s: float = 0.0


@dataclass(eq=False)
class ConnectionLostError(PeerUnavailableError):
    """The connection broke, and the peer may have begun with what it was sent."""


def parse_reason(code: object, details: object) -> str:
    """Return the reason of an error: what its details name, or else what its code stands for."""
    for entry in details if isinstance(details, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("reason"), str):
            return str(entry["reason"])
    return _REASONS.get(code, "") if isinstance(code, int) else ""


def refusal_error(peer: str, text: object, refusal: str) -> PeerRefusedError:
    """Return the error for a no of the peer's, with what it said, cut to a line."""
    said = " ".join(str(text or "").split())
    if len(said) > _TEXT_LIMIT:
        said = said[:_TEXT_LIMIT] + "…"
    return PeerRefusedError(peer, said or refusal or "it didn't say why", refusal)


def jsonrpc_refusal(peer: str, error: Mapping[str, Any]) -> PeerRefusedError:
    """Return what a JSON-RPC error object is."""
    code = error.get("code")
    reason = parse_reason(code, error.get("data"))
    return refusal_error(peer, error.get("message") or f"error {code}", reason)


def http_status_error(peer: str, status: int, headers: Mapping[str, str]) -> Exception | None:
    """Return what an HTTP status alone says, whatever the body; None: the body has to say it."""
    if status in (401, 403):
        problem = f"it wants other credentials (HTTP {status}); set those of its settings"
        return refusal_error(
            peer, problem, "UNAUTHENTICATED" if status == 401 else "PERMISSION_DENIED"
        )
    if status in (429, 503):
        problem = "it is overloaded" if status == 429 else "it is not available"
        pause_s = parse_retry_after(headers.get("retry-after", ""), limit_s=_PAUSE_LIMIT_S)
        return NotProcessedError(peer, f"{problem} (HTTP {status})", pause_s)
    return None
