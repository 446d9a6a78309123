"""What a version of A2A serves over gRPC, as a table: methods, and the operations behind them."""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from trunkline.a2a.v1 import a2a_pb2
from trunkline_bridge.bindings.operations import Operations
from trunkline_bridge.edge.caller import Caller
from trunkline_bridge.errors import WireError
from trunkline_bridge.streams.task_streams import WireEvents


def identity(message: Any) -> Any:  # noqa: ANN401  any message
    """Return what is given: v1.0's messages are the core's."""
    return message


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcMethod:
    """A method: how its request becomes the core's, and what must be right about that."""

    name: str
    request: type[Message]
    response: type[Message]
    to_core: Callable[[Any], Any] = identity
    """The request in the core model."""
    check: Callable[[Any], Any] = identity
    """Sees that the core's request has what A2A requires. WireError: it hasn't."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnaryGrpcMethod(GrpcMethod):
    """A method with one answer."""

    call: Callable[[Operations, Caller, Any], Awaitable[Any]]
    from_core: Callable[[Any], Message] = identity
    """The answer as this version has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingGrpcMethod(GrpcMethod):
    """A method with a stream of events."""

    open: Callable[[Operations, Caller, Any], AbstractAsyncContextManager[WireEvents]]
    event_from_core: Callable[[a2a_pb2.StreamResponse], Message] = identity
    """An event as this version has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcService:
    """All of a version."""

    package: str
    version: str
    methods: Sequence[UnaryGrpcMethod | StreamingGrpcMethod]
    error_text: Callable[[WireError], str]
    """What is said of an error beside its status."""
    has_old_files: bool = False
    """Whether its SDKs disagree on what files hold: see `wire.v0_3_proto.files`."""

    @property
    def name(self) -> str:
        """The service's full name."""
        return f"{self.package}.A2AService"
