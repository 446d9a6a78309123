"""The text of a child while it is written, for the code that asked it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Final

from trunkline.agents.calls.answer_reader import Pieces
from trunkline.core.task_states import TaskState
from trunkline.errors import AgentCallError, UnsupportedOperationError
from trunkline.tasks.calls import AgentAnswer

# The text that the reader has not taken yet, in pieces.
_MAX_PIECES: Final = 64


class ChildStream:
    """The text of a child while it is written; see `trunkline.tasks.calls.AgentStream`."""

    def __init__(self, ask: Callable[[Pieces], Coroutine[Any, Any, AgentAnswer]]) -> None:
        """`ask` makes the call and puts the text to a queue."""
        self._ask = ask
        self._pieces = Pieces(_MAX_PIECES)
        self._call: asyncio.Task[None] | None = None
        self._answer: AgentAnswer | None = None
        self._failure: BaseException | None = None

    @property
    def answer(self) -> AgentAnswer:
        """The answer, once the iteration has ended."""
        if self._answer is None:
            problem = "the agent is still writing; iterate over the stream to its end"
            raise UnsupportedOperationError("the answer of a stream", problem)
        return self._answer

    async def __aiter__(self) -> AsyncIterator[str]:
        """Make the call and yield its text."""
        # Not in a task group, which can't be left by a reader that stops early. `close` cancels it.
        self._call = asyncio.create_task(self._run())  # noqa: TID251
        is_empty = True
        while (piece := await self._pieces.get()) is not None:
            is_empty = False
            yield piece
        if self._failure is not None:
            raise self._failure
        self._check_given()
        # The text of a direct reply or of a status, or one that another agent wrote.
        if is_empty and self._answer is not None and self._answer.state is TaskState.COMPLETED:
            yield self._answer.text

    async def close(self) -> None:
        """Cancel the call unless it has ended."""
        if self._call is not None:
            self._call.cancel()
            await asyncio.wait([self._call])

    def _check_given(self) -> None:
        """Raise an error if the text that was given is not that of the answer."""
        answer = self._answer
        if (
            answer is None
            or answer.state is not TaskState.COMPLETED
            or not self._pieces.given.is_stale
        ):
            return
        text = (
            f"agent {answer.agent!r} ran again and wrote something else than it had streamed; "
            "the answer of the stream has all of it"
        )
        raise AgentCallError(answer.agent, answer.state, text, answer.task_id)

    async def _run(self) -> None:
        try:
            self._answer = await self._ask(self._pieces)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001  raised to the reader
            self._failure = error
        await self._pieces.put(None)
