"""Cuts artifacts back to what they held, before a part of a turn runs again."""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Final

from trunkline.journal.events import Draft, build_draft
from trunkline.v1 import artifact_pb2, event_pb2, snapshot_pb2

ATTEMPT_KEY: Final = "trunkline/attempt"


@dataclass(frozen=True, slots=True)
class Attempt:
    """A turn that runs again: which attempt it is, and what the earlier ones left."""

    number: int
    turn_start: int
    """Sequence of the event that opened the turn."""
    latest: snapshot_pb2.TaskSnapshot
    """The task as it stands now."""
    is_rewound: bool
    """What the earlier ones wrote is cut off before the agent runs."""

    def written_artifacts(self) -> dict[str, bool]:
        """Return the task's own artifacts of this turn that stay, and whether each is closed."""
        if self.is_rewound:
            return {}
        return {
            info.artifact_id: info.closed
            for info in self.latest.artifacts
            if info.first_sequence > self.turn_start and not info.HasField("origin")
        }


def truncate_artifact(artifact: artifact_pb2.Artifact, length: int) -> artifact_pb2.Artifact:
    """Return what is left of an artifact when it is cut to so many characters of joined text.

    Other parts go with the text that they stand behind: they stay if some text behind them does,
    or if nothing is cut at all.
    """
    remains = artifact_pb2.Artifact()
    remains.CopyFrom(artifact)
    if length >= sum(len(part.text) for part in artifact.parts) and length > 0:
        return remains
    del remains.parts[:]
    left = length
    for part in artifact.parts:
        if left <= 0:
            break
        kept = remains.parts.add()
        kept.CopyFrom(part)
        if part.HasField("text"):
            kept.text = part.text[:left]
            left -= len(part.text)
    return remains


def build_rewound(remains: artifact_pb2.Artifact) -> event_pb2.ArtifactRewound:
    """Return the event that says what remains."""
    return event_pb2.ArtifactRewound(remains=remains)


def build_rewind_drafts(
    latest: snapshot_pb2.TaskSnapshot,
    start: snapshot_pb2.TaskSnapshot,
    forwarded: MutableMapping[str, int],
) -> list[Draft]:
    """Return what cuts all artifacts of a task, forwarded ones too, back to what they held then.

    Those of children are cut under their writer's origin, at a sequence that it hasn't come to:
    `forwarded` is moved on, so what such a child still adds would be left out. Whoever does this
    cancels the children first.
    """
    before = _by_key(start)
    drafts: list[Draft] = []
    for key, (artifact, info) in _by_key(latest).items():
        held = before.get(key)
        if held is not None and held[0] == artifact and held[1].closed == info.closed:
            continue
        remains = truncate_artifact(artifact, 0) if held is None else held[0]
        event = event_pb2.Event(rewound=build_rewound(remains))
        drafts.append(build_draft([event], origin=_origin(info, forwarded)))
    return drafts


def _by_key(
    snapshot: snapshot_pb2.TaskSnapshot,
) -> Mapping[tuple[str, str], tuple[artifact_pb2.Artifact, snapshot_pb2.ArtifactInfo]]:
    return {
        (info.origin.task_id, info.artifact_id): (artifact, info)
        for artifact, info in zip(snapshot.task.artifacts, snapshot.artifacts, strict=True)
    }


def _origin(
    info: snapshot_pb2.ArtifactInfo, forwarded: MutableMapping[str, int]
) -> event_pb2.Origin | None:
    if not info.HasField("origin"):
        return None
    origin = event_pb2.Origin()
    origin.CopyFrom(info.origin)
    origin.first_sequence = forwarded.get(origin.task_id, origin.first_sequence) + 1
    forwarded[origin.task_id] = origin.first_sequence
    return origin
