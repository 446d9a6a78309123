"""Builds the runtimes of turns."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from trunkline.journal.journal import Journal
from trunkline.tasks.budgets import Budgets
from trunkline.tasks.emitter import Emitter, FlushScheduler
from trunkline.tasks.files import JournalFiles, TaskFiles
from trunkline.tasks.rewind import Attempt
from trunkline.tasks.settings import TaskSettings
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import message_pb2, snapshot_pb2


class TurnFactory:
    """Builds turn runtimes. The caller holds the task's slot; see `trunkline.tasks.slots`."""

    def __init__(
        self,
        journal: Journal,
        scheduler: FlushScheduler,
        settings: TaskSettings,
        checkpoint_path: Path | None,
        files: JournalFiles,
        budgets: Budgets | None = None,
    ) -> None:
        self._journal = journal
        self._scheduler = scheduler
        self._pending_limit_bytes = settings.pending_limit_bytes
        self._tree_limits = settings.tree
        self._models = settings.models
        self._checkpoint_path = checkpoint_path
        self._files = files
        self._budgets = budgets

    def build(
        self,
        snapshot: snapshot_pb2.TaskSnapshot,
        message: message_pb2.Message,
        *,
        forwarded: Mapping[str, int] | None = None,
        create: Callable[[], Awaitable[None] | None] | None = None,
        may_reply: bool = False,
        attempt: Attempt | None = None,
    ) -> TurnRuntime:
        """Return the runtime of a turn that starts from a snapshot; see `TurnRuntime`.

        `create` writes the task before its first event. Without it the task is in the journal.
        """
        emitter = Emitter(
            self._journal,
            snapshot.task.id,
            self._journal.epoch,
            scheduler=self._scheduler,
            pending_limit_bytes=self._pending_limit_bytes,
        )
        return TurnRuntime(
            snapshot,
            message,
            emitter,
            files=TaskFiles(self._files, snapshot.task.id, snapshot.account),
            forwarded=forwarded,
            create=create,
            may_reply=may_reply,
            attempt=attempt,
            checkpoint_path=self._checkpoint_path,
            budgets=self._budgets,
            keyring=self._journal.keyring,
            tree_limits=self._tree_limits,
            models=self._models,
        )

    async def load(self, task_id: str) -> TurnRuntime:
        """Return the runtime of a task's latest turn, from the current snapshot.

        Raises:
            TaskNotFoundError: the journal does not have the task.
            JournalUnavailableError: the journal can't be read.
        """
        snapshot = await self._journal.snapshot(task_id)
        forwarded = await self._journal.forwarded_sequences(task_id)
        return self.build(snapshot, snapshot.task.history[-1], forwarded=forwarded)
