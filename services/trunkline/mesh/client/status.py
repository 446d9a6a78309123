"""Converts gRPC errors to mesh errors. `trunkline.mesh.server.status` converts the other way."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from trunkline.errors import (
    ERROR_DOMAIN,
    ConfigurationError,
    InvalidArgumentError,
    PeerHandshakeError,
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnavailableError,
    TrunklineError,
    UnsupportedOperationError,
    error_classes,
)
from trunkline.v1 import trunk_service_pb2

# By texts of grpc. A retry may help: certificates are renewed, and directories updated.
_HANDSHAKE_PROBLEMS = {
    "Hostname Verification Check failed": "another process of the mesh listens there",
    "Tls handshake failed": "it is of another mesh, or a certificate has ended",
}
# gRPC's text for a write to a call that has ended. It replaces the status of the peer
# (https://github.com/grpc/grpc/issues/36066).
_WRITE_AFTER_END = "Internal error from Core"
_CHANNEL_CLOSED = "its channel is closed"
_ERROR_CLASSES = {cls.reason: cls for cls in error_classes()}


def _unavailable_error(peer: str, problem: str) -> TrunklineError:
    for symptom, cause in _HANDSHAKE_PROBLEMS.items():
        if symptom in problem:
            return PeerHandshakeError(peer, cause)
    if "last error: " in problem or "errors resolving" in problem:
        # grpc lists each address that it tried; the problem is at the end of the text.
        problem = problem.rpartition(": ")[2].rstrip("]")
    return PeerUnavailableError(peer, problem)


def _protocol_error(peer: str, problem: str) -> TrunklineError:
    return PeerProtocolError(peer, problem)


def _invalid_error(_peer: str, problem: str) -> TrunklineError:
    return InvalidArgumentError("request", problem)


# Statuses without our ErrorInfo: from grpc itself, the network, or third-party servers.
_ERROR_FACTORIES: dict[grpc.StatusCode, Callable[[str, str], TrunklineError]] = {
    grpc.StatusCode.OK: _protocol_error,
    grpc.StatusCode.CANCELLED: _unavailable_error,
    grpc.StatusCode.UNKNOWN: _protocol_error,
    grpc.StatusCode.INVALID_ARGUMENT: _invalid_error,
    grpc.StatusCode.DEADLINE_EXCEEDED: PeerTimeoutError,
    grpc.StatusCode.NOT_FOUND: _invalid_error,
    grpc.StatusCode.ALREADY_EXISTS: _invalid_error,
    grpc.StatusCode.PERMISSION_DENIED: ConfigurationError,
    # From grpc: a message was too large. Our own overload errors have an ErrorInfo.
    grpc.StatusCode.RESOURCE_EXHAUSTED: _protocol_error,
    grpc.StatusCode.FAILED_PRECONDITION: _invalid_error,
    grpc.StatusCode.ABORTED: _unavailable_error,
    grpc.StatusCode.OUT_OF_RANGE: _invalid_error,
    grpc.StatusCode.UNIMPLEMENTED: UnsupportedOperationError,
    grpc.StatusCode.INTERNAL: _protocol_error,
    grpc.StatusCode.UNAVAILABLE: _unavailable_error,
    grpc.StatusCode.DATA_LOSS: _protocol_error,
    grpc.StatusCode.UNAUTHENTICATED: ConfigurationError,
}

_CODES = {code.value[0]: code for code in grpc.StatusCode}


def from_rpc_error(error: grpc.aio.AioRpcError, *, peer: str) -> TrunklineError:
    """Return the error that the peer raised.

    The class and its attributes come from the peer's ErrorInfo. Without one the status code
    selects the class, and the error names the peer.
    """
    info = _error_info(error)
    if info is not None and info.domain == ERROR_DOMAIN and info.reason in _ERROR_CLASSES:
        return _ERROR_CLASSES[info.reason].from_metadata(dict(info.metadata))
    code = error.code()
    return _ERROR_FACTORIES[code](peer, error.details() or code.name)


def hides_status(error: TrunklineError) -> bool:
    """Return whether gRPC reports a failed write in place of the peer's status."""
    return isinstance(error, PeerProtocolError) and error.problem == _WRITE_AFTER_END


def from_trunk_end(end: trunk_service_pb2.TrunkEnd, *, peer: str) -> TrunklineError:
    """Return the error that ended a call on a trunk, as `from_rpc_error` does."""
    if end.reason in _ERROR_CLASSES:
        return _ERROR_CLASSES[end.reason].from_metadata(dict(end.metadata))
    code = _CODES.get(end.code, grpc.StatusCode.UNKNOWN)
    return _ERROR_FACTORIES[code](peer, end.message or code.name)


@contextmanager
def translate_errors(peer: str) -> Iterator[None]:
    """Raise gRPC errors of the block as mesh errors.

    The closing of a channel, which for gRPC cancels its calls, is such an error.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise PeerUnavailableError(peer, _CHANNEL_CLOSED) from error
    except grpc.aio.AioRpcError as error:
        raise from_rpc_error(error, peer=peer) from error
    except grpc.aio.UsageError as error:
        raise PeerUnavailableError(peer, _CHANNEL_CLOSED) from error


def _error_info(error: grpc.aio.AioRpcError) -> error_details_pb2.ErrorInfo | None:
    try:
        # Typed for calls, but an AioRpcError has the methods that it uses.
        status = rpc_status.from_call(error)  # type: ignore[arg-type]
        for detail in status.details if status is not None else ():
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info):
                return info
    except (DecodeError, ValueError):
        # The details are not ours, or contradict the status. The code is enough then.
        return None
    return None
