"""Answers last as long as somebody is there to read them, and as long as this process serves.

A server of ours tells when a connection is lost (`Connection`), which costs nothing while it
stands; under any other ASGI server a task of its own waits for that.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from enum import Enum
from typing import Any

from starlette.types import Receive, Scope

from trunkline.client import run_in_background

# Where a connection is found in a request's `scope["state"]`.
CONNECTION_KEY = "trunkline.connection"

# How long the last words of an answer that is cut may take.
_ABORT_TIMEOUT_S = 0.5


class _StopReason(Enum):
    LEFT = "the client has gone"
    CUT = "this process stops serving"


class _InFlightRequest:
    """A task that answers a request, and may be told to stop."""

    __slots__ = ("_task", "end")

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self._task = task
        self.end: _StopReason | None = None

    def stop(self, end: _StopReason) -> None:
        if self.end is None:
            self.end = end
            self._task.cancel()

    def is_stopped(self) -> bool:
        """Whether the cancellation at hand is ours and nobody else's."""
        return self.end is not None and self._task.uncancel() == 0


class Connection:
    """A client's connection: those who answer on it are stopped when it is lost."""

    __slots__ = ("_abort", "_answers")

    def __init__(self, abort: Callable[[], None] | None = None) -> None:
        """`abort` closes it at once."""
        self._answers: list[_InFlightRequest] = []
        self._abort = abort

    async def abort(self) -> None:
        """Close it in the middle of an answer, which ends whoever answers, if that can be done."""
        if self._abort is None:
            return
        self._abort()
        # The loss is told in one of the next turns of the loop.
        async with asyncio.timeout(_ABORT_TIMEOUT_S):
            await asyncio.Event().wait()

    def add(self, answer: _InFlightRequest) -> None:
        """Stop an answer when the connection is lost."""
        self._answers.append(answer)

    def remove(self, answer: _InFlightRequest) -> None:
        """Forget an answer: it is over."""
        self._answers.remove(answer)

    def stop_requests(self) -> None:
        """Stop whoever answers."""
        for answer in self._answers:
            answer.stop(_StopReason.LEFT)


class InFlightRequests:
    """The answers that this process is giving.

    The end of a request ends no task of the mesh, only the call that waits for it.
    """

    def __init__(self) -> None:
        self._open: set[_InFlightRequest] = set()

    def __len__(self) -> int:
        return len(self._open)

    async def run(
        self,
        scope: Scope,
        receive: Receive,
        work: Coroutine[Any, Any, None],
        *,
        send_abort: Callable[[], Awaitable[None]],
    ) -> None:
        """Run `work` until it is done or the client has gone. The body must have been read.

        When the process stops serving, `say_cut` says so in the place of what was still to come.
        """
        connection = scope.get("state", {}).get(CONNECTION_KEY)
        if connection is not None:
            await self.run_on(connection, work, send_abort=send_abort)
            return
        connection = Connection()
        async with run_in_background(_watch_disconnect(receive, connection)):
            await self.run_on(connection, work, send_abort=send_abort)

    def abort_all(self) -> None:
        """Stop all that are under way: this process stops serving."""
        for answer in list(self._open):
            answer.stop(_StopReason.CUT)

    async def run_on(
        self,
        connection: Connection,
        work: Coroutine[Any, Any, None],
        *,
        send_abort: Callable[[], Awaitable[None]],
    ) -> None:
        """Do what `give` does, on a connection whose loss somebody else tells."""
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("an answer is given in a task")
        answer = _InFlightRequest(task)
        self._open.add(answer)
        connection.add(answer)
        try:
            await work
        except asyncio.CancelledError:
            if not answer.is_stopped():
                raise
            if answer.end is _StopReason.CUT:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_ABORT_TIMEOUT_S):
                        await send_abort()
        finally:
            connection.remove(answer)
            self._open.discard(answer)


async def _watch_disconnect(receive: Receive, connection: Connection) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    connection.stop_requests()
