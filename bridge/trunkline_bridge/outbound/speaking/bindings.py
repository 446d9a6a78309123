"""What a binding of A2A does for us, in the core model, whichever it is."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Final, NamedTuple, Protocol, TypeAlias

from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import task_pb2
from trunkline_bridge.inbound.cards import RESUME_EXTENSION
from trunkline_bridge.wire.versions import V0_3

# How long a peer has for a whole answer; sends may wait for the end of a turn.
CALL_S: Final = 30.0


class PeerEvent(NamedTuple):
    """An event of a remote task, and the id behind which its stream can be taken up."""

    response: a2a_pb2.StreamResponse
    id: str = ""


Events: TypeAlias = AsyncIterator[PeerEvent]


class Call(NamedTuple):
    """What is said beside a request."""

    resumes: bool = False
    """The resume extension is activated."""
    last_event_id: str = ""
    timeout_s: float | None = None
    """When the task ends at the latest, for peers of our own kind."""


class PeerBinding(Protocol):
    """One version of A2A over one binding, at one address.

    Every method raises NotTakenError when the peer can't have begun, BrokenError or
    PeerTimeoutError when that isn't known, PeerRefusedError for its own errors, and
    PeerProtocolError for what is no A2A.
    """

    async def send(
        self, request: a2a_pb2.SendMessageRequest, call: Call, *, timeout_s: float
    ) -> a2a_pb2.StreamResponse:
        """Send a message; return the task, or the message that answers it."""

    def stream(
        self, request: a2a_pb2.SendMessageRequest, call: Call
    ) -> AbstractAsyncContextManager[Events]:
        """Send a message and read the stream that answers it."""

    def subscribe(self, task_id: str, call: Call) -> AbstractAsyncContextManager[Events]:
        """Read what becomes of a task."""

    async def get(self, task_id: str) -> task_pb2.Task:
        """Return a task with all of its history."""

    async def cancel(self, task_id: str) -> task_pb2.Task:
        """Cancel a task and return it."""


def service_parameters(version: str, call: Call) -> Mapping[str, str]:
    """Return the headers, or the metadata, of a call."""
    found = {"a2a-version": version}
    if call.resumes:
        found["a2a-extensions"] = RESUME_EXTENSION
        if version == V0_3:
            found["x-a2a-extensions"] = RESUME_EXTENSION
    if call.last_event_id:
        found["last-event-id"] = call.last_event_id
    if call.timeout_s is not None:
        found["trunkline-timeout"] = f"{call.timeout_s:.3f}"
    return found
