"""One child task: called, followed over broken connections, canceled with its parent."""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager

from trunkline.client import Backoff, Directory, TaskStream
from trunkline.errors import (
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnavailableError,
    TrunklineError,
)
from trunkline.journal.fold import Fold
from trunkline.supervisor.steps import Outcome, StateValue
from trunkline.tasks.content import text_of
from trunkline.tasks.context import TaskContext
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, State, state_name
from trunkline.v1 import event_pb2, message_pb2, registry_service_pb2, snapshot_pb2

logger = logging.getLogger(__name__)

# Within the grace that a canceled turn has.
_CANCEL_S = 1.5
# With the back-off two to three seconds in all, time for a server to be started again.
_TRIES = 6
_STATUS = 1 << event_pb2.Event.STATUS_FIELD_NUMBER


def new_child_id(host: registry_service_pb2.Host) -> str:
    """Return an id for a task of this host's journal.

    Raises:
        PeerProtocolError: the host registered no journal.
    """
    if not host.journal_ids:
        raise PeerProtocolError(host.address, "it runs agents but registered no journal")
    return f"{host.journal_ids[0]}-{secrets.token_hex(8)}"


class Child:
    """A child task during one turn of its parent."""

    def __init__(
        self, task: TaskContext, directory: Directory, *, agent: str, task_id: str
    ) -> None:
        self.id = task_id
        self._task = task
        self._directory = directory
        self._agent = agent
        self._fold: Fold | None = None
        self._cursor = 0
        # Artifacts that begin behind this sequence are of this turn.
        self._begin = 0
        self._has_arrived = False
        self._state: StateValue = State.TASK_STATE_UNSPECIFIED

    async def run(self, message: message_pb2.Message) -> Outcome:
        """Give the child its message and forward what it adds to artifacts until its turn is over.

        A message with the child's id opens the next turn of a child that waits. Cancelling this
        cancels the child.

        Raises:
            TrunklineError: the child could not be reached, or what it sent made no sense; it has
                been told to stop, as far as it can be told anything.
        """
        try:
            return await self._follow(message)
        except (asyncio.CancelledError, TrunklineError):
            await self._cancel()
            raise

    async def _follow(self, message: message_pb2.Message) -> Outcome:
        """Read the child's stream; open it again behind the cursor when it breaks."""
        backoff = Backoff()
        left = _TRIES
        while True:
            # Raises when the host has left the mesh: then nothing is worth waiting for.
            self._directory.host_of_task(self.id)
            cursor = self._cursor
            try:
                outcome = await self._read(message)
            except (PeerUnavailableError, PeerTimeoutError) as error:
                problem: TrunklineError = error
            else:
                if outcome is not None:
                    return outcome
                problem = PeerProtocolError(self._agent, "its stream ended before its task")
            if self._cursor > cursor:
                backoff.reset()
                left = _TRIES
            left -= 1
            if not left:
                raise problem
            logger.info("child.reopened", extra={"task_id": self.id, "reason": problem.reason})
            await backoff.pause()

    async def _open(self, message: message_pb2.Message) -> AbstractAsyncContextManager[TaskStream]:
        """Go on behind the cursor, or give the message if it has not arrived.

        That of a new task may be given twice: it attaches to the task that it made. An answer to a
        question may not: it could answer the next question, too.
        """
        client = self._directory.for_task(self.id)
        account = self._task.account
        if message.task_id and not self._has_arrived:
            snapshot = await client.get_task(self.id, account=account)
            if self._fold is None:
                self._start(snapshot)
                self._begin = self._cursor
            self._has_arrived = snapshot.sequence > self._begin
        if self._has_arrived:
            return client.watch_task(
                self.id, account=account, after=self._cursor, with_snapshot=False
            )
        submission = self._task.child_submission("" if message.task_id else self.id)
        return client.stream_message(agent=self._agent, message=message, submission=submission)

    async def _read(self, message: message_pb2.Message) -> Outcome | None:
        """Read one stream; None when it ended before the turn did."""
        async with await self._open(message) as stream:
            if stream.message is not None:
                return await self._direct(stream.message)
            self._has_arrived = True
            if stream.snapshot is not None:
                if self._has_missed(stream.snapshot):
                    return None
                self._start(stream.snapshot)
                if not message.task_id:
                    # Of a task that an earlier try made, this may be all there is.
                    self._state = stream.snapshot.task.status.state
            async for batches in stream:
                await self._take(batches)
                if self._is_over:
                    break
        return self._outcome() if self._is_over else None

    async def _take(self, batches: Sequence[bytes]) -> None:
        if self._fold is None:
            self._fold = Fold(self.id)
        for sealed in batches:
            batch = event_pb2.EventBatch.FromString(sealed)
            self._fold.apply(batch)
            self._cursor = batch.header.first_sequence + batch.header.count - 1
            if batch.header.kinds & _STATUS:
                for event in batch.events:
                    if event.HasField("status"):
                        self._state = event.status.status.state
            await self._task.forward(sealed, agent=self._agent)

    def _has_missed(self, snapshot: snapshot_pb2.TaskSnapshot) -> bool:
        """Whether a snapshot holds content that was not forwarded: an earlier try did arrive."""
        return any(info.first_sequence > self._cursor for info in snapshot.artifacts)

    def _start(self, snapshot: snapshot_pb2.TaskSnapshot) -> None:
        self._fold = Fold(self.id, snapshot)
        self._cursor = snapshot.sequence

    @property
    def _is_over(self) -> bool:
        return self._state in TERMINAL or self._state in INTERRUPTED

    def _outcome(self) -> Outcome:
        snapshot = self._fold.snapshot() if self._fold else snapshot_pb2.TaskSnapshot()
        said = text_of(snapshot.task.status.message)
        if self._state != State.TASK_STATE_COMPLETED:
            text = said or f"it is {state_name(self._state)}"
            return Outcome(self._agent, self._state, text, child_id=self.id)
        text, has_files = _content(snapshot, self._begin)
        if not has_files:
            text = text or said
        return Outcome(self._agent, self._state, text, has_files, self.id)

    async def _direct(self, message: message_pb2.Message) -> Outcome:
        """Take a direct reply for the answer; what is not text becomes an artifact of ours."""
        files = [part for part in message.parts if not part.HasField("text")]
        if files:
            artifact = self._task.artifact(self._agent)
            for part in files:
                await artifact.append(part, last=part is files[-1])
        return Outcome(
            self._agent, State.TASK_STATE_COMPLETED, text_of(message), bool(files), self.id
        )

    async def _cancel(self) -> None:
        if self._is_over:
            return
        with contextlib.suppress(TrunklineError, TimeoutError):
            async with asyncio.timeout(_CANCEL_S):
                await self._directory.for_task(self.id).cancel_task(
                    self.id, account=self._task.account, reason="the task that asked for it ended"
                )


def _content(snapshot: snapshot_pb2.TaskSnapshot, begin: int) -> tuple[str, bool]:
    """Text of the artifacts that began behind a sequence, and whether there is anything else.

    Where the child put its answer together itself, that is its text.
    """
    texts: list[str] = []
    syntheses: list[str] = []
    has_files = False
    for artifact, info in zip(snapshot.task.artifacts, snapshot.artifacts, strict=True):
        if info.first_sequence <= begin:
            continue
        text = "".join(part.text for part in artifact.parts if part.HasField("text"))
        is_own = not info.HasField("origin")
        if is_own and info.kind == event_pb2.ARTIFACT_KIND_SYNTHESIS:
            syntheses.append(text)
        texts.append(text)
        has_files |= any(not part.HasField("text") for part in artifact.parts)
    return "\n".join(text for text in syntheses or texts if text), has_files
