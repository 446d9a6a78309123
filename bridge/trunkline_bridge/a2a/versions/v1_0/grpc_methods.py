"""A2A v1.0 over gRPC. Its messages are the messages of the core model."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf import empty_pb2
from google.protobuf.message import Message

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire import operations as wire
from trunkline.a2a_wire.protocol import V1_0
from trunkline.v1 import message_pb2, task_pb2
from trunkline_bridge.a2a.operations.operation_table import SERVED_OPERATIONS, unchanged
from trunkline_bridge.a2a.versions.grpc_service import GrpcMethod, GrpcService
from trunkline_bridge.a2a.versions.grpc_status import error_text


def _send_response(result: task_pb2.Task | message_pb2.Message) -> a2a_pb2.SendMessageResponse:
    if isinstance(result, message_pb2.Message):
        return a2a_pb2.SendMessageResponse(message=result)
    return a2a_pb2.SendMessageResponse(task=result)


_RESPONSES: Final[Mapping[str, Callable[[Any], Message]]] = {
    wire.SEND_MESSAGE.name: _send_response,
    wire.DELETE_PUSH_CONFIG.name: lambda _: empty_pb2.Empty(),
}
"""The responses that are not the results of their operations."""
SERVICE: Final = GrpcService(
    package="lf.a2a.v1",
    version=V1_0,
    error_text=error_text,
    methods=[
        GrpcMethod(
            name=operation.wire.name,
            operation=operation,
            request=operation.wire.request,
            response=operation.wire.response,
            from_core=_RESPONSES.get(operation.wire.name, unchanged),
            check=operation.check,
        )
        for operation in SERVED_OPERATIONS
    ],
)
