"""One child task: called, followed over broken connections, canceled with its parent."""

import asyncio
import contextlib
import logging
import secrets
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from trunkline.client import Backoff, Directory, HostClient, TaskStream
from trunkline.errors import (
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnavailableError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.supervisor.steps import Outcome, shortened
from trunkline.supervisor.transcript import KEPT_CHARS, Transcript
from trunkline.tasks.content import text_of
from trunkline.tasks.context import TaskContext
from trunkline.tasks.lifecycle import State
from trunkline.v1 import message_pb2, registry_service_pb2

logger = logging.getLogger(__name__)

# Within the grace that a canceled turn has.
_CANCEL_S = 1.5
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ChildLimits:
    """What a supervisor puts up with from a child. Times are in seconds."""

    idle_s: float = 300.0
    """A child that sends nothing for so long, not even a status, is canceled."""
    patience_s: float = 3.0
    """How long a child's host may be away: it may be started again, or somebody takes over."""
    content_bytes: int = 16 * _MIB
    """What a child may send in a turn; the journal of its parent has to hold it, too."""


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
        self,
        task: TaskContext,
        directory: Directory,
        *,
        agent: str,
        task_id: str,
        limits: ChildLimits,
    ) -> None:
        self.id = task_id
        self._task = task
        self._directory = directory
        self._agent = agent
        self._limits = limits
        self._heard: Transcript | None = None
        self._bytes = 0

    async def run(self, message: message_pb2.Message, *, is_known: bool = False) -> Outcome:
        """Give the child its message and forward what it adds to artifacts until its turn is over.

        A message with the child's id opens the next turn of a child that waits. `is_known` says
        that an earlier life of the parent may have called the child: what it gave and forwarded
        is not given or forwarded again. Cancelling this cancels the child.

        Raises:
            TrunklineError: the child could not be reached, sent nothing, too much or nonsense; it
                has been told to stop, as far as it can be told anything.
        """
        idle = asyncio.timeout(self._limits.idle_s)
        try:
            async with idle:
                return await self._follow(message, idle, is_known=is_known)
        except TimeoutError:
            await self._cancel()
            problem = f"nothing came for {self._limits.idle_s:g} s, so it was canceled"
            raise PeerTimeoutError(f"agent {self._agent!r}", problem) from None
        except (asyncio.CancelledError, TrunklineError):
            await self._cancel()
            raise

    async def _follow(
        self, message: message_pb2.Message, idle: asyncio.Timeout, *, is_known: bool
    ) -> Outcome:
        """Read the child's stream; open it again behind the cursor when it breaks."""
        loop = asyncio.get_running_loop()
        backoff = Backoff()
        since = loop.time()
        while True:
            cursor = self._cursor
            try:
                async with await self._open(message, is_known=is_known) as stream:
                    if stream.message is not None:
                        return await self._direct(stream.message)
                    outcome = await self._listen(stream, message, idle)
                    if outcome is not None:
                        return outcome
                problem: TrunklineError = PeerProtocolError(
                    self._agent, "its stream ended before its task"
                )
            except (PeerUnavailableError, PeerTimeoutError) as error:
                problem = error
            # Whatever broke, the message may have arrived.
            is_known = True
            if self._cursor > cursor:
                backoff.reset()
                since = loop.time()
            elif loop.time() - since > self._limits.patience_s:
                raise problem
            logger.info("child.reopened", extra={"task_id": self.id, "reason": problem.reason})
            await backoff.pause()

    async def _open(
        self, message: message_pb2.Message, *, is_known: bool
    ) -> AbstractAsyncContextManager[TaskStream]:
        """Go on behind the cursor; from the beginning, if the child has its message and we nothing.

        That of a new task may be given twice: it attaches to the task that it made. An answer to a
        question may not: it could answer the next question, too.
        """
        try:
            client = self._directory.for_task(self.id)
        except TaskNotFoundError:
            # Its journal was there when the child was called: after a restart it comes back.
            raise PeerUnavailableError(
                f"agent {self._agent!r}", "its host is not on the mesh; start it again"
            ) from None
        account = self._task.account
        may_have_arrived = self._heard is None and (is_known or bool(message.task_id))
        if may_have_arrived and await self._has_arrived(client, message):
            self._heard = Transcript(self.id, self._agent, message_id=message.message_id)
        if self._heard is not None:
            return client.watch_task(
                self.id, account=account, after=self._cursor, with_snapshot=False
            )
        submission = self._task.child_submission("" if message.task_id else self.id)
        return client.stream_message(agent=self._agent, message=message, submission=submission)

    async def _has_arrived(self, client: HostClient, message: message_pb2.Message) -> bool:
        try:
            snapshot = await client.get_task(self.id, account=self._task.account)
        except TaskNotFoundError:
            if message.task_id:
                raise
            return False
        history = snapshot.task.history
        return any(known.message_id == message.message_id for known in history)

    async def _listen(
        self, stream: TaskStream, message: message_pb2.Message, idle: asyncio.Timeout
    ) -> Outcome | None:
        """Forward what a stream brings; None when it ended before the turn did."""
        loop = asyncio.get_running_loop()
        heard = self._heard
        if heard is None:
            snapshot = stream.snapshot
            if snapshot is None or (snapshot.artifacts and not message.task_id):
                return None  # An earlier call made it, and it has written already.
            heard = self._heard = Transcript(self.id, self._agent, snapshot)
        if heard.is_over:
            return heard.outcome()
        async for batches in stream:
            # Our own journal may take its time: that is no silence of the child's.
            idle.reschedule(None)
            for sealed in batches:
                heard.take(sealed)
                await self._forward(sealed)
                if heard.is_over:
                    return heard.outcome()
            idle.reschedule(loop.time() + self._limits.idle_s)
        return None

    async def _forward(self, sealed: bytes) -> None:
        self._bytes += len(sealed)
        limit = self._limits.content_bytes
        if self._bytes > limit:
            problem = f"it sent more than {limit / _MIB:.3g} MiB in one turn; ask it for less"
            raise PeerProtocolError(f"agent {self._agent!r}", problem)
        await self._task.forward(sealed, agent=self._agent)

    @property
    def _cursor(self) -> int:
        return self._heard.cursor if self._heard is not None else 0

    async def _direct(self, message: message_pb2.Message) -> Outcome:
        """Take a direct reply for the answer; what is not text becomes an artifact of ours."""
        files = [part for part in message.parts if not part.HasField("text")]
        if files:
            # Under an id of its own: a turn that runs again counts its artifacts anew.
            artifact = self._task.artifact(self._agent, id=f"reply-{self.id}")
            for part in files:
                await artifact.append(part, last=part is files[-1])
        said = text_of(message)
        text = shortened(said, len(said), KEPT_CHARS, self._agent)
        return Outcome(
            self._agent,
            State.TASK_STATE_COMPLETED,
            text,
            has_files=bool(files),
            child_id=self.id,
            is_said=True,
        )

    async def _cancel(self) -> None:
        if self._heard is not None and self._heard.is_over:
            return
        with contextlib.suppress(TrunklineError, TimeoutError):
            async with asyncio.timeout(_CANCEL_S):
                await self._directory.for_task(self.id).cancel_task(
                    self.id, account=self._task.account, reason="the task that asked for it ended"
                )
