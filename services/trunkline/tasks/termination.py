"""Terminates tasks from outside their code: for cancels, deadlines and host shutdown."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
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
from trunkline.json_values import update_struct
from trunkline.tasks.agent import Agent, CancelableAgent, PausableAgent, may_run_again
from trunkline.tasks.content import build_agent_message
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, State, build_status_event
from trunkline.tasks.rewind import PLANNED_STOP_KEY
from trunkline.tasks.slots import TaskSlot, TaskSlots
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.tasks.turn_state import turn_traceparent
from trunkline.v1 import event_pb2, task_pb2

logger = logging.getLogger(__name__)

CancelChild = Callable[[str, str], Awaitable[None]]
"""Cancels a task on any host, by its id and account."""

READ_RETRY_S: Final = 0.5
"""Pause in seconds between attempts to read a journal that can't be read."""
# Short, because after a start a host may be unreachable only until the registry is read.
_CANCEL_RETRY_S: Final = 0.1


class TaskTerminator:
    """Ends tasks in place of their code. The first caller sets the state; later ones wait.

    If the code has ended the task before, that state remains.
    """

    def __init__(
        self,
        group: asyncio.TaskGroup,
        slots: TaskSlots,
        *,
        load: Callable[[str], Awaitable[TurnRuntime]],
        cancel_child: CancelChild | None,
        agents: Mapping[str, Agent],
    ) -> None:
        """`load` returns the runtime of a task whose slot has none yet."""
        self._group = group
        self._slots = slots
        self._load = load
        self._cancel_child = cancel_child
        self._agents = agents

    def terminate(
        self,
        slot: TaskSlot,
        state: task_pb2.TaskState.ValueType,
        reason: str,
        *,
        grace_s: float,
        error_type: str = telemetry.CANCELLED,
    ) -> asyncio.Task[None] | None:
        """Stop the slot and end its task; return the asyncio task that does so.

        The code has `grace_s` to clean up; children are canceled in the meantime. A repeated call
        returns the first call's asyncio task. Returns None if the code has ended the task.
        `error_type` is that of the code's spans.
        """
        if slot.termination is None:
            if slot.runtime is not None and slot.runtime.state in TERMINAL:
                return None
            slot.stop(error_type)
            slot.termination = self._group.create_task(self._end(slot, state, reason, grace_s))
        return slot.termination

    async def cancel_children(
        self,
        runtime: TurnRuntime,
        tried: set[str] | None = None,
        *,
        retry_unreachable: bool = False,
    ) -> None:
        """Cancel the unfinished children that are not in `tried`, and add them to it.

        `retry_unreachable` repeats the cancel of a child while its host can't be reached.
        """
        tried = set() if tried is None else tried
        async with asyncio.TaskGroup() as group:
            for child in runtime.children.all:
                if child.task_id not in tried:
                    tried.add(child.task_id)
                    cancel = self._cancel_one_child(
                        runtime, child, retry_unreachable=retry_unreachable
                    )
                    group.create_task(cancel)

    async def _end(
        self, slot: TaskSlot, state: task_pb2.TaskState.ValueType, reason: str, grace_s: float
    ) -> None:
        try:
            runtime = slot.runtime or await self._load_context(slot)
            runtime.begin_cancel()
            if not telemetry.current_trace_id():
                # No call is in progress: a timer fired.
                telemetry.continue_trace(turn_traceparent(runtime.snapshot))
            runtime.continue_for_user()
            await self._wait_for_cleanup(slot, runtime, grace_s)
            # The code may have set another runtime in the meantime.
            runtime = slot.runtime or runtime
            if not runtime.exists:
                return
            if runtime.state in TERMINAL:
                await runtime.flush()
            else:
                await runtime.end(state, reason)
        except (FencedError, JournalUnavailableError) as lost:
            # The next owner of the task ends it.
            logger.error("task.lost", extra={"task_id": slot.task_id, "reason": lost.reason})
        except TrunklineError as error:
            extra = {"task_id": slot.task_id, "reason": error.reason}
            logger.exception("task.not_ended", extra=extra)
        finally:
            self._slots.release(slot)

    async def _load_context(self, slot: TaskSlot) -> TurnRuntime:
        """Load the task's runtime. Retries until the journal can be read."""
        while True:
            try:
                slot.runtime = await self._load(slot.task_id)
            except JournalUnavailableError as error:
                logger.warning(
                    "task.not_read", extra={"task_id": slot.task_id, "problem": str(error)}
                )
                await asyncio.sleep(READ_RETRY_S)
            else:
                return slot.runtime

    async def _wait_for_cleanup(self, slot: TaskSlot, runtime: TurnRuntime, grace_s: float) -> None:
        """Wait, for `grace_s` at most, until the code has ended and its children are canceled."""
        tried: set[str] = set()
        try:
            async with asyncio.timeout(grace_s), asyncio.TaskGroup() as group:
                group.create_task(self.cancel_children(runtime, tried))
                agent = self._agents.get(runtime.agent)
                if runtime.state in INTERRUPTED and isinstance(agent, CancelableAgent):
                    group.create_task(_cancel_waiting(agent, runtime))
                await slot.runner_done.wait()
                # The code may have called more children while it cleaned up.
                group.create_task(self.cancel_children(runtime, tried))
        except TimeoutError:
            logger.warning("agent.ignores_cancel", extra={"task_id": slot.task_id})

    async def _cancel_one_child(
        self, runtime: TurnRuntime, child: event_pb2.ChildStarted, *, retry_unreachable: bool
    ) -> None:
        if self._cancel_child is None:
            return
        state = State.TASK_STATE_CANCELED
        try:
            while True:
                try:
                    await self._cancel_child(child.task_id, runtime.account)
                    break
                except PeerUnavailableError:
                    if not retry_unreachable:
                        raise
                await asyncio.sleep(_CANCEL_RETRY_S)
        except TaskNotFoundError:
            # The call was canceled before it created the child.
            runtime.children.remove(child.task_id)
            return
        except TaskNotCancelableError as error:
            name = f"TASK_STATE_{error.state.upper().replace('-', '_')}"
            if name not in State.keys():  # noqa: SIM118  an enum's wrapper, no mapping
                return
            state = State.Value(name)
        except TrunklineError as error:
            # The child can't be reached. `OrphanedChildren` retries once its parent has ended.
            extra = {"task_id": child.task_id, "reason": error.reason}
            logger.info("child.not_canceled", extra=extra)
            return
        if child.task_id in runtime.children:
            finished = event_pb2.ChildFinished(
                task_id=child.task_id, agent=child.agent, state=state
            )
            with suppress(FencedError, JournalUnavailableError):
                await runtime.record(event_pb2.Event(child_finished=finished))


async def _cancel_waiting(agent: CancelableAgent, runtime: TurnRuntime) -> None:
    try:
        await agent.cancel_waiting(runtime)
    except Exception:
        # An agent's code may raise anything, and the task ends all the same.
        logger.exception("agent.failed", extra={"task_id": runtime.id, "agent": runtime.agent})


_SHUTDOWN_REASON: Final = "the host shut down; send it again"


async def drain(
    slots: TaskSlots,
    terminator: TaskTerminator,
    agents: Mapping[str, Agent],
    *,
    grace_s: float,
    cancel_grace_s: float,
    lost: asyncio.Event,
) -> None:
    """Wait `grace_s` for running tasks, then leave those that remain to the next host.

    Tasks that may be paused are not waited for. Tasks that the next host would not run again fail,
    unless the journal is lost, and so do tasks of which an approved call is in progress.
    """
    await _leave(
        [slot for slot in slots.all() if slot.runtime and may_leave(slot.runtime, agents)],
        limit_s=cancel_grace_s,
    )
    with suppress(TimeoutError):
        async with asyncio.timeout(grace_s):
            while remaining := slots.all():
                await _wait_released(remaining)
    remaining = slots.all()
    left: list[TaskSlot] = []
    for slot in remaining:
        if slot.runtime is not None and slot.runtime.state in INTERRUPTED:
            slot.stop()  # The question is journaled, and can be answered after a restart.
        elif slot.runtime is not None and _runs_again(slot.runtime, agents):
            left.append(slot)
        elif not lost.is_set():
            reason = _shutdown_reason(slot.runtime)
            terminator.terminate(slot, State.TASK_STATE_FAILED, reason, grace_s=cancel_grace_s)
    await _leave(left, limit_s=cancel_grace_s)
    with suppress(TimeoutError):
        async with asyncio.timeout(cancel_grace_s + 1):
            await _wait_released(remaining)


def may_leave(runtime: TurnRuntime, agents: Mapping[str, Agent]) -> bool:
    """Return whether a running turn can be left to the next host, instead of failing it."""
    agent = agents.get(runtime.agent)
    is_pausable = isinstance(agent, PausableAgent) and agent.is_pausable
    return is_pausable and _is_open(runtime)


def _runs_again(runtime: TurnRuntime, agents: Mapping[str, Agent]) -> bool:
    can_run = may_run_again(agents.get(runtime.agent), runtime.state)
    return can_run and _is_open(runtime) and not runtime.approved_calls()


def _is_open(runtime: TurnRuntime) -> bool:
    return runtime.exists and not runtime.is_over


async def _leave(slots: Sequence[TaskSlot], *, limit_s: float) -> None:
    """Leave turns to the next host, and journal that this was planned."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s), asyncio.TaskGroup() as group:
            for slot in slots:
                is_new = slot.runtime is not None and not slot.runtime.pause.is_leaving
                slot.leave()
                if is_new and slot.runtime is not None:
                    group.create_task(_mark_planned_stop(slot.runtime))


async def _mark_planned_stop(runtime: TurnRuntime) -> None:
    """Journal that a turn's attempt does not count for the limit: it did not crash its host."""
    # A turn whose code has not begun has no attempt that could count.
    if _is_open(runtime) and runtime.state == State.TASK_STATE_WORKING:
        with suppress(FencedError, JournalUnavailableError):
            event = build_status_event(runtime.state)
            message = build_agent_message(
                "its host shuts down; the next one continues",
                task_id=runtime.id,
                context_id=runtime.context_id,
            )
            event.status.status.message.CopyFrom(message)
            update_struct(event.status.metadata, {PLANNED_STOP_KEY: True})
            await runtime.record(event)


async def _wait_released(slots: Sequence[TaskSlot]) -> None:
    for slot in slots:
        await slot.released.wait()


def _shutdown_reason(runtime: TurnRuntime | None) -> str:
    """Return the reason for the status. It names approved calls, which may have taken effect."""
    approved = runtime.approved_calls() if runtime is not None else ()
    if not approved:
        return _SHUTDOWN_REASON
    return f"the host shut down while it called {', '.join(approved)}: see whether that was done"
