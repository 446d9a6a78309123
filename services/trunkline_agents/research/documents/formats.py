"""Reads Markdown, plain text and PDF into sections with headings, pages and lines."""

import io
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING, TypeAlias

from trunkline_agents.research.documents.passages import Section

if TYPE_CHECKING:
    from pypdf import PdfReader

FILE_LIMIT_BYTES = 64 * 1024 * 1024
"""Larger files are refused."""
TEXT_LIMIT_CHARS = 20_000_000
"""Files with more text are refused, whatever their size on the disk."""
SECTION_LIMIT = 100_000
HEADING_CHARS = 200
"""Longer headings are cut."""

# Terminals interpret some of these. Tabs and line ends are allowed.
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufeff]")
_MEDIA_TYPES = {
    ".md": "text/markdown",
    ".markdown": "text/markdown",
    ".mdx": "text/markdown",
    ".txt": "text/plain",
    ".text": "text/plain",
    ".rst": "text/plain",
    ".html": "text/html",
    ".htm": "text/html",
    ".xhtml": "text/html",
    ".pdf": "application/pdf",
}
_FRONT_TITLE = re.compile(r"title:[ \t]*(.+)$", re.IGNORECASE)
# A first line `---` begins front matter only if a second one follows within these lines.
_FRONT_LINES = 100
_PAGE_LIMIT = 5000
# A word that is hyphenated at the end of a line.
_HYPHEN = re.compile(r"(?<=[a-z])-\n(?=[a-z])")


class UnreadableFileError(Exception):
    """A file can't be read. The text is a short reason."""


@dataclass(frozen=True, slots=True)
class DocumentText:
    """The text of a document."""

    title: str
    """Empty if the document has none."""
    sections: list[Section]
    page_count: int = 0


FormatReader: TypeAlias = Callable[[bytes], DocumentText]


def guess_media_type(path: PurePath) -> str:
    """Return the media type of a file by its name; empty if it is unknown."""
    return _MEDIA_TYPES.get(path.suffix.lower(), "")


def decode_text(content: bytes) -> str:
    """Decode content as UTF-8, as UTF-16 with a byte order mark, or else as Windows-1252.

    Raises:
        UnreadableFileError: the content is not text.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        text = content.decode("utf-16", errors="replace")
    else:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            text = content.decode("cp1252", errors="replace")
    if "\0" in text:
        raise UnreadableFileError("it is no text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def clean_text(text: str) -> str:
    """Remove control characters and unpaired surrogates."""
    return _CONTROL_CHARACTERS.sub("", text)


def normalize_heading(text: str) -> str:
    """Return a heading on one line of bounded length."""
    return " ".join(clean_text(text).split())[:HEADING_CHARS]


class Outline:
    """Collects a document's sections. A heading without text below becomes a section itself."""

    def __init__(self) -> None:
        self.sections: list[Section] = []
        self._headings: dict[int, str] = {}
        self._line: int | None = None
        self._has_no_text = False

    def add_heading(self, level: int, text: str, line: int | None = None) -> None:
        """Add a heading. A heading without text only ends the section above it.

        Raises:
            UnreadableFileError: the document has too many sections; also of the other methods.
        """
        self._flush_heading(level)
        self._headings = {key: heading for key, heading in self._headings.items() if key < level}
        if heading := normalize_heading(text):
            self._headings[level] = heading
            self._line = line
            self._has_no_text = True

    def add_text(self, text: str, line: int | None = None) -> None:
        """Add text below the last heading."""
        if text.strip():
            self._has_no_text = False
            self._add(Section(text, tuple(self._headings.values()), line=line))

    def finish(self) -> None:
        """End the last section."""
        self._flush_heading(0)

    def _flush_heading(self, next_level: int) -> None:
        # Text below a deeper heading also stands below this one.
        if self._has_no_text and next_level <= max(self._headings):
            headings = tuple(self._headings.values())
            self._add(Section(headings[-1], headings, line=self._line))
        self._has_no_text = False

    def _add(self, section: Section) -> None:
        if len(self.sections) >= SECTION_LIMIT:
            raise UnreadableFileError("it has too many sections")
        self.sections.append(section)


def read_text(content: bytes) -> DocumentText:
    """Read plain text as one section."""
    text = decode_text(content)
    return DocumentText("", [Section(text, line=1)] if text.strip() else [])


def read_markdown(content: bytes) -> DocumentText:
    """Read Markdown: a section for each heading.

    The title is the title of the front matter, or the first heading.
    """
    from markdown_it import MarkdownIt

    lines = decode_text(content).split("\n")
    title, skipped = _read_front_matter(lines)
    lines = lines[skipped:]
    parser = MarkdownIt("commonmark")
    # Only the blocks, because their content is quoted without changes.
    parser.core.ruler.enableOnly(["normalize", "block"])
    tokens = parser.parse("\n".join(lines))
    outline = Outline()
    first = 0
    for token, inline in pairwise(tokens):
        if token.type != "heading_open" or token.level or token.map is None:
            continue
        start, end = token.map
        # A paragraph of several lines or a table above a rule is no heading.
        if end - start > 1 and ("\n" in inline.content or inline.content.startswith("|")):
            continue
        outline.add_text("\n".join(lines[first:start]), skipped + first + 1)
        outline.add_heading(int(token.tag[1:]), inline.content, skipped + start + 1)
        first = end
    outline.add_text("\n".join(lines[first:]), skipped + first + 1)
    outline.finish()
    headings = next((section.headings for section in outline.sections), ())
    return DocumentText(title or (headings[0] if headings else ""), outline.sections)


def _read_front_matter(lines: Sequence[str]) -> tuple[str, int]:
    """Return the title of the front matter, or "", and the number of its lines."""
    if lines[0].strip() != "---":
        return "", 0
    title = ""
    for number, line in enumerate(lines[1:_FRONT_LINES], start=2):
        if line.strip() in {"---", "..."}:
            return title, number
        if match := _FRONT_TITLE.match(line):
            title = normalize_heading(match[1].strip("\"' "))
    return "", 0


def read_pdf(content: bytes) -> DocumentText:
    """Read a PDF: a section for each page with text. Text in pictures is not read.

    Raises:
        UnreadableFileError: it is no PDF, needs a password, or has no text.
    """
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    try:
        reader = PdfReader(io.BytesIO(content))
        if reader.is_encrypted and not reader.decrypt(""):
            raise UnreadableFileError("it needs a password")
        pages = reader.pages
        if len(pages) > _PAGE_LIMIT:
            raise UnreadableFileError(f"it has more than {_PAGE_LIMIT} pages")
        sections: list[Section] = []
        broken = length = 0
        for number, page in enumerate(pages, start=1):
            try:
                text = _HYPHEN.sub("", page.extract_text())
            # A broken page must not hide the others.
            except Exception:  # noqa: BLE001
                broken += 1
                continue
            length += len(text)
            if length > TEXT_LIMIT_CHARS:
                raise UnreadableFileError("it holds too much text")
            if text.strip():
                sections.append(Section(text, page=number))
        if not sections:
            problem = "its pages are broken" if broken else "it holds no text, perhaps pictures"
            raise UnreadableFileError(problem)
        return DocumentText(_title(reader), sections, page_count=len(pages))
    except PyPdfError as error:
        raise UnreadableFileError("it is a broken PDF") from error


def _title(reader: "PdfReader") -> str:
    try:
        title = reader.metadata.title if reader.metadata else ""
    # The text is readable even if the metadata is not.
    except Exception:  # noqa: BLE001
        return ""
    return normalize_heading(title) if isinstance(title, str) else ""
