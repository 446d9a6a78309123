"""The content of an artifact that a client builds from events, to compare with a snapshot."""

from collections.abc import Iterable

from trunkline.v1 import part_pb2


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


def is_plain_text(part: part_pb2.Part) -> bool:
    """Return whether a part is text without metadata, so that it may be joined with others."""
    return part.HasField("text") and not (
        part.HasField("metadata") or part.filename or part.media_type
    )


def _to_part(item: str | part_pb2.Part) -> part_pb2.Part:
    return part_pb2.Part(text=item) if isinstance(item, str) else item
