"""Checkpoints of turns that are reasoned: what a killed process thought is not lost.

They live in a file beside the host's journal, so that whoever takes the journal over finds them.
Each turn of a task is a thread of its own, whose checkpoints go when it ends: a task that waits
holds up nobody. What was said in the turns before is in the thread of their conversation; see
trunkline.reasoning.memory.conversation. Imports LangGraph, so load it lazily.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from trunkline.reasoning.memory.files import CheckpointFile, checkpoint_file
from trunkline.reasoning.memory.saver import Checkpoints
from trunkline.tasks.context import TaskContext


@dataclass(frozen=True, slots=True)
class Thread:
    """The checkpoints of one turn of a task."""

    file: CheckpointFile
    id: str
    state: dict[str, Any] | None
    """What the last one holds, if an earlier attempt of the turn made any."""

    @property
    def checkpoints(self) -> Checkpoints:
        """Where they are saved."""
        return self.file.saver


@contextmanager
def thread_of(task: TaskContext) -> Iterator[Thread | None]:
    """Open the checkpoints of a turn; when it has ended they are deleted.

    None where the host keeps none.
    """
    path = task.checkpoint_path
    if path is None:
        yield None
        return
    # Task ids begin with their journal's, those of conversations with an agent's name.
    thread_id = f"{task.id}/{task.turn}"
    with checkpoint_file(path) as file:
        saver = file.saver
        try:
            yield Thread(file, thread_id, saver.values(thread_id) if task.attempt > 1 else None)
        finally:
            saver.forget(thread_id)
