"""Which children of a task have not ended, as far as its journal knows."""

from collections.abc import Sequence

from trunkline.tasks.lifecycle import TERMINAL
from trunkline.v1 import event_pb2, snapshot_pb2


class OpenChildren:
    """The children of a task that have not ended."""

    def __init__(self, task: snapshot_pb2.TaskSnapshot) -> None:
        self._started = {
            child.started.task_id: child.started
            for child in task.children
            if not (child.HasField("finished") and child.finished.state in TERMINAL)
        }

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._started

    @property
    def all(self) -> Sequence[event_pb2.ChildStarted]:
        """How each of them began."""
        return list(self._started.values())

    def note(self, event: event_pb2.Event) -> None:
        """Take in what is recorded, if it is about a child."""
        if event.HasField("child_started"):
            self._started[event.child_started.task_id] = event.child_started
        elif event.HasField("child_finished") and event.child_finished.state in TERMINAL:
            self._started.pop(event.child_finished.task_id, None)

    def forget(self, task_id: str) -> None:
        """Don't count a child any more that was never made."""
        self._started.pop(task_id, None)
