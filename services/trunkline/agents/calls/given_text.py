"""The text of a child as its reader gets it, piece by piece, without a way to take a piece back."""

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Artifact:
    chars: int = 0
    """The length of its text, with that of earlier turns."""
    given: list[str] = field(default_factory=list)
    """The text of this turn that the reader has."""
    repeated: str = ""
    """The text that the reader has, and that the child is expected to write again."""


class GivenText:
    """The text that a reader has got, and what it gets of the text that follows.

    A child that runs again, because its host died for example, cuts its artifacts and writes them
    anew. What it repeats is not given twice. If it writes something else, the reader gets no more.
    """

    def __init__(self) -> None:
        self._artifacts: dict[str, _Artifact] = {}
        self._differs = False

    @property
    def is_stale(self) -> bool:
        """True if the reader has text that the child took back and has not written again."""
        return self._differs or any(each.repeated for each in self._artifacts.values())

    def skip(self, artifact_id: str, texts: Sequence[str]) -> None:
        """Note text of an earlier turn, which the reader does not get."""
        self._artifacts.setdefault(artifact_id, _Artifact()).chars += sum(map(len, texts))

    def add(self, artifact_id: str, texts: Sequence[str]) -> str:
        """Return what the reader gets of new text."""
        artifact = self._artifacts.get(artifact_id)
        if artifact is None:
            artifact = self._artifacts[artifact_id] = _Artifact()
        text = "".join(texts)
        artifact.chars += len(text)
        if artifact.repeated:
            known, text = text[: len(artifact.repeated)], text[len(artifact.repeated) :]
            self._differs = self._differs or not artifact.repeated.startswith(known)
            artifact.repeated = artifact.repeated[len(known) :]
            artifact.given.append(known)
        if self._differs:
            return ""
        artifact.given.append(text)
        return text

    def cut(self, artifact_id: str, remaining: str) -> None:
        """Note that the child cut an artifact back to `remaining`."""
        artifact = self._artifacts.setdefault(artifact_id, _Artifact())
        given = "".join(artifact.given)
        kept = max(0, len(given) - (artifact.chars - len(remaining)))
        # A second cut may come before all is repeated.
        artifact.repeated = given[kept:] + artifact.repeated
        artifact.given = [given[:kept]]
        artifact.chars = len(remaining)
