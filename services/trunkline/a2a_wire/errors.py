"""Converts errors of the mesh to errors of A2A, by one table for all bindings.

`to_wire_error` converts an error of the mesh by its class. Errors that exist only in the protocol
(a malformed envelope, an unknown method or version) are raised as WireErrors in the first place.

Text and metadata are redacted: local addresses and paths appear only in our logs and traces. The
advice in a text names methods of A2A, since callers do not have our command line.
"""

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from google.rpc import code_pb2

from trunkline import errors
from trunkline.core.redaction import redact_addresses
from trunkline.observe import telemetry

logger = logging.getLogger(__name__)

A2A_ERROR_DOMAIN = "a2a-protocol.org"
BRIDGE: Final = "the bridge"
"""The peer that errors of the bridge's own shutdown name; other errors name the process that the
bridge can't reach."""
_TYPES = "type.googleapis.com/google.rpc."
_CAPITAL = re.compile("[A-Z]")


class ErrorKind(NamedTuple):
    """The codes of an error in each binding."""

    rpc_code: int
    reason: str
    http_status: int
    grpc_code: "code_pb2.Code.ValueType" = code_pb2.INVALID_ARGUMENT
    """google.rpc.Code: the gRPC status, and the member `status` of an error over HTTP+JSON."""


PARSE_ERROR = ErrorKind(-32700, "INVALID_REQUEST", 400)
INVALID_REQUEST = ErrorKind(-32600, "INVALID_REQUEST", 400)
METHOD_NOT_FOUND = ErrorKind(-32601, "METHOD_NOT_FOUND", 404, code_pb2.UNIMPLEMENTED)
INVALID_PARAMS = ErrorKind(-32602, "INVALID_PARAMS", 400)
INTERNAL_ERROR = ErrorKind(-32603, "INTERNAL_ERROR", 500, code_pb2.INTERNAL)
TASK_NOT_FOUND = ErrorKind(-32001, "TASK_NOT_FOUND", 404, code_pb2.NOT_FOUND)
TASK_NOT_CANCELABLE = ErrorKind(-32002, "TASK_NOT_CANCELABLE", 400, code_pb2.FAILED_PRECONDITION)
PUSH_NOTIFICATION_NOT_SUPPORTED = ErrorKind(
    -32003, "PUSH_NOTIFICATION_NOT_SUPPORTED", 400, code_pb2.FAILED_PRECONDITION
)
UNSUPPORTED_OPERATION = ErrorKind(
    -32004, "UNSUPPORTED_OPERATION", 400, code_pb2.FAILED_PRECONDITION
)
CONTENT_TYPE_NOT_SUPPORTED = ErrorKind(-32005, "CONTENT_TYPE_NOT_SUPPORTED", 400)
INVALID_AGENT_RESPONSE = ErrorKind(-32006, "INVALID_AGENT_RESPONSE", 500, code_pb2.INTERNAL)
EXTENDED_CARD_NOT_CONFIGURED = ErrorKind(
    -32007, "EXTENDED_AGENT_CARD_NOT_CONFIGURED", 400, code_pb2.FAILED_PRECONDITION
)
EXTENSION_SUPPORT_REQUIRED = ErrorKind(
    -32008, "EXTENSION_SUPPORT_REQUIRED", 400, code_pb2.FAILED_PRECONDITION
)
VERSION_NOT_SUPPORTED = ErrorKind(
    -32009, "VERSION_NOT_SUPPORTED", 400, code_pb2.FAILED_PRECONDITION
)

SPECIFIED_KINDS = (
    PARSE_ERROR,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    INVALID_PARAMS,
    INTERNAL_ERROR,
    TASK_NOT_FOUND,
    TASK_NOT_CANCELABLE,
    PUSH_NOTIFICATION_NOT_SUPPORTED,
    UNSUPPORTED_OPERATION,
    CONTENT_TYPE_NOT_SUPPORTED,
    INVALID_AGENT_RESPONSE,
    EXTENDED_CARD_NOT_CONFIGURED,
    EXTENSION_SUPPORT_REQUIRED,
    VERSION_NOT_SUPPORTED,
)
"""The errors that A2A and JSON-RPC define, each with its own code."""

# A2A defines no codes for these. -32000 is JSON-RPC's code for server errors.
UNAUTHENTICATED = ErrorKind(-32000, "UNAUTHENTICATED", 401, code_pb2.UNAUTHENTICATED)
FORBIDDEN = ErrorKind(-32000, "PERMISSION_DENIED", 403, code_pb2.PERMISSION_DENIED)
OVERLOADED = ErrorKind(-32000, "RESOURCE_EXHAUSTED", 429, code_pb2.RESOURCE_EXHAUSTED)
UNAVAILABLE = ErrorKind(-32000, "UNAVAILABLE", 503, code_pb2.UNAVAILABLE)
TIMEOUT = ErrorKind(-32000, "DEADLINE_EXCEEDED", 504, code_pb2.DEADLINE_EXCEEDED)
TREE_LIMIT = ErrorKind(-32000, "TREE_LIMIT", 400, code_pb2.FAILED_PRECONDITION)
AGENT_NOT_FOUND = ErrorKind(-32602, "AGENT_NOT_FOUND", 404, code_pb2.NOT_FOUND)
RESOURCE_NOT_FOUND = ErrorKind(-32602, "INVALID_PARAMS", 404, code_pb2.NOT_FOUND)

ERROR_KINDS: Mapping[type[errors.TrunklineError], ErrorKind] = {
    errors.InvalidArgumentError: INVALID_PARAMS,
    errors.ContentTypeNotSupportedError: CONTENT_TYPE_NOT_SUPPORTED,
    errors.MessageKeyReusedError: INVALID_PARAMS,
    errors.AgentNotFoundError: AGENT_NOT_FOUND,
    errors.TaskNotFoundError: TASK_NOT_FOUND,
    errors.WebhookNotFoundError: TASK_NOT_FOUND,
    errors.ArtifactNotFoundError: RESOURCE_NOT_FOUND,
    errors.EnvelopeNotFoundError: RESOURCE_NOT_FOUND,
    errors.ToolNotFoundError: RESOURCE_NOT_FOUND,
    errors.TraceNotFoundError: RESOURCE_NOT_FOUND,
    errors.ApprovalNotFoundError: RESOURCE_NOT_FOUND,
    errors.HostNotFoundError: UNAVAILABLE,
    errors.TaskNotCancelableError: TASK_NOT_CANCELABLE,
    errors.TaskEndedError: UNSUPPORTED_OPERATION,
    errors.ApprovalAnsweredError: UNSUPPORTED_OPERATION,
    errors.ConfigurationError: INTERNAL_ERROR,
    errors.TreeLimitError: TREE_LIMIT,
    errors.UnauthenticatedError: INTERNAL_ERROR,
    errors.UserNotProvenError: INTERNAL_ERROR,
    errors.PermissionDeniedError: FORBIDDEN,
    errors.UnsupportedOperationError: UNSUPPORTED_OPERATION,
    errors.CursorExpiredError: INVALID_PARAMS,
    errors.OverloadedError: OVERLOADED,
    errors.QueueFullError: OVERLOADED,
    errors.LimitExceededError: OVERLOADED,
    errors.PeerUnavailableError: UNAVAILABLE,
    errors.PeerCircuitOpenError: UNAVAILABLE,
    errors.TaskHostGoneError: UNAVAILABLE,
    # The bridge follows the task instead, so this is the error of a client of ours alone.
    errors.TaskExistsError: UNAVAILABLE,
    errors.PeerHandshakeError: UNAVAILABLE,
    errors.ToolServerUnavailableError: UNAVAILABLE,
    errors.JournalUnavailableError: UNAVAILABLE,
    errors.PeerTimeoutError: TIMEOUT,
    errors.FencedError: UNAVAILABLE,
    errors.PeerRefusedError: INTERNAL_ERROR,
    errors.SignInFailedError: INTERNAL_ERROR,
    errors.PeerProtocolError: INTERNAL_ERROR,
    errors.InvalidAgentResponseError: INVALID_AGENT_RESPONSE,
    errors.AgentCallError: INTERNAL_ERROR,
    errors.WorkflowFailedError: INTERNAL_ERROR,
    errors.StepLimitError: INTERNAL_ERROR,
    errors.TokenLimitError: INTERNAL_ERROR,
    errors.ModelUnavailableError: UNAVAILABLE,
    errors.InternalError: INTERNAL_ERROR,
}


@dataclass(eq=False)
class WireError(Exception):
    """An error of A2A, ready for any binding."""

    kind: ErrorKind
    text: str
    """The message for people."""
    metadata: Mapping[str, str] = field(default_factory=dict)
    """The metadata of the ErrorInfo, by camel-case keys."""
    violations: tuple[tuple[str, str], ...] = ()
    """Invalid fields, each with its name and the problem."""
    retry_after_s: str = ""
    """Seconds after which a retry may succeed, as in `Retry-After`, or empty if unknown."""
    challenge: str = ""
    """The `WWW-Authenticate` header of UNAUTHENTICATED and FORBIDDEN (RFC 9110, 11.6.1)."""

    def __str__(self) -> str:
        return self.text

    def headers(self) -> dict[str, str]:
        """Return the response headers of the error."""
        headers = {}
        if self.retry_after_s:
            headers["retry-after"] = self.retry_after_s
        if self.challenge:
            headers["www-authenticate"] = self.challenge
        return headers

    def details(self) -> list[dict[str, Any]]:
        """Return the details (google.rpc error details) as ProtoJSON.

        There is always an ErrorInfo. Invalid fields add a BadRequest, and a possible retry adds a
        RetryInfo, for errors without headers such as the last event of a stream.
        """
        info = {
            "@type": f"{_TYPES}ErrorInfo",
            "reason": self.kind.reason,
            "domain": A2A_ERROR_DOMAIN,
            "metadata": dict(self.metadata),
        }
        details: list[dict[str, Any]] = [info]
        if self.violations:
            fields = [{"field": name, "description": problem} for name, problem in self.violations]
            details.append({"@type": f"{_TYPES}BadRequest", "fieldViolations": fields})
        if self.retry_after_s:
            details.append({"@type": f"{_TYPES}RetryInfo", "retryDelay": f"{self.retry_after_s}s"})
        return details


def invalid_params(*violations: tuple[str, str]) -> WireError:
    """Return the error for fields that are missing or wrong."""
    text = "; ".join(f"{name}: {problem}" for name, problem in violations)
    return WireError(INVALID_PARAMS, text, violations=violations)


_WITH_RETRY_TIME: Final = (
    errors.LimitExceededError,
    errors.OverloadedError,
    errors.PeerCircuitOpenError,
    errors.TaskHostGoneError,
)


def to_wire_error(error: Exception) -> WireError:
    """Convert an error to a WireError.

    An unexpected error is logged, and the internal error that replaces it has only a trace id.
    """
    if isinstance(error, WireError):
        return error
    if isinstance(error, errors.TrunklineError) and type(error) is not errors.InternalError:
        text, metadata = redact_error(error)
        kind = next(
            (ERROR_KINDS[cls] for cls in type(error).__mro__ if cls in ERROR_KINDS), INTERNAL_ERROR
        )
        violations: tuple[tuple[str, str], ...] = ()
        if isinstance(error, errors.InvalidArgumentError):
            violations = ((error.field, error.problem),)
        retry_after_s = "1" if kind in (UNAVAILABLE, OVERLOADED) else ""
        if isinstance(error, _WITH_RETRY_TIME):
            retry_after_s = error.retry_after_s or "1"
        return WireError(kind, text, _camel_case_keys(metadata), violations, retry_after_s)
    if isinstance(error, errors.InternalError):
        return WireError(INTERNAL_ERROR, str(error), {"traceId": error.trace_id})
    trace_id = telemetry.current_trace_id()
    logger.error("request.failed", exc_info=error, extra={"trace_id": trace_id})
    return WireError(INTERNAL_ERROR, str(errors.InternalError(trace_id)), {"traceId": trace_id})


def _camel_case_keys(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return metadata with camel-case keys, which A2A uses, instead of snake-case ones."""

    def convert(name: str) -> str:
        first, *others = name.split("_")
        return first + "".join(word.capitalize() for word in others)

    return {convert(name): value for name, value in metadata.items()}


def mesh_metadata(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata of a WireError with the keys of the mesh's error that it converts."""
    return {_CAPITAL.sub(r"_\g<0>", name).lower(): value for name, value in metadata.items()}


_ADVICE: Final[Mapping[type[errors.TrunklineError], str]] = {
    errors.AgentNotFoundError: "; the card of an agent has its address and tenant",
    errors.TaskNotFoundError: "; use its agent's address and the account that created it",
    errors.EnvelopeNotFoundError: "; GET /messages lists those that are stored",
    errors.WebhookNotFoundError: "; create it, or list the existing ones",
    # These methods return a snapshot.
    errors.CursorExpiredError: (
        " (GetTask, or SubscribeToTask without Last-Event-ID while the task runs)"
    ),
}


def redact_error(error: errors.TrunklineError) -> tuple[str, dict[str, str]]:
    """Return the text and metadata of an error without addresses and paths of the mesh.

    The original metadata of a PeerError is logged.
    """
    metadata = error.metadata()
    if isinstance(error, errors.PeerError):
        logger.info("request.peer_failed", extra=metadata)
    fields = redact_addresses(error).metadata()
    if isinstance(error, errors.PeerUnavailableError):
        fields["problem"] = _add_advice(fields["problem"])
    text = str(type(error).from_metadata(fields))
    text += next((_ADVICE[cls] for cls in type(error).__mro__ if cls in _ADVICE), "")
    return text, {name: fields[name] for name in metadata if name != "path"}


def _add_advice(problem: str) -> str:
    """Append advice to a problem without advice. Advice follows a semicolon."""
    return problem if ";" in problem else f"{problem}; try again in a few seconds"
