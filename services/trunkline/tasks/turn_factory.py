"""Makes the contexts of tasks: what a turn starts from, with the task's one writer inside."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from trunkline.journal.fold import initial_snapshot
from trunkline.journal.journal import Journal
from trunkline.tasks.emitter import Emitter, FlushScheduler
from trunkline.tasks.files import JournalFiles, TaskFiles
from trunkline.tasks.rewind import Attempt
from trunkline.tasks.settings import TaskSettings
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import event_pb2, message_pb2, snapshot_pb2


class TurnFactory:
    """Makes contexts for whoever holds the place of a task; see `trunkline.tasks.slots`."""

    def __init__(
        self,
        journal: Journal,
        flushing: FlushScheduler,
        settings: TaskSettings,
        checkpoint_path: Path | None,
        files: JournalFiles,
    ) -> None:
        self._journal = journal
        self._flushing = flushing
        self._pending_limit_bytes = settings.pending_limit_bytes
        self._checkpoint_path = checkpoint_path
        self._files = files

    def build(
        self,
        snapshot: snapshot_pb2.TaskSnapshot,
        message: message_pb2.Message,
        *,
        forwarded: Mapping[str, int] | None = None,
        create: Callable[[], Awaitable[None]] | None = None,
        attempt: Attempt | None = None,
    ) -> TurnRuntime:
        """Return a context that starts from a fold; see `TurnRuntime`."""
        emitter = Emitter(
            self._journal,
            snapshot.task.id,
            self._journal.epoch,
            flushing=self._flushing,
            pending_limit_bytes=self._pending_limit_bytes,
        )
        return TurnRuntime(
            snapshot,
            message,
            emitter,
            files=TaskFiles(self._files, snapshot.task.id, snapshot.account),
            forwarded=forwarded,
            create=create,
            attempt=attempt,
            checkpoint_path=self._checkpoint_path,
        )

    async def load(self, task_id: str) -> TurnRuntime:
        """Return a context that goes on with a task from where its journal ends.

        Raises:
            TaskNotFoundError, JournalUnavailableError.
        """
        snapshot = await self._journal.snapshot(task_id)
        forwarded = await self._journal.forwarded_sequences(task_id)
        return self.build(snapshot, snapshot.task.history[-1], forwarded=forwarded)

    def build_first(
        self,
        task_id: str,
        created: event_pb2.TaskCreated,
        *,
        create: Callable[[], Awaitable[None]] | None = None,
    ) -> TurnRuntime:
        """Return a context for a task that is journaled as `created`, or will be by `create`."""
        snapshot = initial_snapshot(task_id, created, epoch=self._journal.epoch)
        return self.build(snapshot, created.message, create=create)
