"""Writes the events of turns to the journal. The tasks of a journal share commits."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from trunkline.core.backoff import Backoff
from trunkline.errors import FencedError, JournalUnavailableError
from trunkline.journal.events import Draft, build_draft
from trunkline.journal.journal import Journal
from trunkline.v1 import event_pb2, part_pb2

logger = logging.getLogger(__name__)

# The pauses between retries while the journal can't be written.
_FIRST_RETRY_S: Final = 0.05
_LAST_RETRY_S: Final = 1.0
# The limit of a task's events that are not in the journal. An agent that writes more waits until
# they are written. A character of text counts as one byte.
_PENDING_LIMIT_BYTES: Final = 64 * 1024


class FlushScheduler:
    """Flushes the emitters of a journal together, so that their events share a commit.

    Ticks are at least `interval_s` apart, and run only while an emitter waits for one. While the
    journal can't be written, emitters buffer their events and retry together with exponential
    backoff. The log gets one line when an outage begins and one when it ends.
    """

    def __init__(
        self, interval_s: float, *, journal_id: str, on_fenced: Callable[[], None]
    ) -> None:
        """`on_fenced` is called when a write fails because another host has taken over."""
        self._interval_s = interval_s
        self._journal_id = journal_id
        self.on_fenced = on_fenced
        self._loop = asyncio.get_running_loop()
        self._waiting: list[Emitter] = []
        self._timer: asyncio.Handle | None = None
        self._last_tick = float("-inf")
        self._stalled: list[Emitter] = []
        self._retry: asyncio.TimerHandle | None = None
        self._backoff = Backoff(first_s=_FIRST_RETRY_S, limit_s=_LAST_RETRY_S)
        self._is_closed = False
        self.error: JournalUnavailableError | None = None
        """The error while the journal can't be written, else None."""

    def schedule(self, emitter: "Emitter") -> None:
        """Flush the emitter at the next tick, once."""
        self._waiting.append(emitter)
        if self._timer is not None:
            return
        wait_s = self._last_tick + self._interval_s - self._loop.time()
        if wait_s > 0:
            self._timer = self._loop.call_later(wait_s, self._tick)
        else:
            # Deferred, so that events of the same loop iteration join the flush.
            self._timer = self._loop.call_soon(self._tick)

    def stall(self, emitter: "Emitter", error: JournalUnavailableError) -> bool:
        """Schedule a retry of the emitter's write. Return False if the scheduler is closed."""
        if self._is_closed:
            return False
        if self.error is None:
            extra = {"journal": self._journal_id, "problem": error.problem}
            logger.error("journal.unavailable", extra=extra)
        self.error = error
        self._stalled.append(emitter)
        if self._retry is None:
            self._retry = self._loop.call_later(self._backoff.next_s(), self._retry_stalled)
        return True

    def mark_available(self) -> None:
        """Log that the journal can be written again, and reset the backoff."""
        logger.warning("journal.available", extra={"journal": self._journal_id})
        self.error = None
        self._backoff.reset()

    def close(self) -> None:
        """Stop retries. Writers that wait for a retry get the error."""
        self._is_closed = True
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        stalled, self._stalled = self._stalled, []
        for emitter in stalled:
            emitter.on_closed(
                self.error or JournalUnavailableError(self._journal_id, "it is closed")
            )

    def _tick(self) -> None:
        self._timer = None
        self._last_tick = self._loop.time()
        waiting, self._waiting = self._waiting, []
        for emitter in waiting:
            emitter.on_tick()

    def _retry_stalled(self) -> None:
        self._retry = None
        stalled, self._stalled = self._stalled, []
        for emitter in stalled:
            emitter.on_retry()


class Emitter:
    """The only writer of a task during a turn.

    At most one write is in flight. It takes all events that are pending when the journal starts
    it. Urgent events start a write at once. Text deltas wait for the scheduler's next tick, and
    consecutive deltas of one artifact are merged into one event, a run. While the journal is
    unavailable, events are buffered and their write is retried. After any other failed write,
    every later call raises its error.
    """

    def __init__(
        self,
        journal: Journal,
        task_id: str,
        fence: int,
        *,
        scheduler: FlushScheduler,
    ) -> None:
        self._journal = journal
        self._task_id = task_id
        self._fence = fence
        self._scheduler = scheduler
        self._drafts: list[Draft] = []
        self._events: list[event_pb2.Event] = []
        # The last event, if more text can be merged into it.
        self._open_run: event_pb2.ArtifactDelta | event_pb2.PlanChanged | None = None
        self._pending_bytes = 0
        self._is_in_flight = False
        self._in_flight_drafts: list[Draft] = []
        self._waiters: list[asyncio.Future[None]] = []
        self._is_scheduled = False
        self._is_stalled = False
        self._is_urgent = False
        self._error: BaseException | None = None

    @property
    def error(self) -> BaseException | None:
        """The error of a write that is not retried. Without an error, events can be written."""
        return self._error

    def put(self, *events: event_pb2.Event, hold: bool = False) -> None:
        """Add events. They are written at once, or with `hold` together with later events."""
        self._raise_error()
        self._events += events
        self._open_run = None
        if not hold:
            self._flush_soon()

    def put_drafts(self, drafts: Sequence[Draft]) -> None:
        """Add forwarded events. They waited for a tick at their origin, and are written at once."""
        self._raise_error()
        self._seal_events()
        self._drafts += drafts
        for draft in drafts:
            self._pending_bytes += len(draft.body)
        self._flush_soon()

    def start_artifact(
        self,
        artifact_id: str,
        start: event_pb2.ArtifactStart,
        content: str | part_pb2.Part | None,
        *,
        last: bool,
    ) -> None:
        """Add an artifact's first delta, which is written at once."""
        self._raise_error()
        event = event_pb2.Event(delta=event_pb2.ArtifactDelta(start=start))
        self._add_delta(event, artifact_id, content, last=last)
        self._flush_soon()

    def add_content(
        self, artifact_id: str, content: str | part_pb2.Part | None, *, last: bool
    ) -> None:
        """Add a later delta, if possible to the open run. None only closes the artifact."""
        self._raise_error()
        run = self._open_run
        if (
            isinstance(content, str)
            and isinstance(run, event_pb2.ArtifactDelta)
            and run.artifact_id == artifact_id
        ):
            run.texts.append(content)
            run.last = last
            self._pending_bytes += len(content)
        else:
            self._add_delta(event_pb2.Event(), artifact_id, content, last=last)
        if last:
            self._open_run = None
        self._schedule()

    def add_plan_text(self, plan_id: str, revision: int, text: str) -> None:
        """Add a text delta of a plan, merged into the open run if possible."""
        self._raise_error()
        run = self._open_run
        if (
            isinstance(run, event_pb2.PlanChanged)
            and run.plan_id == plan_id
            and run.revision == revision
        ):
            run.texts.append(text)
        else:
            event = event_pb2.Event(
                plan=event_pb2.PlanChanged(plan_id=plan_id, revision=revision, texts=[text])
            )
            self._events.append(event)
            self._open_run = event.plan
        self._pending_bytes += len(text)
        self._schedule()

    @property
    def is_full(self) -> bool:
        """True if the pending bytes exceed the limit."""
        return self._pending_bytes > _PENDING_LIMIT_BYTES

    async def make_room(self) -> None:
        """Wait while the emitter is full: backpressure from the journal to the agent."""
        if self.is_full:
            await self.commit()

    async def commit(self) -> None:
        """Wait until all events are in the journal.

        Raises:
            FencedError: the host has lost the task.
            JournalUnavailableError: the journal can't be written.
        """
        while self._is_in_flight or self._drafts or self._events:
            self._raise_error()
            self._flush()
            # A separate future, so that a canceled waiter does not cancel the write.
            written = asyncio.get_running_loop().create_future()
            self._waiters.append(written)
            await written
        self._raise_error()

    async def write_now(self, *events: event_pb2.Event) -> None:
        """Write the first events of a turn in one commit, without retries.

        Raises:
            FencedError: another host has the journal.
            JournalUnavailableError: the journal can't be written; nothing is written.
        """
        # Shielded, so that a canceled caller does not cancel the write.
        await asyncio.shield(
            self._journal.append(self._task_id, self._fence, [build_draft(events)])
        )

    def take(self) -> Sequence[Draft]:
        """Return the pending events. Called by the journal when it starts the write."""
        self._seal_events()
        self._in_flight_drafts, self._drafts, self._pending_bytes = self._drafts, [], 0
        self._is_urgent = False
        return self._in_flight_drafts

    def done(self) -> bool:
        """Return False. The journal calls `set_result` or `set_exception` of a pending future.

        The emitter implements a part of a future's interface, because a future with a callback
        costs more.
        """
        return False

    def set_result(self, _head: int, /) -> None:
        """Handle a successful write. Called by the journal."""
        self._on_written(None)

    def set_exception(self, error: BaseException, /) -> None:
        """Handle a failed write. Called by the journal, perhaps within the call that starts it."""
        asyncio.get_running_loop().call_soon(self._on_written, error)

    def on_tick(self) -> None:
        """Flush at the scheduler's tick."""
        self._is_scheduled = False
        self._flush()

    def on_retry(self) -> None:
        """Retry the write that failed."""
        self._is_stalled = False
        self._flush()

    def on_closed(self, error: JournalUnavailableError) -> None:
        """Fail with the error: the journal accepts no more writes."""
        self._is_stalled = False
        self._error = error
        self._wake()

    def _add_delta(
        self,
        event: event_pb2.Event,
        artifact_id: str,
        content: str | part_pb2.Part | None,
        *,
        last: bool,
    ) -> None:
        self._open_run = None
        # Set in place: protobuf copies a message that is assigned.
        delta = event.delta
        delta.artifact_id = artifact_id
        delta.last = last
        if isinstance(content, str):
            delta.texts.append(content)
            self._pending_bytes += len(content)
            if not last:
                self._open_run = delta
        elif content is not None:
            delta.part.CopyFrom(content)
            self._pending_bytes += content.ByteSize()
        self._events.append(event)

    def _flush_soon(self) -> None:
        """Flush now, or as soon as the write in flight is done.

        The journal takes the events when it starts the write, so later events may join them.
        """
        self._is_urgent = True
        self._flush()

    def _schedule(self) -> None:
        """Flush at the next tick. A write in flight schedules the next flush when it is done."""
        if not (self._is_in_flight or self._is_scheduled or self._is_stalled):
            self._is_scheduled = True
            self._scheduler.schedule(self)

    def _flush(self) -> None:
        if self._is_in_flight or self._is_stalled or self._error is not None:
            return
        if self._drafts or self._events:
            self._is_in_flight = True
            self._journal.append_from(self._task_id, self._fence, self)

    def _seal_events(self) -> None:
        if self._events:
            self._drafts.append(build_draft(self._events))
            self._events = []
            self._open_run = None

    def _on_written(self, error: BaseException | None) -> None:
        self._is_in_flight = False
        sent, self._in_flight_drafts = self._in_flight_drafts, []
        if self._scheduler.error is not None and not isinstance(error, JournalUnavailableError):
            self._scheduler.mark_available()
        if error is None:
            if self._is_urgent:
                self._flush()
            elif self._events:
                self._schedule()
        elif isinstance(error, JournalUnavailableError) and self._scheduler.stall(self, error):
            self._is_stalled = True
            self._drafts = sent + self._drafts
            self._pending_bytes += sum(len(draft.body) for draft in sent)
        else:
            self._error = error
            if isinstance(error, FencedError):
                self._scheduler.on_fenced()
        self._wake()

    def _wake(self) -> None:
        """Wake the waiters, which check again for pending events."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error
