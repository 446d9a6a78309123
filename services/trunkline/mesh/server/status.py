"""Converts mesh errors to gRPC statuses. `trunkline.mesh.client.status` converts them back."""

import grpc
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

from trunkline.core.printable import truncate_utf8
from trunkline.errors import ERROR_DOMAIN, TrunklineError
from trunkline.v1 import trunk_service_pb2

# An error travels in HTTP/2 headers, which grpc limits to 8 KB. The text travels twice, and each
# non-ASCII byte may take three. A caller that sends a long id gets only its start back.
_TEXT_BYTES = 1024
_FIELD_BYTES = 512


def to_status(error: TrunklineError) -> status_pb2.Status:
    """Return the error as google.rpc.Status with one ErrorInfo that holds its attributes."""
    status = status_pb2.Status(
        code=code_pb2.Code.Value(error.code), message=truncate_utf8(str(error), _TEXT_BYTES)
    )
    status.details.add().Pack(
        error_details_pb2.ErrorInfo(
            reason=error.reason, domain=ERROR_DOMAIN, metadata=_build_metadata(error)
        )
    )
    return status


def to_trunk_end(error: TrunklineError) -> trunk_service_pb2.TrunkEnd:
    """Return the frame that ends a call on a trunk with the error."""
    return trunk_service_pb2.TrunkEnd(
        code=code_pb2.Code.Value(error.code),
        message=truncate_utf8(str(error), _TEXT_BYTES),
        reason=error.reason,
        metadata=_build_metadata(error),
    )


async def abort(context: grpc.aio.ServicerContext[object, object], error: TrunklineError) -> None:
    """End a call with an error. Always raises grpc's AbortError."""
    await context.abort_with_status(rpc_status.to_status(to_status(error)))


def _build_metadata(error: TrunklineError) -> dict[str, str]:
    return {key: truncate_utf8(value, _FIELD_BYTES) for key, value in error.metadata().items()}
