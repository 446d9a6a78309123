"""Makes the contexts of tasks: what a turn starts from, with the task's one writer inside."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from trunkline.journal.fold import first_snapshot
from trunkline.journal.journal import Journal
from trunkline.tasks.settings import TaskSettings
from trunkline.tasks.turn.context import TaskContext
from trunkline.tasks.turn.emitter import Emitter
from trunkline.tasks.turn.files import Files, TaskFiles
from trunkline.tasks.turn.flushing import Flushing
from trunkline.tasks.turn.rewinding import Again
from trunkline.v1 import event_pb2, message_pb2, snapshot_pb2


class Contexts:
    """Makes contexts for whoever holds the place of a task; see `trunkline.tasks.running.runs`."""

    def __init__(
        self,
        journal: Journal,
        flushing: Flushing,
        settings: TaskSettings,
        checkpoint_path: Path | None,
        files: Files,
    ) -> None:
        self._journal = journal
        self._flushing = flushing
        self._pending_limit_bytes = settings.pending_limit_bytes
        self._checkpoint_path = checkpoint_path
        self._files = files

    def make(
        self,
        snapshot: snapshot_pb2.TaskSnapshot,
        message: message_pb2.Message,
        *,
        forwarded: Mapping[str, int] | None = None,
        create: Callable[[], Awaitable[None]] | None = None,
        again: Again | None = None,
    ) -> TaskContext:
        """Return a context that starts from a fold; see `TaskContext`."""
        emitter = Emitter(
            self._journal,
            snapshot.task.id,
            self._journal.epoch,
            flushing=self._flushing,
            pending_limit_bytes=self._pending_limit_bytes,
        )
        context = TaskContext(
            snapshot,
            message,
            emitter,
            files=TaskFiles(self._files, snapshot.task.id, snapshot.account),
            forwarded=forwarded,
            create=create,
            again=again,
        )
        context.checkpoint_path = self._checkpoint_path
        return context

    async def read(self, task_id: str) -> TaskContext:
        """Return a context that goes on with a task from where its journal ends.

        Raises:
            TaskNotFoundError, JournalUnavailableError.
        """
        snapshot = await self._journal.snapshot(task_id)
        forwarded = await self._journal.forwarded(task_id)
        return self.make(snapshot, snapshot.task.history[-1], forwarded=forwarded)

    def first(
        self,
        task_id: str,
        created: event_pb2.TaskCreated,
        *,
        create: Callable[[], Awaitable[None]] | None = None,
    ) -> TaskContext:
        """Return a context for a task that is journaled as `created`, or will be by `create`."""
        snapshot = first_snapshot(task_id, created, epoch=self._journal.epoch)
        return self.make(snapshot, created.message, create=create)
