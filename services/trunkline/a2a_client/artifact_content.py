"""The content of artifacts that a client builds from events, and the limits of a turn."""

from collections.abc import Iterable
from typing import Final

from trunkline.core.parts import is_plain_text
from trunkline.errors import PeerProtocolError
from trunkline.v1 import artifact_pb2, part_pb2

_MIB: Final = 1024 * 1024
MAX_ARTIFACTS: Final = 1000
"""Limit of the artifacts that an agent may begin in one turn."""


class TurnLimits:
    """Counts what an agent sends in one turn: artifacts and bytes."""

    def __init__(self, peer: str, content_bytes: int) -> None:
        """`peer` is the agent's name in errors, and `content_bytes` the limit of its content."""
        self._peer = peer
        self._content_bytes = self._remaining_bytes = content_bytes
        self._remaining_artifacts = MAX_ARTIFACTS

    def count_artifact(self, header: artifact_pb2.Artifact) -> None:
        """Count an artifact that begins. PeerProtocolError: it is one too many."""
        self._remaining_artifacts -= 1
        if self._remaining_artifacts < 0:
            problem = f"it sent more than {MAX_ARTIFACTS} artifacts in one turn"
            raise PeerProtocolError(self._peer, problem)
        self._count(len(header.name) + len(header.description))

    def count_parts(self, parts: Iterable[part_pb2.Part]) -> None:
        """Count content. PeerProtocolError: it is too much."""
        self._count(sum(part.ByteSize() for part in parts))

    def _count(self, size_bytes: int) -> None:
        self._remaining_bytes -= size_bytes
        if self._remaining_bytes < 0:
            problem = f"it sent more than {self._content_bytes / _MIB:.3g} MiB in one turn"
            raise PeerProtocolError(self._peer, problem)


class ArtifactContent:
    """The parts of an artifact, with adjacent plain texts joined, to compare with a snapshot."""

    def __init__(self, parts: Iterable[part_pb2.Part] = ()) -> None:
        self._items: list[str | part_pb2.Part] = []
        # The plain texts after these items, not yet joined.
        self._texts: list[str] = []
        for part in parts:
            self.add(part)

    @property
    def is_empty(self) -> bool:
        """Nothing was added, not even an empty text."""
        return not self._items and not self._texts

    def add(self, part: part_pb2.Part) -> None:
        """Append a part."""
        if is_plain_text(part):
            self._texts.append(part.text)
            return
        self._flush_text()
        self._items.append(part)

    def find_suffix(self, parts: Iterable[part_pb2.Part]) -> list[part_pb2.Part] | None:
        """Return the rest of `parts` after this content; None if they don't start with it."""
        theirs = ArtifactContent(parts).items()
        ours = self.items()
        if not ours:
            return [_to_part(item) for item in theirs]
        last = len(ours) - 1
        if len(theirs) < len(ours) or theirs[:last] != ours[:last]:
            return None
        before, after = ours[last], theirs[last]
        rest: list[str | part_pb2.Part] = theirs[last + 1 :]
        if isinstance(before, str) and isinstance(after, str):
            if not after.startswith(before):
                return None
            if len(after) > len(before):
                rest.insert(0, after[len(before) :])
        elif before != after:
            return None
        return [_to_part(item) for item in rest]

    def items(self) -> list[str | part_pb2.Part]:
        """Return texts and other parts in order, without empty texts."""
        text = "".join(self._texts)
        self._texts = [text] if self._texts else []
        return [*self._items, text] if text else list(self._items)

    def parts(self) -> list[part_pb2.Part]:
        """Return the content as parts, without empty texts."""
        return [_to_part(item) for item in self.items()]

    def _flush_text(self) -> None:
        if text := "".join(self._texts):
            self._items.append(text)
        self._texts = []


def _to_part(item: str | part_pb2.Part) -> part_pb2.Part:
    return part_pb2.Part(text=item) if isinstance(item, str) else item
