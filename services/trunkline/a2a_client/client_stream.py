"""The stream of a turn's events, read in the background so that it may be left at any time."""

import asyncio
import weakref
from collections.abc import Awaitable, Callable, Coroutine
from typing import Final, Self, TypeAlias

from trunkline.a2a_client.answer_fold import EmitEvent
from trunkline.a2a_client.answers import ClientAnswer, ClientEvent
from trunkline.errors import PeerUnavailableError, UnsupportedOperationError

# Events that were received and not yet taken. A slow reader slows the agent's stream down.
_MAX_QUEUED_EVENTS: Final = 64

RunTurn: TypeAlias = Callable[[EmitEvent], Awaitable[ClientAnswer]]
_Queue: TypeAlias = asyncio.Queue[ClientEvent | Exception]


class ClientStream:
    """An iterator over the events of a turn. The last event is the answer.

    The turn is followed in a task of the client. It stops when the stream is closed or is no longer
    referenced, for example after `break`. That does not cancel the agent's task.
    """

    def __init__(
        self,
        run: RunTurn,
        start: Callable[[Coroutine[None, None, None]], asyncio.Task[None]],
        *,
        cursor: str = "",
    ) -> None:
        """Prepare a stream; `run` begins with the iteration, in a task that `start` makes."""
        self._run = run
        self._start = start
        self._queue: _Queue = asyncio.Queue(_MAX_QUEUED_EVENTS)
        self._stop: weakref.finalize[[], ClientStream] | None = None
        self._is_over = False
        self._answer: ClientAnswer | None = None
        self.cursor: str = cursor
        """Pass it to `Client.resume` to go on after the events that were taken so far."""
        self.task_id: str = ""
        """The task; empty before its first event."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ClientEvent:
        if self._is_over:
            raise StopAsyncIteration
        if self._stop is None:
            task = self._start(_pump(self._run, self._queue))
            self._stop = weakref.finalize(self, task.cancel)
            self._stop.atexit = False
        event = await self._queue.get()
        match event:
            case Exception():
                self._is_over = True
                raise event
            case ClientAnswer():
                self._answer = event
                self._is_over = True
            case _:
                self.cursor = event.cursor or self.cursor
        self.task_id = getattr(event, "task_id", "") or self.task_id
        return event

    @property
    def answer(self) -> ClientAnswer:
        """The answer, once the iteration has ended.

        Raises:
            UnsupportedOperationError: the iteration has not ended, or it was left.
        """
        if self._answer is None:
            problem = "it has not been read to its end; iterate over it or await `read_answer`"
            raise UnsupportedOperationError("the answer of a stream", problem)
        return self._answer

    async def read_answer(self) -> ClientAnswer:
        """Read the rest of the stream and return the answer."""
        async for _ in self:
            pass
        return self.answer

    async def aclose(self) -> None:
        """Stop following the turn."""
        self._is_over = True
        if self._stop is not None:
            self._stop()


async def _pump(run: RunTurn, queue: _Queue) -> None:
    """Pass a turn's events and its answer or error to a queue."""
    try:
        answer = await run(queue.put)
    except asyncio.CancelledError:
        # A reader in another task must not wait forever.
        if queue.full():
            queue.get_nowait()
        queue.put_nowait(PeerUnavailableError("the agent", "the client or the stream was closed"))
        raise
    except Exception as error:  # noqa: BLE001  raised where the stream is read
        await queue.put(error)
    else:
        await queue.put(answer)
