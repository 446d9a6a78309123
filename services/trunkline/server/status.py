"""Turns mesh errors into gRPC statuses. The way back is trunkline.client.status."""

import grpc
from google.rpc import code_pb2, error_details_pb2, status_pb2

from trunkline.errors import TrunklineError
from trunkline.v1 import trunk_service_pb2

ERROR_DOMAIN = "trunkline.dev"
STATUS_DETAILS_KEY = "grpc-status-details-bin"

# All of an error travels in HTTP/2 headers, which grpc bounds at 8 KB; the text travels twice, once
# with each odd byte as three. Whoever sends a long id gets its beginning back.
_TEXT_BYTES = 1024
_FIELD_BYTES = 512


def to_status(error: TrunklineError) -> status_pb2.Status:
    """Return the error as google.rpc.Status with one ErrorInfo that holds its attributes."""
    status = status_pb2.Status(
        code=code_pb2.Code.Value(error.code), message=_cut(str(error), _TEXT_BYTES)
    )
    status.details.add().Pack(
        error_details_pb2.ErrorInfo(
            reason=error.reason, domain=ERROR_DOMAIN, metadata=_metadata(error)
        )
    )
    return status


def to_trunk_end(error: TrunklineError) -> trunk_service_pb2.TrunkEnd:
    """Return how a call on the trunk ends with the error."""
    return trunk_service_pb2.TrunkEnd(
        code=code_pb2.Code.Value(error.code),
        message=_cut(str(error), _TEXT_BYTES),
        reason=error.reason,
        metadata=_metadata(error),
    )


async def abort(context: grpc.aio.ServicerContext[object, object], error: TrunklineError) -> None:
    """End a call with an error. Always raises grpc's AbortError."""
    status = to_status(error)
    await context.abort(
        grpc.StatusCode[error.code],
        status.message,
        ((STATUS_DETAILS_KEY, status.SerializeToString()),),
    )


def _metadata(error: TrunklineError) -> dict[str, str]:
    return {key: _cut(value, _FIELD_BYTES) for key, value in error.metadata().items()}


def _cut(text: str, size_bytes: int) -> str:
    encoded = text.encode(errors="replace")
    if len(encoded) <= size_bytes:
        return text
    return encoded[: size_bytes - 3].decode(errors="ignore") + "…"
