"""The timeline of a task: the statuses and messages that A2A 1.1 shows in the order of generations.

A task's generation is 1 after its creation. It rises by 1 with each wire event of the bridge's
projection, and with each message that opens a later turn.
"""

from typing import Final

from trunkline.v1 import event_pb2, snapshot_pb2, task_pb2

_SYNTHESIZED_KINDS: Final = frozenset(
    (event_pb2.ARTIFACT_KIND_SYNTHESIS, event_pb2.ARTIFACT_KIND_DRAFT)
)
# Limits of a timeline: an agent may report any number of statuses, and each reader of the task gets
# the timeline.
MAX_ENTRIES: Final = 256
MAX_STATUS_BYTES: Final = 64 * 1024


class Timeline:
    """The latest entries of a snapshot's timeline.

    The entries depend only on the events, not on batches or restarts. Beyond a limit the oldest
    ones are dropped, but never the latest.
    """

    def __init__(self, snapshot: snapshot_pb2.TaskSnapshot) -> None:
        """Continue the timeline of a snapshot, in place."""
        self._entries = snapshot.timeline
        self._size_bytes = sum(entry.status.ByteSize() for entry in self._entries)

    def add_message(self, index: int, *, generation: int) -> None:
        """Add the message at an index of the task's history."""
        self._entries.add(generation=generation, message_index=index)
        self._trim()

    def add_status(self, status: task_pb2.TaskStatus, *, generation: int) -> None:
        """Add a copy of a status."""
        self._entries.add(generation=generation, status=status)
        self._size_bytes += status.ByteSize()
        self._trim()

    def _trim(self) -> None:
        entries = self._entries
        while len(entries) > MAX_ENTRIES or (
            self._size_bytes > MAX_STATUS_BYTES and len(entries) > 1
        ):
            self._size_bytes -= entries[0].status.ByteSize()
            del entries[0]


def has_wire_events(info: snapshot_pb2.ArtifactInfo) -> bool:
    """Return whether clients see an artifact, as the bridge's projection decides."""
    return not info.HasField("origin") or info.kind not in _SYNTHESIZED_KINDS


def is_own_answer(info: snapshot_pb2.ArtifactInfo) -> bool:
    """Return whether an artifact is an answer of the task itself, not of a child."""
    return info.kind == event_pb2.ARTIFACT_KIND_ANSWER and not info.HasField("origin")
