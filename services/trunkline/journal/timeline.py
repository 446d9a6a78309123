"""The timeline of a task: the statuses and messages that A2A 1.1 shows in the order of generations.

A task's generation is 1 after its creation. It rises by 1 with each wire event of the bridge's
projection, and with each message that opens a later turn.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

from trunkline.v1 import event_pb2, snapshot_pb2, task_pb2

_HIDDEN_KINDS: Final = frozenset(
    (
        event_pb2.ARTIFACT_KIND_SYNTHESIS,
        event_pb2.ARTIFACT_KIND_DRAFT,
        event_pb2.ARTIFACT_KIND_PROGRESS,
    )
)
# Limits of a timeline: an agent may report any number of statuses, and each fold in memory and each
# compacted task has a timeline.
MAX_ENTRIES: Final = 256
MAX_BYTES: Final = 32 * 1024


class Timeline:
    """The latest entries of a task's timeline, serialized: most readers don't request them.

    The entries depend only on the events, not on batches or restarts. Beyond a limit the oldest
    ones are dropped, but never the latest.
    """

    def __init__(self, entries: Iterable[snapshot_pb2.TimelineEntry] = ()) -> None:
        """Continue the timeline of a snapshot."""
        self._entries = deque(entry.SerializeToString() for entry in entries)
        self._size_bytes = sum(map(len, self._entries))

    def __iter__(self) -> Iterator[snapshot_pb2.TimelineEntry]:
        """Yield the entries, oldest first."""
        return map(snapshot_pb2.TimelineEntry.FromString, self._entries)

    def add_message(self, index: int, *, generation: int) -> None:
        """Add the message at an index of the task's history."""
        self._add(snapshot_pb2.TimelineEntry(generation=generation, message_index=index))

    def add_status(self, status: task_pb2.TaskStatus, *, generation: int) -> None:
        """Add a copy of a status."""
        self._add(snapshot_pb2.TimelineEntry(generation=generation, status=status))

    def _add(self, entry: snapshot_pb2.TimelineEntry) -> None:
        serialized = entry.SerializeToString()
        entries = self._entries
        entries.append(serialized)
        self._size_bytes += len(serialized)
        while len(entries) > MAX_ENTRIES or (self._size_bytes > MAX_BYTES and len(entries) > 1):
            self._size_bytes -= len(entries.popleft())


def has_wire_events(info: snapshot_pb2.ArtifactInfo) -> bool:
    """Return whether clients see an artifact, as the bridge's projection decides."""
    return not info.HasField("origin") or info.kind not in _HIDDEN_KINDS


def is_own_answer(info: snapshot_pb2.ArtifactInfo) -> bool:
    """Return whether an artifact is an answer of the task itself, not of a child."""
    return info.kind == event_pb2.ARTIFACT_KIND_ANSWER and not info.HasField("origin")
