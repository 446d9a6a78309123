"""Streams of tasks that survive cuts: reopened on the host that then serves the task."""

import asyncio
import contextlib
import logging
import time
from abc import abstractmethod
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeAlias

from trunkline.core.backoff import RetryWindow
from trunkline.core.settings import DEFAULTS
from trunkline.core.task_states import TERMINAL, TURN_END
from trunkline.errors import (
    AgentNotFoundError,
    FencedError,
    JournalUnavailableError,
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnavailableError,
    TaskExistsError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.journal import events as ids
from trunkline.journal.events import parse_header
from trunkline.mesh.client.host import HostClient
from trunkline.mesh.client.task_stream import TaskStream, TaskStreamResponse
from trunkline.mesh.client.trunk_connection import BatchSink
from trunkline.v1 import (
    event_pb2,
    message_pb2,
    message_service_pb2,
    registry_service_pb2,
    task_pb2,
    task_service_pb2,
)

if TYPE_CHECKING:
    from trunkline.mesh.client.methods import BatchCall

logger = logging.getLogger(__name__)

# A takeover succeeds or fails within two leases and a margin.
PATIENCE_S: Final = DEFAULTS.patience_s
# A stream that stayed open this long counts as progress even if it carried nothing.
_STABLE_S: Final = 1.0

_STATUS: Final = 1 << event_pb2.Event.STATUS_FIELD_NUMBER

# The host or the connection to it failed. The task is unharmed, or moves to another host.
CUT_ERRORS: Final = (PeerUnavailableError, PeerTimeoutError, JournalUnavailableError, FencedError)
# After a cut these may only mean that the directory is not up to date yet.
_NOT_FOUND: Final = (TaskNotFoundError, AgentNotFoundError)

_Request: TypeAlias = message_service_pb2.StreamMessageRequest | task_service_pb2.WatchTaskRequest


class TaskDirectory(Protocol):
    """Finds the hosts of tasks and agents. `Directory` is the implementation."""

    @property
    def revision(self) -> int:
        """The number of updates so far."""
        ...

    async def wait_for_change(self, revision: int) -> int:
        """Wait for an update later than `revision`; return its number."""
        ...

    def choose_host(
        self, agent: str, *, context_id: str = "", key: str = ""
    ) -> registry_service_pb2.Host:
        """Return the replica of an agent that gets a new task."""
        ...

    def get_task_host(self, task_id: str) -> registry_service_pb2.Host:
        """Return the host that serves a task's journal."""
        ...

    def client_for_task(self, task_id: str) -> HostClient:
        """Return a client of the host that serves a task."""
        ...


def allocate_task_id(host: registry_service_pb2.Host) -> str:
    """Return an id for a new task of this host's journal.

    Raises:
        PeerProtocolError: the host registered no journal.
    """
    if not host.journal_ids:
        raise PeerProtocolError(host.address, "it runs agents but registered no journal")
    return ids.new_task_id(host.journal_ids[0])


def placement_key(message: message_pb2.Message, submission: message_service_pb2.Submission) -> str:
    """Return the key by which a repeated submission meets the first one at the same replica.

    It is empty for a submission without an idempotency key, each of which makes a task.
    """
    if not submission.idempotent:
        return ""
    return "\n".join((submission.account, submission.caller, message.message_id))


class ResumingStream(TaskStream):
    """A task's events after a cursor, each once and in order, however often the stream is cut.

    Iterating raises the last cut once nothing has arrived for `patience_s` seconds. Errors that are
    no cuts, for example CursorExpiredError, are raised at once.
    """

    _end_states: frozenset[task_pb2.TaskState.ValueType] = TERMINAL
    """The states that end the stream."""

    _cut_states: ClassVar[frozenset[task_pb2.TaskState.ValueType]] = TERMINAL
    """Those behind which a stream that was cut is not opened again."""

    def __init__(
        self, directory: TaskDirectory, task_id: str, account: str, patience_s: float
    ) -> None:
        super().__init__(None, self._read())
        self.task_id: str = task_id
        """The task's id. If the mesh chooses it, it is empty until the stream is open."""
        self._directory = directory
        self._account = account
        # Tries to open the stream since the last batch or snapshot.
        self._tries = 0
        # True once the task exists for certain.
        self._has_started = False
        self._retries = RetryWindow(patience_s)
        self._epoch = 0
        self._sequence = 0
        # The last batch that was read. It is parsed when the cursor is needed, which is rare.
        self._latest = b""
        self._state: task_pb2.TaskState.ValueType = task_pb2.TASK_STATE_UNSPECIFIED
        self._opened_at_s = 0.0
        self._call: BatchCall[TaskStreamResponse] | None = None
        self._sink: BatchSink | None = None

    @property
    def cursor(self) -> tuple[int, int]:
        """Epoch and sequence of the last event that was read, from which a watch can continue."""
        self._update_cursor()
        return self._epoch, self._sequence

    async def __aenter__(self) -> "ResumingStream":
        try:
            await self._open()
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._close()

    def set_sink(self, sink: BatchSink) -> None:
        """Pass batches to `sink` as they arrive, also after a cut; see `BatchCall.set_sink`."""
        self._sink = sink
        if self._call is not None:
            self._call.set_sink(sink)

    @abstractmethod
    async def _next_request(self) -> _Request:
        """Return the request that opens the next stream. A reopened stream starts at the cursor."""

    def _is_final(self, _error: TrunklineError) -> bool:
        """Return True if an error on opening is raised at once, without a retry."""
        return False

    def _note_existing(self, error: TaskExistsError) -> None:
        """Continue with the task that an earlier submission of the message has created."""
        raise error

    def _watch(
        self,
        *,
        after: int | None = None,
        epoch: int = 0,
        with_snapshot: bool = True,
        until_turn_ends: bool = False,
    ) -> task_service_pb2.WatchTaskRequest:
        """Return the request for a watch: from the cursor once there is one, else from `after`."""
        if self._has_started:
            epoch, after = self.cursor
            with_snapshot = False
        return task_service_pb2.WatchTaskRequest(
            task_id=self.task_id,
            account=self._account,
            after_sequence=after,
            epoch=epoch,
            with_snapshot=with_snapshot,
            until_turn_ends=until_turn_ends,
        )

    async def _read(self) -> AsyncIterator[list[bytes]]:
        while self._call is not None and self.message is None:
            try:
                async for batches in self._call.batches():
                    yield batches
                if await self._is_over():
                    return
                problem: TrunklineError = PeerUnavailableError(
                    self.task_id, "its stream ended before the task"
                )
            except CUT_ERRORS as error:
                problem = error
            self._update_cursor()
            if self._state in self._cut_states:
                return
            if time.monotonic() - self._opened_at_s >= _STABLE_S:
                self._note_progress()
            self._close()
            await self._pause(problem)
            await self._open()

    async def _open(self) -> None:
        """Open the next stream, with retries; it continues at the cursor.

        Raises:
            PeerProtocolError: a message is answered with neither a task nor a direct reply.
        """
        while True:
            self._tries += 1
            try:
                await self._open_once()
            except TaskExistsError as error:
                self._close()
                self._note_existing(error)
                continue
            except CUT_ERRORS as error:
                if self._is_final(error):
                    raise
                problem: TrunklineError = error
            except _NOT_FOUND as error:
                if self._tries == 1 and not self._has_started:
                    raise
                problem = error
            else:
                return
            self._close()
            await self._pause(problem)

    async def _open_once(self) -> None:
        request = await self._next_request()
        client = self._directory.client_for_task(self.task_id)
        if self._tries > 1 or self._has_started:
            client.allow_probe()
        stub: Any = client.tasks.WatchTask
        if isinstance(request, message_service_pb2.StreamMessageRequest):
            stub = client.messages.StreamMessage
        call: BatchCall[TaskStreamResponse] = stub(request)
        self._call = call
        response = await call.read_first()
        if self._sink is not None:
            call.set_sink(self._sink)
        self._note_start(client.peer, response)

    def _note_start(self, peer: str, response: TaskStreamResponse) -> None:
        self._take(response)
        is_submission = isinstance(response, message_service_pb2.StreamMessageResponse)
        if is_submission and self.snapshot is None and self.message is None:
            problem = "its stream began with neither a snapshot nor a message"
            raise PeerProtocolError(peer, problem)
        self._has_started = True
        self._opened_at_s = time.monotonic()
        if response.HasField("snapshot"):
            snapshot = response.snapshot
            self.task_id = snapshot.task.id
            self._epoch, self._sequence = snapshot.epoch, snapshot.sequence
            self._state = snapshot.task.status.state
            self._note_progress()

    def _update_cursor(self) -> None:
        """Move the cursor after the latest batch and read the task's state from it.

        Only the last event of a stream can end the turn, so earlier batches need no parsing.
        """
        if self._call is not None:
            self._latest = self._call.take_latest() or self._latest
        batch, self._latest = self._latest, b""
        if not batch:
            return
        self._note_progress()
        header = parse_header(batch)
        self._epoch = header.epoch
        self._sequence = header.first_sequence + header.count - 1
        self._state = task_pb2.TASK_STATE_UNSPECIFIED
        if header.kinds & _STATUS:
            for event in event_pb2.EventBatch.FromString(batch).events:
                if event.HasField("status"):
                    self._state = event.status.status.state

    def _note_progress(self) -> None:
        self._tries = 0
        self._retries.reset()

    async def _is_over(self) -> bool:
        """Return True if a stream that ended without error has delivered the last event."""
        self._update_cursor()
        if self._state in self._end_states:
            return True
        client = self._directory.client_for_task(self.task_id)
        snapshot = await client.get_task(self.task_id, account=self._account)
        return (
            snapshot.task.status.state in self._end_states and snapshot.sequence <= self._sequence
        )

    def _close(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            self._latest = call.take_latest() or self._latest
            call.cancel()

    async def _pause(self, problem: TrunklineError) -> None:
        """Wait before the next try, or until the directory changes; raise after `patience_s`."""
        pause_s = self._retries.next_pause_s(problem)
        logger.info("stream.reopened", extra={"task_id": self.task_id, "reason": problem.reason})
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(pause_s):
                await self._directory.wait_for_change(self._directory.revision)


class WatchStream(ResumingStream):
    """Watches a task until it has ended: first as requested, then after the cursor.

    Also until its turn ends, if so requested. Earlier turns, which a cut may follow, don't end it.
    """

    def __init__(  # noqa: PLR0913  see `Directory.watch`
        self,
        directory: TaskDirectory,
        task_id: str,
        account: str,
        patience_s: float,
        *,
        after: int | None,
        epoch: int,
        with_snapshot: bool,
        until_turn_ends: bool,
    ) -> None:
        super().__init__(directory, task_id, account, patience_s)
        if until_turn_ends:
            self._end_states = TURN_END
        self._start_sequence = after
        if after is not None:
            self._epoch, self._sequence = epoch, after
        self._start_epoch = epoch
        # Without a cursor the snapshot tells where the stream starts.
        self._with_snapshot = with_snapshot or after is None
        self._until_turn_ends = until_turn_ends

    async def _next_request(self) -> _Request:
        return self._watch(
            after=self._start_sequence,
            epoch=self._start_epoch,
            with_snapshot=self._with_snapshot,
            until_turn_ends=self._until_turn_ends,
        )


class SubmitStream(ResumingStream):
    """Submits a message once and then watches the turn that it starts."""

    _end_states = _cut_states = TURN_END

    def __init__(
        self,
        directory: TaskDirectory,
        agent: str,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
        patience_s: float,
    ) -> None:
        super().__init__(directory, "", submission.account, patience_s)
        self._request = message_service_pb2.StreamMessageRequest(
            agent=agent, message=message, submission=submission
        )
        # Another host has the task of the message.
        self._exists = False
        # The caller may have stored an id that it chose, so that id stays.
        self._is_named = bool(submission.task_id or message.task_id)

    async def _next_request(self) -> _Request:
        """Submit the message, or watch the task if the message has arrived before."""
        request = self._request
        if self._has_started or self._exists:
            return self._watch_turn()
        if self._tries > 1:
            request.submission.is_first_attempt = False
        if request.message.task_id:
            self.task_id: str = request.message.task_id
            if self._tries > 1 and await self._has_arrived():
                return self._watch_turn()
        elif self._is_named:
            self.task_id = request.submission.task_id
        elif not await self._name_task():
            return self._watch_turn()
        return request

    def _note_existing(self, error: TaskExistsError) -> None:
        self._exists = True
        self.task_id = error.task_id

    def _watch_turn(self) -> task_service_pb2.WatchTaskRequest:
        return self._watch(until_turn_ends=True)

    def _is_final(self, error: TrunklineError) -> bool:
        # A full disk refuses a user's new message at once. An accepted message is retried, and so
        # is a child's, because its parent is a task that was accepted.
        is_new = self._tries == 1 and not self._has_started
        is_child = self._request.submission.HasField("parent")
        return is_new and not is_child and isinstance(error, JournalUnavailableError)

    async def _name_task(self) -> bool:
        """Choose the replica and the task's id, so that a repeated submission makes one task.

        The id stays while its host takes new tasks. If the host no longer does so, choose anew. If
        the message has arrived there before, return False instead.
        """
        message, submission = self._request.message, self._request.submission
        task_id = submission.task_id
        if task_id:
            host = self._directory.get_task_host(task_id)
            is_own = task_id.startswith(f"{host.journal_ids[0]}-")
            if is_own and not host.load.refuses_tasks:
                return True
            client = self._directory.client_for_task(task_id)
            client.allow_probe()
            with contextlib.suppress(TaskNotFoundError):
                await client.get_task(task_id, account=self._account)
                return False
        host = self._directory.choose_host(
            self._request.agent,
            context_id=message.context_id,
            key=placement_key(message, submission),
        )
        submission.task_id = self.task_id = allocate_task_id(host)
        submission.is_first_attempt = True
        return True

    async def _has_arrived(self) -> bool:
        """Return True if an earlier try opened the turn.

        Sending the message again could answer a later question of the task.
        """
        message = self._request.message
        task_id = message.task_id
        client = self._directory.client_for_task(task_id)
        client.allow_probe()
        snapshot = await client.get_task(task_id, account=self._account)
        return any(earlier.message_id == message.message_id for earlier in snapshot.task.history)
