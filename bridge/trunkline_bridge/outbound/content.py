"""What an artifact holds, so that a snapshot of it can be compared with what was written of it."""

from collections.abc import Iterable

from trunkline.v1 import part_pb2


class Content:
    """Parts in order; texts that stand side by side and say nothing else are one text."""

    def __init__(self, parts: Iterable[part_pb2.Part] = ()) -> None:
        self._items: list[str | part_pb2.Part] = []
        # The text that the last item is growing into.
        self._texts: list[str] = []
        for part in parts:
            self.add(part)

    @property
    def is_empty(self) -> bool:
        """Nothing was added, not even an empty text."""
        return not self._items and not self._texts

    def add(self, part: part_pb2.Part) -> None:
        """Add a part behind the others."""
        if is_plain_text(part):
            self._texts.append(part.text)
            return
        self._join()
        self._items.append(part)

    def rest_of(self, parts: Iterable[part_pb2.Part]) -> list[part_pb2.Part] | None:
        """Return what other parts hold behind what this holds; None: they begin otherwise."""
        theirs = Content(parts).items()
        ours = self.items()
        if not ours:
            return [_part(item) for item in theirs]
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
        return [_part(item) for item in rest]

    def items(self) -> list[str | part_pb2.Part]:
        """Return all of it, without empty texts."""
        text = "".join(self._texts)
        self._texts = [text] if self._texts else []
        return [*self._items, text] if text else list(self._items)

    def _join(self) -> None:
        if text := "".join(self._texts):
            self._items.append(text)
        self._texts = []


def is_plain_text(part: part_pb2.Part) -> bool:
    """Whether a part is text and nothing else, so that it may be joined with others."""
    return part.HasField("text") and not (
        part.HasField("metadata") or part.filename or part.media_type
    )


def _part(item: str | part_pb2.Part) -> part_pb2.Part:
    return part_pb2.Part(text=item) if isinstance(item, str) else item
