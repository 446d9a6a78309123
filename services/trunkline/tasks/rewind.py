"""Rewinds artifacts to an earlier state, before a part of a turn runs again."""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Final

from trunkline.journal.events import Draft, build_draft
from trunkline.v1 import artifact_pb2, event_pb2, snapshot_pb2

ATTEMPT_KEY: Final = "trunkline/attempt"
PLANNED_STOP_KEY: Final = "trunkline/planned-stop"
"""Marks the status of a turn that its host leaves because it shuts down."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt at a turn, with the results of earlier attempts."""

    number: int
    turn_start: int
    """Sequence of the event that opened the turn."""
    latest: snapshot_pb2.TaskSnapshot
    """The snapshot of the task at its head."""
    is_rewound: bool
    """True if the events of earlier attempts are rewound before the agent runs."""

    def written_artifacts(self) -> dict[str, bool]:
        """Return the own artifacts of this turn that remain, and whether each is closed."""
        if self.is_rewound:
            return {}
        return {
            info.artifact_id: info.closed
            for info in self.latest.artifacts
            if info.first_sequence > self.turn_start and not info.HasField("origin")
        }


def truncate_artifact(artifact: artifact_pb2.Artifact, length: int) -> artifact_pb2.Artifact:
    """Return an artifact truncated to `length` characters of its joined text.

    Parts without text are removed if no text after them remains, unless nothing is cut.
    """
    remains = artifact_pb2.Artifact()
    remains.CopyFrom(artifact)
    if length >= sum(len(part.text) for part in artifact.parts) and length > 0:
        return remains
    del remains.parts[:]
    remaining_length = length
    for part in artifact.parts:
        if remaining_length <= 0:
            break
        truncated_part = remains.parts.add()
        truncated_part.CopyFrom(part)
        if part.HasField("text"):
            truncated_part.text = part.text[:remaining_length]
            remaining_length -= len(part.text)
    return remains


def build_rewound(remains: artifact_pb2.Artifact) -> event_pb2.ArtifactRewound:
    """Return the event that replaces an artifact by its remaining part."""
    return event_pb2.ArtifactRewound(remains=remains)


def build_rewind_drafts(
    latest: snapshot_pb2.TaskSnapshot,
    start: snapshot_pb2.TaskSnapshot,
    forwarded: MutableMapping[str, int],
) -> list[Draft]:
    """Return the events that rewind all artifacts, also forwarded artifacts, to `start`.

    An artifact of a child is rewound under the child's origin at the next sequence, to which
    `forwarded` is advanced. The caller cancels the children first, because an event that a child
    writes later at that sequence is not forwarded.
    """
    originals = _artifacts_by_key(start)
    drafts: list[Draft] = []
    for key, (artifact, info) in _artifacts_by_key(latest).items():
        original = originals.get(key)
        if original is not None and original[0] == artifact and original[1].closed == info.closed:
            continue
        remains = truncate_artifact(artifact, 0) if original is None else original[0]
        event = event_pb2.Event(rewound=build_rewound(remains))
        drafts.append(build_draft([event], origin=_next_origin(info, forwarded)))
    return drafts


def _artifacts_by_key(
    snapshot: snapshot_pb2.TaskSnapshot,
) -> Mapping[tuple[str, str], tuple[artifact_pb2.Artifact, snapshot_pb2.ArtifactInfo]]:
    return {
        (info.origin.task_id, info.artifact_id): (artifact, info)
        for artifact, info in zip(snapshot.task.artifacts, snapshot.artifacts, strict=True)
    }


def _next_origin(
    info: snapshot_pb2.ArtifactInfo, forwarded: MutableMapping[str, int]
) -> event_pb2.Origin | None:
    if not info.HasField("origin"):
        return None
    origin = event_pb2.Origin()
    origin.CopyFrom(info.origin)
    origin.first_sequence = forwarded.get(origin.task_id, origin.first_sequence) + 1
    forwarded[origin.task_id] = origin.first_sequence
    return origin
