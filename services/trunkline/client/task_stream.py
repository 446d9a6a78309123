"""A task as it streams in: the snapshot, then batches of events."""

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import grpc

from trunkline.client.backoff import Backoff
from trunkline.client.status import translate_errors
from trunkline.client.trunk_connection import BatchSink, TrunkStreamCall
from trunkline.errors import (
    AgentNotFoundError,
    FencedError,
    JournalUnavailableError,
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnavailableError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.journal import ids
from trunkline.journal.events import parse_header
from trunkline.v1 import (
    event_pb2,
    message_pb2,
    message_service_pb2,
    registry_service_pb2,
    snapshot_pb2,
    task_pb2,
    task_service_pb2,
)

if TYPE_CHECKING:
    from trunkline.client.directory import Directory


Response: TypeAlias = message_service_pb2.StreamMessageResponse | task_service_pb2.WatchTaskResponse
_Call: TypeAlias = (
    grpc.aio.UnaryStreamCall[
        message_service_pb2.StreamMessageRequest, message_service_pb2.StreamMessageResponse
    ]
    | grpc.aio.UnaryStreamCall[
        task_service_pb2.WatchTaskRequest, task_service_pb2.WatchTaskResponse
    ]
)


class TaskStream:
    """An open stream of one task. Iterating gives what came together: sealed batches, in order.

    `snapshot` is where the batches go on from; `message` is a direct reply, and then all there is.
    The snapshot may be large, and the stream stand for days: `take_snapshot` keeps it no longer.
    """

    def __init__(self, first: Response | None, batches: AsyncIterator[list[bytes]]) -> None:
        """`first` is the first response; what it has of batches is not looked at."""
        self._batches = batches
        self.snapshot: snapshot_pb2.TaskSnapshot | None = None
        self.message: message_pb2.Message | None = None
        if first is not None and first.HasField("snapshot"):
            self.snapshot = first.snapshot
        if isinstance(first, message_service_pb2.StreamMessageResponse) and first.HasField(
            "message"
        ):
            self.message = first.message

    def take_snapshot(self) -> snapshot_pb2.TaskSnapshot | None:
        """Return the snapshot and keep it no longer."""
        snapshot, self.snapshot = self.snapshot, None
        return snapshot

    def set_sink(self, taker: BatchSink) -> None:
        """Let `taker` have batches as soon as they come, while the reader waits for some.

        It returns how many it took; what it leaves, the reader gets. It saves waking the reader,
        which costs more than most batches; where a batch's way doesn't allow it, it isn't called.
        """
        if isinstance(self._batches, TrunkStreamCall):
            self._batches.sink = taker

    def __aiter__(self) -> AsyncIterator[list[bytes]]:
        return self._batches


@asynccontextmanager
async def open_plain_stream(begin: Callable[[], _Call], *, peer: str) -> AsyncIterator[TaskStream]:
    """Begin a plain call for the length of a block; leaving it cancels the call, never the task.

    Raises:
        TrunklineError: whatever the peer answered.
    """
    with translate_errors(peer):
        call = begin()
    try:
        # What is wrong with the request shows here.
        first = await _read(call, peer=peer)
        yield TaskStream(first, _rest(call, first, peer=peer))
    finally:
        call.cancel()


async def _rest(call: _Call, response: Response | None, *, peer: str) -> AsyncIterator[list[bytes]]:
    while response is not None:
        if response.batches:
            yield [batch.SerializeToString() for batch in response.batches]
        response = await _read(call, peer=peer)


async def _read(call: _Call, *, peer: str) -> Response | None:
    with translate_errors(peer):
        response = await call.read()
    if isinstance(
        response,
        message_service_pb2.StreamMessageResponse | task_service_pb2.WatchTaskResponse,
    ):
        return response
    return None


logger = logging.getLogger(__name__)

# Two leases and a little: after that a task has been taken over, or won't be.
PATIENCE_S: Final = 30.0
# A stream that stood so long was a good one, though nothing came; a shorter one may be one of many.
_STOOD_S: Final = 1.0

_STATUS: Final = 1 << event_pb2.Event.STATUS_FIELD_NUMBER
_ENDED: Final = frozenset(
    {
        task_pb2.TASK_STATE_COMPLETED,
        task_pb2.TASK_STATE_FAILED,
        task_pb2.TASK_STATE_CANCELED,
        task_pb2.TASK_STATE_REJECTED,
    }
)
_TURN_ENDS: Final = _ENDED | {task_pb2.TASK_STATE_INPUT_REQUIRED}

# The host, or the way to it, is in trouble: the task is well, or will be on another host.
_CUTS: Final = (PeerUnavailableError, PeerTimeoutError, JournalUnavailableError, FencedError)
# Behind a cut this may only mean that the picture of the mesh is not yet the new one.
_NOT_THERE: Final = (TaskNotFoundError, AgentNotFoundError)

StreamOpening: TypeAlias = Callable[
    ["ResumingStream"], Awaitable[AbstractAsyncContextManager[TaskStream]]
]


def allocate_task_id(host: registry_service_pb2.Host) -> str:
    """Return an id for a task of this host's journal.

    Raises:
        PeerProtocolError: the host registered no journal.
    """
    if not host.journal_ids:
        raise PeerProtocolError(host.address, "it runs agents but registered no journal")
    return ids.new_task_id(host.journal_ids[0])


class ResumingStream(TaskStream):
    """A task's events behind a cursor, each once and in order, however often the stream is cut.

    Iterating raises what isn't a cut, CursorExpiredError for example, and the last cut when
    nothing was heard for `patience_s`.
    """

    def __init__(
        self,
        directory: "Directory",
        opening: StreamOpening,
        *,
        account: str,
        until_turn_ends: bool,
        patience_s: float,
    ) -> None:
        super().__init__(None, self._read())
        self.task_id = ""
        """The task; known once it is open."""
        self.tries = 0
        """How often it was tried to open it since something came."""
        self.has_started = False
        """Whether the task is known to exist."""
        self._directory = directory
        self._opening = opening
        self._account = account
        self._ends = _TURN_ENDS if until_turn_ends else _ENDED
        self._patience_s = patience_s
        self._epoch = 0
        self._sequence = 0
        self._latest: list[bytes] = []
        self._state: task_pb2.TaskState.ValueType = task_pb2.TASK_STATE_UNSPECIFIED
        self._backoff = Backoff()
        self._give_up_at_s = 0.0
        self._opened_at_s = 0.0
        self._current = AsyncExitStack()
        self._stream: TaskStream | None = None
        self._taker: BatchSink | None = None

    @property
    def cursor(self) -> tuple[int, int]:
        """Epoch and sequence of the last event that was read: where a later watch may go on."""
        self._look()
        return self._epoch, self._sequence

    async def __aenter__(self) -> "ResumingStream":
        try:
            stream = await self._open()
        except BaseException:
            await self._current.aclose()
            raise
        self.snapshot, self.message = stream.take_snapshot(), stream.message
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._current.aclose()

    def set_sink(self, taker: BatchSink) -> None:
        """Let `taker` have batches as soon as they come; see `TaskStream`."""
        self._taker = taker
        if self._stream is not None:
            self._stream.set_sink(self._offer)

    def start_at(self, epoch: int, sequence: int) -> None:
        """Set the cursor, before anything is read."""
        self._epoch, self._sequence = epoch, sequence

    async def _read(self) -> AsyncIterator[list[bytes]]:
        while self._stream is not None and self.message is None:
            try:
                async for batches in self._stream:
                    self._note(batches)
                    yield batches
                if await self._is_over():
                    return
                problem: TrunklineError = PeerUnavailableError(
                    self.task_id, "its stream ended before the task"
                )
            except _CUTS as error:
                problem = error
            self._look()
            if self._state in self._ends:
                return
            if time.monotonic() - self._opened_at_s >= _STOOD_S:
                self._progress()
            await self._close()
            await self._wait(problem)
            (await self._open()).take_snapshot()

    async def _open(self) -> TaskStream:
        """Open it, again and again if need be; the new stream goes on behind the cursor."""
        while True:
            self.tries += 1
            try:
                opened = await self._opening(self)
                stream = await self._current.enter_async_context(opened)
            except _CUTS as error:
                if self._is_refused(error):
                    raise
                problem: TrunklineError = error
            except _NOT_THERE as error:
                if self.tries == 1 and not self.has_started:
                    raise
                problem = error
            else:
                self._stream = stream
                if self._taker is not None:
                    stream.set_sink(self._offer)
                self._opened_at_s = time.monotonic()
                self._begin(stream.snapshot)
                return stream
            await self._close()
            await self._wait(problem)

    def _is_refused(self, error: TrunklineError) -> bool:
        """A message that a full disk can't take is told at once; what was taken is waited for."""
        is_new = (
            isinstance(self._opening, SubmitOpener) and self.tries == 1 and not self.has_started
        )
        return is_new and isinstance(error, JournalUnavailableError)

    def _begin(self, snapshot: snapshot_pb2.TaskSnapshot | None) -> None:
        self.has_started = True
        if snapshot is not None:
            self.task_id = snapshot.task.id
            self._epoch, self._sequence = snapshot.epoch, snapshot.sequence
            self._state = snapshot.task.status.state
            self._progress()

    def _offer(self, batches: list[bytes]) -> int:
        taken = self._taker(batches) if self._taker is not None else 0
        if taken:
            self._note(batches[:taken])
        return taken

    def _note(self, batches: list[bytes]) -> None:
        # They are looked into when somebody asks, which is hardly ever.
        self._latest = batches
        if self.tries:
            self._progress()

    def _look(self) -> None:
        """Move the cursor behind what came last, and see whether that ends the turn.

        What does is the last event of a stream: nothing before it needs to be looked into.
        """
        batches, self._latest = self._latest, []
        if not batches:
            return
        header = parse_header(batches[-1])
        self._epoch = header.epoch
        self._sequence = header.first_sequence + header.count - 1
        self._state = task_pb2.TASK_STATE_UNSPECIFIED
        if header.kinds & _STATUS:
            for event in event_pb2.EventBatch.FromString(batches[-1]).events:
                if event.HasField("status"):
                    self._state = event.status.status.state

    def _progress(self) -> None:
        self.tries = 0
        self._give_up_at_s = 0.0
        self._backoff.reset()

    async def _is_over(self) -> bool:
        """Whether a stream that ended well did so behind the end; if unseen, the task tells."""
        self._look()
        if self._state in self._ends:
            return True
        client = self._directory.client_for_task(self.task_id)
        snapshot = await client.get_task(self.task_id, account=self._account)
        return snapshot.task.status.state in self._ends and snapshot.sequence <= self._sequence

    async def _close(self) -> None:
        self._stream = None
        current, self._current = self._current, AsyncExitStack()
        await current.aclose()

    async def _wait(self, problem: TrunklineError) -> None:
        """Pause before the next try, until the mesh looks different; raise when patience is out."""
        now_s = time.monotonic()
        self._give_up_at_s = self._give_up_at_s or now_s + self._patience_s
        if now_s >= self._give_up_at_s:
            raise problem
        logger.info("stream.reopened", extra={"task_id": self.task_id, "reason": problem.reason})
        pause_s = min(self._backoff.next_s(), self._give_up_at_s - now_s)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._directory.wait_for_change(self._directory.revision)


@dataclass(slots=True)
class WatchOpener:
    """Opens a stream of a task: the first time as it was asked for, then behind the cursor."""

    directory: "Directory"
    task_id: str
    account: str
    after: int | None = None
    epoch: int = 0
    with_snapshot: bool = False
    until_turn_ends: bool = False
    is_first: bool = True

    async def __call__(self, stream: ResumingStream) -> AbstractAsyncContextManager[TaskStream]:
        """Open it."""
        stream.task_id = self.task_id
        client = self.directory.client_for_task(self.task_id)
        if stream.tries > 1 or stream.has_started:
            client.allow_probe()
        if stream.has_started:
            epoch, after = stream.cursor
            return client.watch_task(
                self.task_id,
                account=self.account,
                after=after,
                epoch=epoch,
                with_snapshot=False,
                until_turn_ends=self.until_turn_ends,
            )
        if self.after is not None:
            stream.start_at(self.epoch, self.after)
        return client.watch_task(
            self.task_id,
            account=self.account,
            after=self.after,
            epoch=self.epoch,
            # From the head on: where that is, the snapshot says.
            with_snapshot=self.with_snapshot or self.after is None,
            until_turn_ends=self.until_turn_ends,
        )


class SubmitOpener:
    """Opens a stream of a turn: gives the message, once, and then watches the task behind it."""

    def __init__(
        self,
        directory: "Directory",
        agent: str,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
    ) -> None:
        self._directory = directory
        self._agent = agent
        self._message = message
        self._submission = message_service_pb2.Submission()
        self._submission.CopyFrom(submission)
        # An id that the caller chose, it may have written down already.
        self._is_named = bool(submission.task_id or message.task_id)

    async def __call__(self, stream: ResumingStream) -> AbstractAsyncContextManager[TaskStream]:
        """Give the message, or find that it has arrived."""
        if stream.has_started:
            return await self._watch(stream)
        if self._message.task_id:
            stream.task_id = self._message.task_id
            if stream.tries > 1 and await self._has_arrived():
                return await self._watch(stream)
        elif self._is_named:
            stream.task_id = self._submission.task_id
        elif not await self._name(stream):
            return await self._watch(stream)
        client = self._directory.client_for_task(stream.task_id)
        if stream.tries > 1:
            client.allow_probe()
        return client.stream_message(
            agent=self._agent, message=self._message, submission=self._submission
        )

    async def _name(self, stream: ResumingStream) -> bool:
        """Name the task by the agent's host, so that giving it twice is giving it once.

        An agent that moved while the first try was under way gets a new one, unless it arrived.
        """
        host = self._directory.get_agent_host(self._agent)
        named = self._submission.task_id
        if host.journal_ids and named.startswith(f"{host.journal_ids[0]}-"):
            return True
        if named:
            client = self._directory.client_for_task(named)
            client.allow_probe()
            with contextlib.suppress(TaskNotFoundError):
                await client.get_task(named, account=self._submission.account)
                return False
        self._submission.task_id = stream.task_id = allocate_task_id(host)
        return True

    async def _has_arrived(self) -> bool:
        """Whether an earlier try opened the turn: given again it could answer a later question."""
        task_id = self._message.task_id
        client = self._directory.client_for_task(task_id)
        client.allow_probe()
        snapshot = await client.get_task(task_id, account=self._submission.account)
        message_id = self._message.message_id
        return any(said.message_id == message_id for said in snapshot.task.history)

    def _watch(self, stream: ResumingStream) -> Awaitable[AbstractAsyncContextManager[TaskStream]]:
        watching = WatchOpener(
            self._directory,
            stream.task_id,
            self._submission.account,
            with_snapshot=True,
            until_turn_ends=True,
        )
        return watching(stream)
