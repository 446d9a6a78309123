"""The headings of a document, and the text below each."""

from trunkline.documents.passages import Section
from trunkline.documents.reading.kinds import heading


class Outline:
    """Gathers a document's sections. A heading that nothing stands below is text itself."""

    def __init__(self) -> None:
        self.sections: list[Section] = []
        self._headings: dict[int, str] = {}
        self._line: int | None = None
        self._is_bare = False

    def head(self, level: int, text: str, line: int | None = None) -> None:
        """Take a heading; one without text only ends what was above it."""
        self._keep_bare(level)
        self._headings = {key: one for key, one in self._headings.items() if key < level}
        if found := heading(text):
            self._headings[level] = found
            self._line = line
            self._is_bare = True

    def add(self, text: str, line: int | None = None) -> None:
        """Take what stands below the last heading."""
        if text.strip():
            self._is_bare = False
            self.sections.append(Section(text, tuple(self._headings.values()), line=line))

    def end(self) -> None:
        """Say that nothing follows."""
        self._keep_bare(0)

    def _keep_bare(self, next_level: int) -> None:
        # What is below a deeper heading stands below this one, too.
        if self._is_bare and next_level <= max(self._headings):
            headings = tuple(self._headings.values())
            self.sections.append(Section(headings[-1], headings, line=self._line))
        self._is_bare = False
