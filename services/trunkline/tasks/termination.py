"""Ends tasks over the head of their code: canceled, past their deadline, or with their host."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from trunkline import telemetry
from trunkline.errors import (
    FencedError,
    JournalUnavailableError,
    PeerUnavailableError,
    TaskNotCancelableError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, State
from trunkline.tasks.slots import TaskSlot, TaskSlots
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import event_pb2, task_pb2

logger = logging.getLogger(__name__)

# Cancels a task of any host on behalf of an account: (task id, account).
CancelChild = Callable[[str, str], Awaitable[None]]

# A journal that can't be read is asked again after this.
READ_RETRY_S: Final = 0.5
# A host that can't be reached may be: the mesh's picture is just being read, after a start.
_REACH_AGAIN_S: Final = 0.1


class TaskTerminator:
    """Ends tasks whose code has not ended them. The first to ask decides how; others wait for it.

    What the code had decided before that holds: the outcome of a race is the same for whoever
    asked and for every reader.
    """

    def __init__(
        self,
        group: asyncio.TaskGroup,
        runs: TaskSlots,
        *,
        load: Callable[[str], Awaitable[TurnRuntime]],
        cancel_child: CancelChild | None,
    ) -> None:
        """`load` returns a context for a task whose place is held and that has none yet."""
        self._group = group
        self._runs = runs
        self._load = load
        self._cancel_child = cancel_child

    def terminate(
        self, run: TaskSlot, state: task_pb2.TaskState.ValueType, reason: str, *, grace_s: float
    ) -> asyncio.Task[None] | None:
        """Stop what holds the task's place and end the task; the task that does so, now or before.

        The code has `grace_s` to clean up, and children are canceled meanwhile. None: the code
        has ended the task itself.
        """
        if run.termination is None:
            if run.context is not None and run.context.state in TERMINAL:
                return None
            run.stop()
            run.termination = self._group.create_task(self._end(run, state, reason, grace_s))
        return run.termination

    async def cancel_children(
        self, context: TurnRuntime, tried: set[str] | None = None, *, is_patient: bool = False
    ) -> None:
        """Cancel all children that have not ended, but for those that were tried.

        Whoever is patient tries those whose host can't be reached again and again.
        """
        tried = set() if tried is None else tried
        async with asyncio.TaskGroup() as group:
            for child in context.children.all:
                if child.task_id not in tried:
                    tried.add(child.task_id)
                    cancel = self._cancel_one_child(context, child, is_patient=is_patient)
                    group.create_task(cancel)

    async def _end(
        self, run: TaskSlot, state: task_pb2.TaskState.ValueType, reason: str, grace_s: float
    ) -> None:
        try:
            context = run.context or await self._context_of(run)
            context.begin_cancel()
            if not telemetry.current_trace_id():
                # Nobody called for this, a clock did.
                telemetry.continue_trace(context.snapshot.traceparent)
            await self._let_go(run, context, grace_s)
            # What the code read or opened meanwhile is what is to be ended.
            context = run.context or context
            if not context.exists:
                return
            if context.state in TERMINAL:
                await context.flush()
            else:
                await context.end(state, reason)
        except (FencedError, JournalUnavailableError) as lost:
            # Whoever owns the task next says how it ends.
            logger.error("task.lost", extra={"task_id": run.task_id, "reason": lost.reason})
        except TrunklineError as error:
            extra = {"task_id": run.task_id, "reason": error.reason}
            logger.exception("task.not_ended", extra=extra)
        finally:
            self._runs.release(run)

    async def _context_of(self, run: TaskSlot) -> TurnRuntime:
        """Read the task's context; not being able to is no reason to leave it as it is."""
        while True:
            try:
                run.context = await self._load(run.task_id)
            except JournalUnavailableError as error:
                logger.warning(
                    "task.not_read", extra={"task_id": run.task_id, "problem": str(error)}
                )
                await asyncio.sleep(READ_RETRY_S)
            else:
                return run.context

    async def _let_go(self, run: TaskSlot, context: TurnRuntime, grace_s: float) -> None:
        """Wait until the code has ended and its children are canceled, within the grace."""
        tried: set[str] = set()
        try:
            async with asyncio.timeout(grace_s), asyncio.TaskGroup() as group:
                group.create_task(self.cancel_children(context, tried))
                await run.runner_done.wait()
                # Those that it was just about to call.
                group.create_task(self.cancel_children(context, tried))
        except TimeoutError:
            logger.warning("agent.ignores_cancel", extra={"task_id": run.task_id})

    async def _cancel_one_child(
        self, context: TurnRuntime, child: event_pb2.ChildStarted, *, is_patient: bool
    ) -> None:
        if self._cancel_child is None:
            return
        state = State.TASK_STATE_CANCELED
        try:
            while True:
                try:
                    await self._cancel_child(child.task_id, context.account)
                    break
                except PeerUnavailableError:
                    if not is_patient:
                        raise
                await asyncio.sleep(_REACH_AGAIN_S)
        except TaskNotFoundError:
            # The call that makes it was canceled before it was made.
            context.children.forget(child.task_id)
            return
        except TaskNotCancelableError as error:
            name = f"TASK_STATE_{error.state.upper().replace('-', '_')}"
            if name not in State.keys():  # noqa: SIM118  an enum's wrapper, no mapping
                return
            state = State.Value(name)
        except TrunklineError as error:
            # It can't be reached: it is minded as a stray, once its parent has ended.
            extra = {"task_id": child.task_id, "reason": error.reason}
            logger.info("child.not_canceled", extra=extra)
            return
        if child.task_id in context.children:
            finished = event_pb2.ChildFinished(
                task_id=child.task_id, agent=child.agent, state=state
            )
            with contextlib.suppress(FencedError, JournalUnavailableError):
                await context.record(event_pb2.Event(child_finished=finished))


_LEFT_OVER: Final = "the host shut down; send it again"


async def drain(
    runs: TaskSlots,
    endings: TaskTerminator,
    *,
    grace_s: float,
    cancel_grace_s: float,
    lost: asyncio.Event,
) -> None:
    """Give what runs `grace_s` to end, then fail what is left, unless the journal is `lost`."""
    with suppress(TimeoutError):
        async with asyncio.timeout(grace_s):
            while left := runs.all():
                await _all_done(left)
    left = runs.all()
    for run in left:
        if run.context is not None and run.context.state in INTERRUPTED:
            run.stop()  # The question is out, and can still be answered.
        elif not lost.is_set():
            reason = _left_over(run.context)
            endings.terminate(run, State.TASK_STATE_FAILED, reason, grace_s=cancel_grace_s)
    with suppress(TimeoutError):
        async with asyncio.timeout(cancel_grace_s + 1):
            await _all_done(left)


async def _all_done(runs: Sequence[TaskSlot]) -> None:
    for run in runs:
        await run.released.wait()


def _left_over(context: TurnRuntime | None) -> str:
    """Say that the host shut down, and what to do then: what was approved may have been done."""
    approved = context.approved_calls() if context is not None else ()
    if not approved:
        return _LEFT_OVER
    return f"the host shut down while it called {', '.join(approved)}: see whether that was done"
