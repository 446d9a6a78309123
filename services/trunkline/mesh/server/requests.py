"""Reads the requests of calls, and refuses those that are malformed or not allowed."""

from collections.abc import AsyncIterator, Callable
from typing import Final, TypeVar

from google.protobuf.message import Message

from trunkline.errors import InvalidArgumentError
from trunkline.mesh.server.authorization import check_user
from trunkline.mesh.server.request_values import check_values

_Any = TypeVar("_Any")

UNREADABLE: Final = object()
"""Stands for a request that can't be read. grpc would answer it with INTERNAL."""


def make_deserializer(parse: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """Return a deserializer that returns UNREADABLE instead of raising an error."""

    def deserialize(serialized: bytes) -> object:
        try:
            return parse(serialized)
        # Third-party services may have any parser.
        except Exception:  # noqa: BLE001
            return UNREADABLE

    return deserialize


def check_request(request: _Any) -> _Any:
    """Return a request that a method may handle.

    Raises:
        InvalidArgumentError: it is UNREADABLE, or has impossible values.
        PermissionDeniedError, UserNotProvenError: it is not allowed to the caller and its user.
    """
    if request is UNREADABLE:
        raise unreadable_request()
    if isinstance(request, Message):
        check_values(request)
        check_user(request)
    return request


async def check_requests(requests: AsyncIterator[_Any]) -> AsyncIterator[_Any]:
    """Yield the requests of a stream; raise the errors of `check_request`."""
    async for request in requests:
        yield check_request(request)


def unreadable_request() -> InvalidArgumentError:
    """Return the error for a request that can't be read."""
    return InvalidArgumentError("request", "can't be read as the method's")
