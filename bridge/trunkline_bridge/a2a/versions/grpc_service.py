"""The methods of a protocol version over gRPC, as a table over the operations."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from google.protobuf.message import Message

from trunkline.a2a_wire.errors import WireError
from trunkline_bridge.a2a.operations.operation_table import (
    StreamOperation,
    UnaryOperation,
    unchanged,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcMethod:
    """A method: its messages, and the converters from and to the core model."""

    name: str
    operation: UnaryOperation | StreamOperation
    request: type[Message]
    response: type[Message]
    to_core: Callable[[Any], Any] = unchanged
    """Converts a request to the core model."""
    from_core: Callable[[Any], Message] = unchanged
    """Converts a result or an event from the core model."""
    check: Callable[[Any], Any]
    """Returns a valid request of the core model, or raises WireError."""

    @property
    def is_streaming(self) -> bool:
        """True if the response is a stream of events."""
        return isinstance(self.operation, StreamOperation)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrpcService:
    """The gRPC service of a protocol version."""

    package: str
    version: str
    methods: Sequence[GrpcMethod]
    error_text: Callable[[WireError], str]
    """Returns the text of an error, the details string of the gRPC status."""
    has_file_bytes: bool = False
    """True if SDKs disagree on the encoding of files; see `versions.v0_3.file_bytes`."""

    @property
    def name(self) -> str:
        """The full name of the service."""
        return f"{self.package}.A2AService"
