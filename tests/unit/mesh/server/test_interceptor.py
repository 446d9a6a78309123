"""The interceptor checks each request of a stream, whatever type of iterator has them."""

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from trunkline.mesh.server import CallInterceptor
from trunkline.mesh.server.authorization import admit_anybody
from trunkline.v1 import registry_service_pb2

METHOD = "/trunkline.v1.RegistryService/HoldLease"


class Requests:
    """The requests of a stream. It is no `AsyncIterator`, because it has no `__anext__`."""

    def __init__(self, *requests: object) -> None:
        self._requests = requests

    async def __aiter__(self) -> AsyncIterator[object]:
        for request in self._requests:
            yield request


class AbortedError(Exception):
    """The call was aborted with a status."""


class Context:
    """The parts of gRPC's context that a call uses which is refused."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return ()

    def time_remaining(self) -> None:
        return None

    def code(self) -> int:
        return 0

    async def abort_with_status(self, status: grpc.Status) -> None:
        raise AbortedError(status.code)


async def test_a_request_that_cannot_be_read_is_refused_in_any_stream_of_requests() -> None:
    handled: list[object] = []

    async def hold(requests: AsyncIterator[object], _context: object) -> None:
        handled.extend([request async for request in requests])

    async def find_handler(_details: object) -> Any:
        request_type = registry_service_pb2.HoldLeaseRequest
        return grpc.stream_unary_rpc_method_handler(
            hold, request_deserializer=request_type.FromString
        )

    details: Any = SimpleNamespace(method=METHOD)
    handler = await CallInterceptor(admit_anybody).intercept_service(find_handler, details)
    answer: Any = handler.stream_unary
    parse: Any = handler.request_deserializer
    with pytest.raises(AbortedError, match="INVALID_ARGUMENT"):
        await answer(Requests(parse(b"\xff")), Context())
    assert not handled
