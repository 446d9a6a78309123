"""Makes handlers of methods."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

_Request = TypeVar("_Request", bound=Message)


def unary(
    method: Callable[[_Request, "grpc.aio.ServicerContext[Any, Any]"], Awaitable[Message]],
    request: type[_Request],
) -> "grpc.RpcMethodHandler[Any, Any]":
    """Return the handler of a method that takes one request and gives one response."""
    return grpc.unary_unary_rpc_method_handler(
        method,
        request_deserializer=request.FromString,
        response_serializer=lambda response: response.SerializeToString(),
    )
