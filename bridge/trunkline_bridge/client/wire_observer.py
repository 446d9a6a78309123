"""Shows the requests and responses of the client to an observer, for diagnostics."""

from collections.abc import Mapping
from typing import Protocol

from google.protobuf.message import Message

from trunkline_bridge.versions.json_values import dumps


class WireObserver(Protocol):
    """Receives everything that the client sends and receives, with credentials.

    It must not show them: see `redact` of the command line.
    """

    def request(self, target: str, headers: Mapping[str, str], body: bytes) -> None:
        """Receive a request. `target` is the HTTP method and URL, or the path of a gRPC call."""

    def response(self, status: str, headers: Mapping[str, str]) -> None:
        """Receive the status of a response."""

    def data(self, content: bytes) -> None:
        """Receive the body of a response, or an event of a stream."""


def proto_text(message: Message) -> bytes:
    """Return a gRPC message as JSON, because its bytes can't be read."""
    from google.protobuf import json_format

    return dumps(json_format.MessageToDict(message)).encode()
