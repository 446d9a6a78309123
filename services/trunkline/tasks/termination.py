"""Terminates tasks from outside their code: for cancels, deadlines and host shutdown."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Final

from trunkline.core.json_values import update_struct
from trunkline.errors import (
    FencedError,
    JournalUnavailableError,
    PeerUnavailableError,
    TaskNotCancelableError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.observe import telemetry
from trunkline.tasks.agent import Agent, may_run_again
from trunkline.tasks.content import build_agent_message
from trunkline.tasks.execution import TaskExecution, TaskExecutions
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, State, build_status_event
from trunkline.tasks.rewind import PLANNED_STOP_KEY
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.tasks.turn_state import turn_traceparent
from trunkline.v1 import event_pb2, task_pb2

logger = logging.getLogger(__name__)

READ_RETRY_S: Final = 0.5
"""Pause in seconds between attempts to read a journal that can't be read."""
# Short, because after a start a host may be unreachable only until the registry is read.
_CANCEL_RETRY_S: Final = 0.1


class TaskTerminator:
    """Ends tasks in place of their code. The first caller sets the state; later callers wait.

    If the code has ended the task before, that state remains.
    """

    def __init__(self, group: asyncio.TaskGroup, executions: TaskExecutions) -> None:
        """The terminations run in `group`."""
        self._group = group
        self._executions = executions
        self._agents = executions.resources.host.agents
        self._settings = executions.resources.host.settings
        self._cancel_child = executions.resources.host.others.cancel_child
        # Executions whose end a drain has not seen, because of their code or the journal.
        self._overdue: set[TaskExecution] = set()

    def terminate(
        self,
        execution: TaskExecution,
        state: task_pb2.TaskState.ValueType,
        reason: str,
        *,
        grace_s: float,
        error_type: str = telemetry.CANCELLED,
    ) -> asyncio.Task[None] | None:
        """Stop an execution and end its task; return the asyncio task that does so.

        The code has `grace_s` to clean up; children are canceled in the meantime. A repeated call
        returns the first call's asyncio task. Returns None if the code has ended the task.
        `error_type` is for the spans of the code.
        """
        if execution.termination is None:
            if execution.turn is not None and execution.turn.state_value in TERMINAL:
                return None
            execution.stop(error_type)
            execution.termination = self._group.create_task(
                self._end(execution, state, reason, grace_s)
            )
        return execution.termination

    async def cancel_children(
        self,
        turn: TurnRuntime,
        tried: set[str] | None = None,
        *,
        retry_unreachable: bool = False,
    ) -> None:
        """Cancel the unfinished children that are not in `tried`, and add them to it.

        `retry_unreachable` repeats the cancel of a child while its host can't be reached.
        """
        tried = set() if tried is None else tried
        async with asyncio.TaskGroup() as group:
            for child in turn.children.all:
                if child.task_id not in tried:
                    tried.add(child.task_id)
                    cancel = self._cancel_one_child(
                        turn, child, retry_unreachable=retry_unreachable
                    )
                    group.create_task(cancel)

    async def drain(self, grace_s: float, *, lost: asyncio.Event) -> None:
        """Wait `grace_s` for running tasks, then leave the remaining tasks to the next host.

        Tasks that may be paused are not waited for. Tasks that the next host would not run again
        fail, unless the journal is lost, and so do tasks of which an approved call is in progress.
        If code does not end, or an end can't be written, only the first drain waits for it.
        """
        executions, cancel_grace_s = self._executions, self._settings.cancel_grace_s
        await _leave(
            [each for each in executions.all() if each.turn and may_leave(each.turn, self._agents)],
            limit_s=cancel_grace_s,
        )
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while remaining := executions.all():
                    await _wait_released(remaining)
        remaining = [each for each in executions.all() if each not in self._overdue]
        leaving: list[TaskExecution] = []
        for execution in remaining:
            turn = execution.turn
            if turn is not None and turn.state_value in INTERRUPTED:
                execution.stop()  # The question is journaled, and can be answered after a restart.
            elif turn is not None and _runs_again(turn, self._agents):
                leaving.append(execution)
            elif not lost.is_set():
                reason = _shutdown_reason(turn)
                self.terminate(execution, State.TASK_STATE_FAILED, reason, grace_s=cancel_grace_s)
        await _leave(leaving, limit_s=cancel_grace_s)
        with suppress(TimeoutError):
            async with asyncio.timeout(cancel_grace_s + 1):
                await _wait_released(remaining)
        self._overdue.update(each for each in remaining if not each.released.is_set())

    async def _end(
        self,
        execution: TaskExecution,
        state: task_pb2.TaskState.ValueType,
        reason: str,
        grace_s: float,
    ) -> None:
        try:
            turn = execution.turn or await self._load_turn(execution)
            turn.begin_cancel()
            if not telemetry.current_trace_id():
                # No call is in progress: a timer fired.
                telemetry.continue_trace(turn_traceparent(turn.snapshot))
            turn.continue_for_user()
            await self._wait_for_cleanup(execution, turn, grace_s)
            # The code may have set another turn in the meantime.
            turn = execution.turn or turn
            if not turn.exists:
                return
            if turn.state_value in TERMINAL:
                await turn.flush()
            else:
                await turn.end(state, reason)
        except (FencedError, JournalUnavailableError) as lost:
            # The next owner of the task ends it.
            logger.error("task.lost", extra={"task_id": execution.task_id, "reason": lost.reason})
        except TrunklineError as error:
            extra = {"task_id": execution.task_id, "reason": error.reason}
            logger.exception("task.not_ended", extra=extra)
        finally:
            self._executions.release(execution)

    async def _load_turn(self, execution: TaskExecution) -> TurnRuntime:
        """Load the turn of a task. Retries until the journal can be read."""
        while True:
            try:
                execution.turn = await self._executions.load_turn(execution.task_id)
            except JournalUnavailableError as error:
                logger.warning(
                    "task.not_read", extra={"task_id": execution.task_id, "problem": str(error)}
                )
                await asyncio.sleep(READ_RETRY_S)
            else:
                return execution.turn

    async def _wait_for_cleanup(
        self, execution: TaskExecution, turn: TurnRuntime, grace_s: float
    ) -> None:
        """Wait, for `grace_s` at most, until the code has ended and its children are canceled."""
        tried: set[str] = set()
        try:
            async with asyncio.timeout(grace_s), asyncio.TaskGroup() as group:
                group.create_task(self.cancel_children(turn, tried))
                agent = self._agents.get(turn.agent)
                if turn.state_value in INTERRUPTED and agent is not None:
                    group.create_task(_cancel_waiting(agent, turn))
                await execution.runner_done.wait()
                # The code may have called more children while it cleaned up.
                group.create_task(self.cancel_children(turn, tried))
        except TimeoutError:
            logger.warning("agent.ignores_cancel", extra={"task_id": execution.task_id})

    async def _cancel_one_child(
        self, turn: TurnRuntime, child: event_pb2.ChildStarted, *, retry_unreachable: bool
    ) -> None:
        if self._cancel_child is None:
            return
        state = State.TASK_STATE_CANCELED
        try:
            while True:
                try:
                    await self._cancel_child(child.task_id, turn.account)
                    break
                except PeerUnavailableError:
                    if not retry_unreachable:
                        raise
                await asyncio.sleep(_CANCEL_RETRY_S)
        except TaskNotFoundError:
            # The call was canceled before it created the child.
            turn.children.remove(child.task_id)
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
        if child.task_id in turn.children:
            finished = event_pb2.ChildFinished(
                task_id=child.task_id, agent=child.agent, state=state
            )
            with suppress(FencedError, JournalUnavailableError):
                await turn.record(event_pb2.Event(child_finished=finished))


async def _cancel_waiting(agent: Agent, turn: TurnRuntime) -> None:
    try:
        await agent.cancel_waiting(turn)
    except Exception:
        # An agent's code may raise anything, and the task ends all the same.
        logger.exception("agent.failed", extra={"task_id": turn.id, "agent": turn.agent})


_SHUTDOWN_REASON: Final = "the host shut down; send it again"


def may_leave(turn: TurnRuntime, agents: Mapping[str, Agent]) -> bool:
    """Return whether a running turn can be left to the next host, instead of failing it."""
    agent = agents.get(turn.agent)
    return agent is not None and agent.is_pausable and _is_open(turn)


def _runs_again(turn: TurnRuntime, agents: Mapping[str, Agent]) -> bool:
    can_run = may_run_again(agents.get(turn.agent), turn.state_value)
    return can_run and _is_open(turn) and not turn.approved_calls()


def _is_open(turn: TurnRuntime) -> bool:
    return turn.exists and not turn.is_over


async def _leave(executions: Sequence[TaskExecution], *, limit_s: float) -> None:
    """Leave turns to the next host, and journal that this was planned."""
    with suppress(TimeoutError):
        async with asyncio.timeout(limit_s), asyncio.TaskGroup() as group:
            for execution in executions:
                is_new = execution.turn is not None and not execution.turn.pause.is_leaving
                execution.leave()
                if is_new and execution.turn is not None:
                    group.create_task(_mark_planned_stop(execution.turn))


async def _mark_planned_stop(turn: TurnRuntime) -> None:
    """Journal that a turn's attempt does not count for the limit: it did not crash its host."""
    # A turn whose code has not begun has no attempt that could count.
    if _is_open(turn) and turn.state_value == State.TASK_STATE_WORKING:
        with suppress(FencedError, JournalUnavailableError):
            event = build_status_event(turn.state_value)
            message = build_agent_message(
                "its host shuts down; the next one continues",
                task_id=turn.id,
                context_id=turn.context_id,
            )
            event.status.status.message.CopyFrom(message)
            update_struct(event.status.metadata, {PLANNED_STOP_KEY: True})
            await turn.record(event)


async def _wait_released(executions: Sequence[TaskExecution]) -> None:
    for execution in executions:
        await execution.released.wait()


def _shutdown_reason(turn: TurnRuntime | None) -> str:
    """Return the reason for the status. It names approved calls, which may have taken effect."""
    approved = turn.approved_calls() if turn is not None else ()
    if not approved:
        return _SHUTDOWN_REASON
    return f"the host shut down while it called {', '.join(approved)}: see whether that was done"
