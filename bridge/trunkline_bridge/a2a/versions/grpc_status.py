"""Converts errors to gRPC: a status, its text, and google.rpc.Status in the trailing metadata."""

from dataclasses import replace
from typing import Any, NoReturn, TypeAlias

import grpc
from google.protobuf import json_format
from google.rpc import (
    code_pb2,
    error_details_pb2,  # noqa: F401  registers the types of the details
    status_pb2,
)
from grpc_status import rpc_status

from trunkline.a2a_wire.errors import WireError
from trunkline.core.printable import truncate_utf8

GrpcContext: TypeAlias = grpc.aio.ServicerContext[bytes, bytes]
MetadataPairs: TypeAlias = tuple[tuple[str, str | bytes], ...]

# An error is sent in headers, of which clients accept 8 KB. They contain the text twice, once with
# three characters for each byte outside ASCII.
_TEXT_BYTES = 1024
_FIELD_BYTES = 256
_VIOLATIONS_BYTES = 1024


def status_code(error: WireError) -> grpc.StatusCode:
    """Return the status of an error."""
    return grpc.StatusCode[code_pb2.Code.Name(error.kind.grpc_code)]


def error_text(error: WireError) -> str:
    """Return the text of an error in v1.0."""
    return error.text


async def abort(
    context: GrpcContext, error: WireError, *, text: str, trailing: MetadataPairs
) -> NoReturn:
    """End a call with an error. Always raises grpc's AbortError."""
    sent = _truncate_details(error)
    fields: dict[str, Any] = {
        "code": sent.kind.grpc_code,
        # Clients reject a google.rpc.Status whose text differs from the text of the gRPC status.
        "message": truncate_utf8(text, _TEXT_BYTES),
        "details": sent.details(),
    }
    grpc_status = rpc_status.to_status(json_format.ParseDict(fields, status_pb2.Status()))
    metadata = (*trailing, *error.headers().items(), *(grpc_status.trailing_metadata or ()))
    await context.abort(grpc_status.code, grpc_status.details, metadata)
    raise AssertionError("context.abort raises")


def _truncate_details(error: WireError) -> WireError:
    """Shorten the details of an error that come from a request: they might exceed the headers."""
    violations, remaining_bytes = [], _VIOLATIONS_BYTES
    for name, problem in error.violations:
        violation = (truncate_utf8(name, _FIELD_BYTES), truncate_utf8(problem, _FIELD_BYTES))
        remaining_bytes -= sum(map(len, violation))
        if remaining_bytes < 0:
            break
        violations.append(violation)
    metadata = {name: truncate_utf8(value, _FIELD_BYTES) for name, value in error.metadata.items()}
    return replace(
        error,
        metadata=metadata,
        violations=tuple(violations),
    )
