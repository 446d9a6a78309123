"""The text of a streaming answer as chunks that hold each text once."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from trunkline.a2a_client.answers import join_lines


class ShownChunk(NamedTuple):
    """Text to add to the shown text."""

    text: str
    replaces: bool = False
    """All text that was shown before is void."""


@dataclass(slots=True)
class _ShownText:
    """The shown text of one artifact, and how much of it the artifact has repeated."""

    pieces: list[str] = field(default_factory=list)
    repeated: int | None = None
    """Length of the artifact's text after a cut, or None if all shown text belongs to it."""

    def join(self) -> str:
        text = "".join(self.pieces)
        self.pieces = [text]
        return text


class StreamedText:
    """Converts changes of artifacts to chunks.

    Text that an artifact repeats after it was cut back, as by an agent that runs again, is not
    shown again. If it differs from the shown text, one chunk replaces everything. Artifacts of the
    steps of a plan, which are written at the same time, are shown in the order of the steps.
    """

    def __init__(self, read: Callable[[], dict[str, str]], *, is_resumed: bool) -> None:
        """Start without text.

        Args:
            read: Returns the current texts of the answer's artifacts by their ids, in order.
            is_resumed: An earlier stream has shown the beginning, which is unknown here.
        """
        self._read = read
        self._is_start_known = not is_resumed
        self._shown: dict[str, _ShownText] = {}
        self._pieces: list[str] = []
        self._last_id = ""
        # The artifact that is the answer. Text of other artifacts was shown only until it came.
        self._answer_id = ""
        # The artifact that must be complete before waiting artifacts, with their steps, are shown.
        self._open_id = ""
        self._waiting: dict[str, int] = {}
        self._complete: set[str] = set()
        self._last_step = 0

    @property
    def has_waiting(self) -> bool:
        """Some text has arrived and is not shown yet."""
        return bool(self._waiting)

    def append(self, artifact_id: str, text: str, *, step: int | None = None) -> ShownChunk | None:
        """Return the chunk for text at the end of an artifact; None if it adds none.

        An artifact with a step is shown after the artifacts of earlier steps are complete.
        """
        if self._is_held(artifact_id, step):
            return None
        shown = self._shown.setdefault(artifact_id, _ShownText())
        if shown.repeated is not None:
            before = shown.join()
            expected = before[shown.repeated : shown.repeated + len(text)]
            if not text.startswith(expected):
                return self._start_over()
            shown.repeated += len(expected)
            text = text[len(expected) :]
            if shown.repeated == len(before):
                shown.repeated = None
        return self._show(artifact_id, shown, text)

    def replace(self, artifact_id: str, text: str, *, step: int | None = None) -> ShownChunk | None:
        """Return the chunk for an artifact whose text is this now; None if it adds none."""
        if self._is_held(artifact_id, step):
            return None
        if not self._is_start_known:
            return self._start_over()
        shown = self._shown.setdefault(artifact_id, _ShownText())
        before = shown.join()
        if text.startswith(before):
            shown.repeated = None
            return self._show(artifact_id, shown, text[len(before) :])
        if before.startswith(text):
            shown.repeated = len(text)
            return None
        return self._start_over()

    def complete(self, artifact_id: str) -> ShownChunk | None:
        """Note that an artifact is complete; return the chunk of artifacts that waited for it."""
        self._complete.add(artifact_id)
        if artifact_id != self._open_id:
            return None
        self._open_id = ""
        texts = self._read() if self._waiting else {}
        chunks: list[ShownChunk] = []
        while self._waiting and not self._open_id:
            waiting_id = min(self._waiting, key=self._waiting.__getitem__)
            if self._waiting[waiting_id] > self._last_step + 1:
                break
            self._open(waiting_id, self._waiting.pop(waiting_id))
            shown = self._shown.setdefault(waiting_id, _ShownText())
            if chunk := self._show(waiting_id, shown, texts.get(waiting_id, "")):
                chunks.append(chunk)
            if waiting_id in self._complete:
                self._open_id = ""
        return ShownChunk("".join(chunk.text for chunk in chunks)) if chunks else None

    def choose_answer(self, artifact_id: str) -> None:
        """Take an artifact as the answer. It is expected to begin with the shown text."""
        if not self._answer_id:
            self._answer_id = self._last_id = artifact_id
            self._shown = {artifact_id: _ShownText(["".join(self._pieces)], 0)}
            self._open_id = ""
            self._waiting.clear()

    def finish(self, text: str) -> ShownChunk | None:
        """Return the chunk that completes the text; None if all of it was shown."""
        if not self._is_start_known:
            return None
        shown = "".join(self._pieces)
        if text.startswith(shown):
            return ShownChunk(text[len(shown) :]) if len(text) > len(shown) else None
        return ShownChunk(text, replaces=True)

    def _is_held(self, artifact_id: str, step: int | None) -> bool:
        """Return whether an artifact is not shown now."""
        if self._answer_id:
            return artifact_id != self._answer_id
        if step is None or artifact_id in self._shown or not self._is_start_known:
            return False
        # An earlier step may not have begun.
        if self._open_id or step > self._last_step + 1:
            self._waiting[artifact_id] = step
            return True
        self._open(artifact_id, step)
        return False

    def _open(self, artifact_id: str, step: int) -> None:
        self._open_id = artifact_id
        self._last_step = max(self._last_step, step)

    def _show(self, artifact_id: str, shown: _ShownText, text: str) -> ShownChunk | None:
        if not text:
            return None
        shown.pieces.append(text)
        if artifact_id != self._last_id and self._pieces and not self._pieces[-1].endswith("\n"):
            text = f"\n{text}"
        self._last_id = artifact_id
        self._pieces.append(text)
        return ShownChunk(text)

    def _start_over(self) -> ShownChunk:
        """Show the whole text again."""
        texts = self._read()
        self._is_start_known = True
        self._open_id = ""
        self._waiting.clear()
        self._shown = {artifact_id: _ShownText([text]) for artifact_id, text in texts.items()}
        text = join_lines(texts.values())
        self._pieces = [text]
        self._last_id = next(reversed(texts), "")
        return ShownChunk(text, replaces=True)
