"""A2A v0.3 over gRPC: the same operations as v1.0 with other messages."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire import operations as wire
from trunkline.a2a_wire.errors import EXTENDED_CARD_NOT_CONFIGURED, WireError, invalid_params
from trunkline.a2a_wire.protocol import V0_3
from trunkline_bridge.a2a.operations import request_parser as parser
from trunkline_bridge.a2a.operations.operation_table import SERVED_OPERATIONS, unchanged
from trunkline_bridge.a2a.versions.grpc_service import GrpcMethod, GrpcService

# The names that can't be derived from the reason of the error.
_ERROR_NAMES = {
    EXTENDED_CARD_NOT_CONFIGURED.reason: "AuthenticatedExtendedCardNotConfiguredError",
}
# The reasons that v0.3 has names for. Other errors have only their status.
_NAMED_REASONS = frozenset(
    {
        "TASK_NOT_FOUND",
        "TASK_NOT_CANCELABLE",
        "PUSH_NOTIFICATION_NOT_SUPPORTED",
        "UNSUPPORTED_OPERATION",
        "CONTENT_TYPE_NOT_SUPPORTED",
        "INVALID_AGENT_RESPONSE",
        "EXTENDED_AGENT_CARD_NOT_CONFIGURED",
        "INVALID_PARAMS",
        "INVALID_REQUEST",
        "INTERNAL_ERROR",
    }
)


def v0_3_error_text(error: WireError) -> str:
    """Return the text of an error. Clients recognize the error by the name before the colon."""
    name = v0_3_error_name(error)
    return f"{name}: {error.text}" if name else error.text


def v0_3_error_name(error: WireError) -> str:
    """Return the name of an error in v0.3, or an empty text if v0.3 has none."""
    reason = error.kind.reason
    if reason not in _NAMED_REASONS:
        return ""
    words = "".join(word.capitalize() for word in reason.removesuffix("_ERROR").split("_"))
    return _ERROR_NAMES.get(reason, f"{words}Error")


def _check_send(request: a2a_pb2.SendMessageRequest) -> a2a_pb2.SendMessageRequest:
    """Validate like v1.0, with the field names of v0.3 in errors."""
    try:
        return parser.check_send(request)
    except WireError as error:
        violations = ((_translate(name), _translate(text)) for name, text in error.violations)
        raise invalid_params(*violations) from None


def _translate(text: str) -> str:
    """Replace the names of v1.0 by the names of v0.3."""
    return text.replace("message.parts", "message.content").replace("raw, url", "file")


# The checks that differ from v1.0's.
_CHECKS: Final[Mapping[str, Callable[[Any], Any]]] = {
    wire.SEND_MESSAGE.name: _check_send,
    wire.SEND_STREAMING_MESSAGE.name: _check_send,
    # The config id may be missing: then it is the task's first config.
    wire.GET_PUSH_CONFIG.name: unchanged,
}
SERVICE: Final = GrpcService(
    package="a2a.v1",
    version=V0_3,
    error_text=v0_3_error_text,
    has_file_bytes=True,
    methods=[
        GrpcMethod(
            name=method.grpc,
            operation=operation,
            request=method.request,
            response=method.response,
            to_core=method.read_request,
            from_core=method.write_response,
            check=_CHECKS.get(operation.wire.name, operation.check),
        )
        for operation in SERVED_OPERATIONS
        if (method := operation.wire.v0_3) is not None
    ],
)
