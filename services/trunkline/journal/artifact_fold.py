"""Folds the deltas of one artifact: cheap for each text, joined when somebody looks."""

from collections.abc import Iterable
from typing import Self

from trunkline.v1 import artifact_pb2, event_pb2, part_pb2, snapshot_pb2


class ArtifactFold:
    """One artifact while it grows.

    Adjacent text parts that carry nothing but text are one part: equality of content is equality
    of the joined text.
    """

    def __init__(self, artifact: artifact_pb2.Artifact, info: snapshot_pb2.ArtifactInfo) -> None:
        """Go on from an artifact of a snapshot; both are copied."""
        self.info = snapshot_pb2.ArtifactInfo()
        self.info.CopyFrom(info)
        self.is_closed = info.closed
        self._artifact = artifact_pb2.Artifact()
        self._artifact.CopyFrom(artifact)
        # Texts behind the last finished part. None: no text part is under way.
        self._texts: list[str] | None = None
        parts = self._artifact.parts
        if parts and _is_plain_text(parts[-1]):
            self._texts = [parts.pop().text]

    @classmethod
    def empty(cls, artifact_id: str, first_sequence: int, origin: event_pb2.Origin | None) -> Self:
        """Return an artifact that holds nothing yet."""
        info = snapshot_pb2.ArtifactInfo(
            artifact_id=artifact_id, first_sequence=first_sequence, origin=origin
        )
        return cls(artifact_pb2.Artifact(artifact_id=artifact_id), info)

    @property
    def may_start(self) -> bool:
        """It was cut back to nothing, so whatever runs again may create it again."""
        return not self._artifact.parts and self._texts is None and not self.is_closed

    def begin(self, start: event_pb2.ArtifactStart) -> None:
        """Take over what its first delta says of it."""
        artifact = self._artifact
        artifact.name = start.name
        artifact.description = start.description
        del artifact.extensions[:]
        artifact.extensions.extend(start.extensions)
        artifact.ClearField("metadata")
        if start.HasField("metadata"):
            artifact.metadata.CopyFrom(start.metadata)
        self.info.kind = start.kind

    def add(self, delta: event_pb2.ArtifactDelta) -> None:
        """Take over what a delta adds."""
        if delta.texts:
            self.add_run(delta.texts)
        elif delta.HasField("part"):
            self._add_part(delta.part)
        if delta.last:
            self._close()

    def add_run(self, texts: Iterable[str], *, last: bool = False) -> None:
        """Take over what a delta adds that holds nothing but texts."""
        if self._texts is None:
            self._texts = []
        self._texts.extend(texts)
        if last:
            self._close()

    def rewind(self, remains: artifact_pb2.Artifact) -> None:
        """Hold what remains and nothing else, and take appends again."""
        self._artifact.CopyFrom(remains)
        del self._artifact.parts[:]
        self._texts = None
        for part in remains.parts:
            self._add_part(part)
        self.is_closed = self.info.closed = False

    def artifact(self) -> artifact_pb2.Artifact:
        """Return it as it stands, its text joined."""
        if self._texts is None:
            return self._artifact
        self._texts = ["".join(self._texts)]
        whole = artifact_pb2.Artifact()
        whole.CopyFrom(self._artifact)
        whole.parts.add(text=self._texts[0])
        return whole

    def _close(self) -> None:
        self.is_closed = self.info.closed = True

    def _add_part(self, part: part_pb2.Part) -> None:
        if _is_plain_text(part):
            self.add_run((part.text,))
            return
        if self._texts is not None:
            self._artifact.parts.add(text="".join(self._texts))
            self._texts = None
        self._artifact.parts.append(part)


def _is_plain_text(part: part_pb2.Part) -> bool:
    return part.HasField("text") and not (
        part.HasField("metadata") or part.filename or part.media_type
    )
