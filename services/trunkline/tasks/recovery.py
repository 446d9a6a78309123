"""What becomes of tasks whose host died: they go on, run again, or fail with the reason."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Final

from trunkline import telemetry
from trunkline.errors import FencedError, JournalUnavailableError
from trunkline.journal.events import Draft, EventKind, event_count, event_kind, parse_header
from trunkline.journal.journal import Journal, TaskRow
from trunkline.tasks.agent import Agent
from trunkline.tasks.deadlines import DEADLINE_PASSED, DeadlineTimer
from trunkline.tasks.lifecycle import INTERRUPTED, State
from trunkline.tasks.rewind import ATTEMPT_KEY, Attempt, build_rewind_drafts
from trunkline.tasks.settings import TaskSettings
from trunkline.tasks.slots import TaskSlot, TaskSlots
from trunkline.tasks.termination import READ_RETRY_S, TaskTerminator
from trunkline.tasks.turn_factory import TurnFactory
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import event_pb2, task_pb2

logger = logging.getLogger(__name__)

_ABANDONED: Final = "the host stopped while it worked on this; send it again"
_TURN: Final = EventKind.CREATED.bit | EventKind.TURN_STARTED.bit
_AT_ONCE: Final = 16


@dataclass(frozen=True, slots=True)
class TurnRecord:
    """What the journal holds of the turn that a task is in."""

    start: int
    """Sequence of the event that opened it."""
    attempts: int
    """How often it was begun."""


async def read_turn(journal: Journal, task_id: str) -> TurnRecord:
    """Look a task's events through for where its turn began and how often it was run."""
    cursor = start = attempts = 0
    while batches := journal.read(task_id, cursor):
        for sealed in batches:
            header = parse_header(sealed)
            if header.kinds & (_TURN | EventKind.STATUS.bit):
                sequence = header.first_sequence
                for event in event_pb2.EventBatch.FromString(sealed).events:
                    if event_kind(event).bit & _TURN:
                        start, attempts = sequence, 1
                    elif event.HasField("status"):
                        attempts += ATTEMPT_KEY in event.status.metadata.fields
                    sequence += event_count(event)
            cursor = header.first_sequence + header.count - 1
        await asyncio.sleep(0)
    return TurnRecord(start, attempts)


class Recovery:
    """Takes up the tasks that an earlier life of a journal left, one place at a time.

    A task that may still have waited for its turn just runs. One of an agent that is `resumable`
    goes on in its turn, rewinding for itself; one of a `repeatable` agent is cut back to the start
    of the turn and runs again from there, its children canceled; any other fails. A cancel that
    had not been journaled when the host died has not happened: whoever asked got no answer, and
    asks again.
    """

    def __init__(  # noqa: PLR0913  what it works with, each by name
        self,
        journal: Journal,
        agents: Mapping[str, Agent],
        settings: TaskSettings,
        *,
        runs: TaskSlots,
        endings: TaskTerminator,
        deadlines: DeadlineTimer,
        turns: TurnFactory,
    ) -> None:
        self._journal = journal
        self._agents = agents
        self._settings = settings
        self._runs = runs
        self._endings = endings
        self._deadlines = deadlines
        self._turns = turns
        self._slots = asyncio.Semaphore(_AT_ONCE)

    def reserve(self) -> Sequence[tuple[TaskRow, TaskSlot | None]]:
        """Hold the places of all tasks that were under way: nobody comes between."""
        return [
            (row, None if row.state in INTERRUPTED else self._runs.reserve(row.task_id))
            for row in self._journal.list_unfinished()
        ]

    async def recover(self, found: Sequence[tuple[TaskRow, TaskSlot | None]]) -> None:
        """Start what goes on, end what doesn't, and mind the deadlines of those that wait."""
        for row, run in found:
            if run is None or run.is_stopped:
                await self._mind_deadline(row)
                continue
            logger.warning("task.abandoned", extra={"task_id": row.task_id, "agent": row.agent})
            agent = self._agents.get(row.agent)
            if agent is not None:
                self._runs.admit(run, agent)
            self._runs.start(agent, run, partial(self._open, row, run))
            await asyncio.sleep(0)

    async def _mind_deadline(self, row: TaskRow) -> None:
        """Read when a task that waits has to end: that is in its first event."""
        with suppress(FencedError, JournalUnavailableError):
            (first, *_) = self._journal.read(row.task_id, 0, limit_bytes=1)
            created = event_pb2.EventBatch.FromString(first).events[0].created
            if created.HasField("deadline"):
                self._deadlines.add(row.task_id, created.deadline.ToDatetime(tzinfo=UTC))
        await asyncio.sleep(0)

    async def _open(self, row: TaskRow, run: TaskSlot) -> bool:
        """Bring a task to where its agent can run; False: it was ended."""
        while True:
            try:
                return await self._reopen(row, run)
            except JournalUnavailableError as error:
                if run.context is not None and run.context.is_lost:
                    return False
                extra = {"task_id": row.task_id, "problem": error.problem}
                logger.warning("task.not_read", extra=extra)
                await asyncio.sleep(READ_RETRY_S)
            except FencedError:
                return False

    async def _reopen(self, row: TaskRow, run: TaskSlot) -> bool:
        agent = self._agents.get(row.agent)
        async with self._slots:
            context, drafts = await self._read(row, agent)
        run.context = context
        telemetry.continue_trace(context.snapshot.traceparent)
        reason = self._why_not(agent, context)
        if reason:
            context.begin_cancel()
            await self._cancel_children(context)
            await context.end(State.TASK_STATE_FAILED, reason)
            return False
        if context.deadline is not None:
            self._deadlines.add(context.id, context.deadline)
        if _may_have_begun(agent, context.state):
            if _starts_over(agent):
                await self._cancel_children(context)
            await context.start_attempt(drafts)
        return True

    async def _read(self, row: TaskRow, agent: Agent | None) -> tuple[TurnRuntime, Sequence[Draft]]:
        """Read the task as its agent will see it, and what is to be cut off before that."""
        task_id = row.task_id
        latest = await self._journal.snapshot(task_id)
        turn = await read_turn(self._journal, task_id)
        forwarded = await self._journal.forwarded_sequences(task_id)
        has_begun = _may_have_begun(agent, latest.task.status.state)
        snapshot = latest
        drafts: list[Draft] = []
        if has_begun:
            # Whoever goes on tells by it what is of this turn: a supervisor its plan and children.
            snapshot = await self._journal.snapshot(task_id, at=turn.start)
            if _starts_over(agent):
                drafts = build_rewind_drafts(latest, snapshot, forwarded)
        again = Attempt(
            turn.attempts + 1 if has_begun else 1,
            turn.start,
            latest,
            is_rewound=_starts_over(agent),
        )
        message = latest.task.history[-1]
        context = self._turns.build(snapshot, message, forwarded=forwarded, attempt=again)
        return context, drafts

    def _why_not(self, agent: Agent | None, context: TurnRuntime) -> str:
        """Return why a task can't run again; nothing: it can."""
        if context.deadline is not None and context.deadline <= datetime.now(UTC):
            return DEADLINE_PASSED
        if agent is None:
            return _ABANDONED
        has_begun = _may_have_begun(agent, context.state)
        if has_begun and not (agent.resumable or agent.repeatable):
            return _ABANDONED
        if context.attempt > self._settings.attempt_limit:
            died = context.attempt - 1
            return f"its host stopped {died} times while it worked on this; ask otherwise"
        return ""

    async def _cancel_children(self, context: TurnRuntime) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._settings.cancel_grace_s):
                await self._endings.cancel_children(context, is_patient=True)


def _may_have_begun(agent: Agent | None, state: task_pb2.TaskState.ValueType) -> bool:
    """Tell whether the agent's code may have run: it may have written nothing before its end.

    Only for agents with a limit tasks wait, and nothing tells those from tasks that had begun.
    """
    return state != State.TASK_STATE_SUBMITTED or agent is None or agent.concurrency is None


def _starts_over(agent: Agent | None) -> bool:
    """Tell whether the host rewinds the turns of this agent, before they run again."""
    return agent is not None and agent.repeatable and not agent.resumable
