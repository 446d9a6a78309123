"""Recovers the unfinished tasks of a journal: resumes, restarts or fails each of them."""

import asyncio
import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from trunkline.core.json_values import has_member
from trunkline.errors import FencedError, JournalUnavailableError
from trunkline.journal.events import Draft, EventKind, event_count, event_kind, parse_header
from trunkline.journal.journal import Journal, TaskRow
from trunkline.observe import telemetry
from trunkline.tasks.agent import Agent, may_have_started, may_run_again
from trunkline.tasks.deadlines import DEADLINE_PASSED, DeadlineTimer
from trunkline.tasks.execution import ExecutionState, TaskExecution, TaskExecutions
from trunkline.tasks.lifecycle import INTERRUPTED, State
from trunkline.tasks.rewind import ATTEMPT_KEY, PLANNED_STOP_KEY, Attempt, build_rewind_drafts
from trunkline.tasks.termination import READ_RETRY_S, TaskTerminator
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.tasks.turn_state import turn_traceparent
from trunkline.v1 import event_pb2

logger = logging.getLogger(__name__)

_ABANDONED: Final = "the host stopped while it worked on this; send it again"
_TURN_START_KINDS: Final = EventKind.CREATED.bit | EventKind.TURN_STARTED.bit
_MAX_CONCURRENT_READS: Final = 16

ATTEMPT_LIMIT: Final = 3
"""The number of attempts at one turn. A turn that runs again after a failure of its host is a
further attempt. After the last one, the task fails. Attempts that ended because their host was shut
down do not count."""


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """The current turn of a task, read from its events."""

    start: int
    """Sequence of the event that opened the turn."""
    attempts: int
    """Number of attempts at the turn so far."""
    planned_stops: int
    """Number of attempts that ended because their host was shut down."""


async def read_turn(journal: Journal, task_id: str) -> TurnRecord:
    """Read the start and the attempts of a task's current turn from its events."""
    cursor = start = attempts = planned_stops = 0
    while batches := journal.read(task_id, cursor):
        for sealed in batches:
            header = parse_header(sealed)
            if header.kinds & (_TURN_START_KINDS | EventKind.STATUS.bit):
                sequence = header.first_sequence
                for event in event_pb2.EventBatch.FromString(sealed).events:
                    if event_kind(event).bit & _TURN_START_KINDS:
                        start, attempts, planned_stops = sequence, 1, 0
                    elif event.HasField("status"):
                        attempts += has_member(event.status.metadata, ATTEMPT_KEY)
                        planned_stops += has_member(event.status.metadata, PLANNED_STOP_KEY)
                    sequence += event_count(event)
            cursor = header.first_sequence + header.count - 1
        await asyncio.sleep(0)
    return TurnRecord(start, attempts, planned_stops)


class Recovery:
    """Recovers the tasks that the last host of a journal left unfinished.

    A task whose code has not started runs. Otherwise the agent's declaration decides:

    - `resumable`: the code runs again, and rewinds the turn itself.
    - `repeatable`: the turn is rewound to its start and runs again. Children of numbered calls run
      on, because the repeated calls follow them; others are canceled.
    - neither: the task fails.

    A cancel that was not journaled has no effect. Its caller got no response and may repeat it.
    """

    def __init__(
        self, executions: TaskExecutions, terminator: TaskTerminator, deadlines: DeadlineTimer
    ) -> None:
        self._journal = executions.resources.journal
        self._agents = executions.resources.host.agents
        self._settings = executions.resources.host.settings
        self._executions = executions
        self._terminator = terminator
        self._deadlines = deadlines
        self._read_limit = asyncio.Semaphore(_MAX_CONCURRENT_READS)

    def reserve(self) -> Sequence[tuple[TaskRow, TaskExecution | None]]:
        """Return the unfinished tasks, and the executions of the tasks that were running.

        Call it before any call can take their executions.
        """
        return [
            (row, None if row.state in INTERRUPTED else self._executions.reserve(row.task_id))
            for row in self._journal.list_unfinished()
        ]

    async def recover(self, reserved: Sequence[tuple[TaskRow, TaskExecution | None]]) -> None:
        """Resume or fail the tasks that were running, and set the deadlines of the others."""
        for row, execution in reserved:
            if execution is None or execution.state is not ExecutionState.RESERVED:
                await self._schedule_deadline(row)
                continue
            logger.warning("task.abandoned", extra={"task_id": row.task_id, "agent": row.agent})
            agent = self._agents.get(row.agent)
            if agent is not None:
                self._executions.admit(execution, agent, row.account)
            self._executions.run(execution, partial(self._open, row, execution))
            await asyncio.sleep(0)

    async def _schedule_deadline(self, row: TaskRow) -> None:
        """Set the deadline of a waiting task, from its created event."""
        with suppress(FencedError, JournalUnavailableError):
            (first, *_) = self._journal.read(row.task_id, 0, limit_bytes=1)
            created = event_pb2.EventBatch.FromString(first).events[0].created
            if created.HasField("deadline"):
                self._deadlines.add(row.task_id, created.deadline.ToDatetime(tzinfo=UTC))
        await asyncio.sleep(0)

    async def _open(self, row: TaskRow, execution: TaskExecution) -> bool:
        """Prepare a task for its agent; return False if the task has ended instead."""
        while True:
            try:
                return await self._reopen(row, execution)
            except JournalUnavailableError as error:
                if execution.turn is not None and execution.turn.is_lost:
                    return False
                extra = {"task_id": row.task_id, "problem": error.problem}
                logger.warning("task.not_read", extra=extra)
                await asyncio.sleep(READ_RETRY_S)
            except FencedError:
                return False

    async def _reopen(self, row: TaskRow, execution: TaskExecution) -> bool:
        agent = self._agents.get(row.agent)
        async with self._read_limit:
            turn, drafts, crashes = await self._read_task(row, agent)
        execution.turn = turn
        telemetry.continue_trace(turn_traceparent(turn.snapshot))
        turn.continue_for_user()
        reason = self._find_failure_reason(agent, turn, crashes)
        if reason:
            turn.begin_cancel()
            await self._cancel_children(turn)
            await turn.end(State.TASK_STATE_FAILED, reason)
            return False
        if turn.deadline is not None:
            self._deadlines.add(turn.id, turn.deadline)
        if may_have_started(agent, turn.state_value):
            if _is_restarted_from_turn_start(agent):
                followed = [child.task_id for child in turn.children.all if child.step_id]
                await self._cancel_children(turn, followed)
            await turn.start_attempt(drafts)
        return True

    async def _read_task(
        self, row: TaskRow, agent: Agent | None
    ) -> tuple[TurnRuntime, Sequence[Draft], int]:
        """Return the turn, the events that rewind it first, and how many attempts crashed."""
        task_id = row.task_id
        latest = await self._journal.snapshot(task_id)
        record = await read_turn(self._journal, task_id)
        forwarded = await self._journal.forwarded_sequences(task_id)
        has_started = may_have_started(agent, latest.task.status.state)
        snapshot = latest
        drafts: list[Draft] = []
        if has_started:
            # A supervisor compares it with the latest one to find this turn's plan and children.
            snapshot = await self._journal.snapshot(task_id, at=record.start)
            if _is_restarted_from_turn_start(agent):
                drafts = build_rewind_drafts(latest, snapshot, forwarded)
        attempt = Attempt(
            record.attempts + 1 if has_started else 1,
            record.start,
            latest,
            is_rewound=_is_restarted_from_turn_start(agent),
        )
        message = latest.task.history[-1]
        turn = TurnRuntime(
            self._executions.resources, snapshot, message, forwarded=forwarded, attempt=attempt
        )
        return turn, drafts, turn.attempt - 1 - record.planned_stops

    def _find_failure_reason(self, agent: Agent | None, turn: TurnRuntime, crashes: int) -> str:
        """Return the reason why a task can't run again, or an empty string if it can."""
        if turn.deadline is not None and turn.deadline <= datetime.now(UTC):
            return DEADLINE_PASSED
        if agent is None:
            return _ABANDONED
        if not may_run_again(agent, turn.state_value):
            return _ABANDONED
        if crashes >= ATTEMPT_LIMIT:
            problem = f"its host stopped {crashes} times while it worked on this"
            return f"{problem}; change the request"
        return ""

    async def _cancel_children(self, turn: TurnRuntime, followed: Collection[str] = ()) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.cancel_grace_s):
                await self._terminator.cancel_children(turn, set(followed), retry_unreachable=True)


def _is_restarted_from_turn_start(agent: Agent | None) -> bool:
    """Return True if the host rewinds the agent's turns to their start."""
    return agent is not None and agent.repeatable and not agent.resumable
