"""Tracks requests in flight and stops them if the client disconnects or the process shuts down.

Our own server reports a lost connection through a `Connection`, without a task for each request.
Under any other ASGI server a task waits for `http.disconnect`.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from enum import Enum
from typing import Any, NamedTuple

from starlette.types import Receive, Scope

from trunkline.client import run_in_background

CONNECTION_KEY = "trunkline.connection"
"""Key of the `Connection` in a request's `scope["state"]`."""

# Time limit for the last message of an aborted response.
_ABORT_TIMEOUT_S = 0.5


class Peer(NamedTuple):
    """The other side of a connection."""

    address: str = ""
    """The peer's IP address, or empty. Behind a trusted proxy, it is the address of the proxy's
    client."""
    certificate_name: str = ""
    """The name in the peer's verified certificate, or an empty text if it has none."""


class _StopReason(Enum):
    DISCONNECTED = "the client has disconnected"
    ABORTED = "the response ends with an error"


class InFlightRequest:
    """A task that serves a request and can be stopped."""

    __slots__ = ("_task", "error", "reason")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self.reason: _StopReason | None = None
        self.error: Exception | None = None
        """The error that the response ends with, or None if this process stops serving."""

    def end(self, error: Exception) -> None:
        """Stop the request. Its response ends with the error, in its own protocol."""
        if self.reason is None:
            self.error = error
            self.stop(_StopReason.ABORTED)

    def stop(self, reason: _StopReason) -> None:
        """Stop the request, unless it is being stopped."""
        if self.reason is None:
            self.reason = reason
            self._task.cancel()

    def absorb_cancellation(self) -> bool:
        """Consume the cancellation by `stop`, if there was one.

        Return False if the cancellation, or another one, came from outside.
        """
        return self.reason is not None and self._task.uncancel() == 0


_current_request: ContextVar[InFlightRequest | None] = ContextVar("request", default=None)


def current_request() -> InFlightRequest | None:
    """Return the tracked request that the caller serves, if any."""
    return _current_request.get()


class Connection:
    """A client's connection: its requests stop when it is lost."""

    __slots__ = ("_abort", "_requests", "certificate_name")

    def __init__(
        self, abort: Callable[[], None] | None = None, *, certificate_name: str = ""
    ) -> None:
        """Track the requests of a connection.

        `abort` closes the connection at once, or is None if the server does not allow this.
        `certificate_name` is the name in the client's verified certificate, or an empty text.
        """
        self.certificate_name = certificate_name
        self._requests: list[InFlightRequest] = []
        self._abort = abort

    async def abort(self) -> None:
        """Close the connection in the middle of a response, if the server allows it.

        That cancels the requests on it, so this call usually ends by its own cancellation.

        Raises:
            TimeoutError: the calling task serves no request of this connection.
        """
        if self._abort is None:
            return
        self._abort()
        # The event loop reports the loss in one of its next iterations.
        async with asyncio.timeout(_ABORT_TIMEOUT_S):
            await asyncio.Event().wait()

    def add(self, request: InFlightRequest) -> None:
        """Stop a request when the connection is lost."""
        self._requests.append(request)

    def remove(self, request: InFlightRequest) -> None:
        """Forget a request that has ended."""
        self._requests.remove(request)

    def stop_requests(self) -> None:
        """Stop all requests: the connection is lost."""
        for request in self._requests:
            request.stop(_StopReason.DISCONNECTED)


def find_connection(scope: Scope) -> Connection | None:
    """Return the connection of a request; None under another server than ours."""
    connection: Connection | None = scope.get("state", {}).get(CONNECTION_KEY)
    return connection


@asynccontextmanager
async def watch_connection(receive: Receive) -> AsyncIterator[Connection]:
    """Yield a connection whose requests stop on `http.disconnect`. The body must have been read."""
    connection = Connection()

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        connection.stop_requests()

    async with run_in_background(watch()):
        yield connection


class InFlightRequests:
    """The requests that this process is serving.

    Stopping a request does not stop the task of the mesh that it waits for.
    """

    def __init__(self) -> None:
        self._requests: set[InFlightRequest] = set()

    def __len__(self) -> int:
        return len(self._requests)

    def abort_all(self) -> None:
        """Stop all requests: this process stops serving."""
        for request in list(self._requests):
            request.stop(_StopReason.ABORTED)

    @asynccontextmanager
    async def track(
        self, connection: Connection, *, send_abort: Callable[[Exception | None], Awaitable[None]]
    ) -> AsyncIterator[None]:
        """Track the request that the block serves; leave the block when the client disconnects.

        If the request is ended first, `send_abort` ends the response with the error, or with None
        if the process stops serving.
        """
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("requests are served in a task")
        request = InFlightRequest(task)
        self._requests.add(request)
        connection.add(request)
        token = _current_request.set(request)
        try:
            yield
        except asyncio.CancelledError:
            if not request.absorb_cancellation():
                raise
            if request.reason is _StopReason.ABORTED:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_ABORT_TIMEOUT_S):
                        await send_abort(request.error)
        finally:
            _current_request.reset(token)
            connection.remove(request)
            self._requests.discard(request)
