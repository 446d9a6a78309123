"""Reads HTML into sections, in time linear in its size.

The tokenizer follows the HTML standard where it matters for text. Markup without an end, such as a
comment without `-->`, reaches to the end of the page, so that no part of the page is read twice.
"""

import re
from collections.abc import Iterator
from enum import Enum, auto
from html import unescape
from typing import Final, TypeAlias

from trunkline_agents.research.documents.formats import (
    DocumentText,
    Outline,
    UnreadableFileError,
    decode_text,
    normalize_heading,
)

_SKIPPED_ELEMENTS = frozenset(
    {"script", "style", "noscript", "template", "svg", "nav", "iframe", "object", "select"}
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCK_NAMES = (
    "address article aside blockquote dd div dl dt figcaption figure footer header hr li main ol "
    "p pre section table tr ul"
)
_BLOCKS = frozenset(_BLOCK_NAMES.split())
_WHITESPACE = re.compile(r"[ \t\r\f\v\n]+")
# Elements whose content is text, even where it looks like a tag.
_TEXT_ELEMENTS = frozenset(
    {"script", "style", "title", "textarea", "iframe", "noembed", "noframes", "xmp"}
)
_TAG: Final = re.compile(r"<(/?)([A-Za-z][^\s/>]*)")
# The rest of a tag up to its end, or up to the value of an attribute.
_ATTRIBUTES: Final = re.compile(r"""[^>=]*(?:>|=\s*(["']?))""")
_LEADING_ZEROS: Final = re.compile(r"(&#[xX])0+(?=[0-9A-Fa-f])|(&#)0+(?=[0-9])")
_LONG_REFERENCE: Final = re.compile(r"&#(?:[0-9]{8,}|[xX][0-9A-Fa-f]{8,});?")
_TOKEN_LIMIT: Final = 3_000_000


class _Kind(Enum):
    TEXT = auto()
    START = auto()
    END = auto()


_Token: TypeAlias = tuple[_Kind, str]
"""A text with resolved character references, or the name of an element."""


def read_html(content: bytes) -> DocumentText:
    """Read HTML: a section for each heading.

    The title is the title of the page or its first heading. Scripts, styles and menus are left out.

    Raises:
        UnreadableFileError: it is not text, or has too much markup or too many sections.
    """
    page = _Page()
    for number, (kind, value) in enumerate(_iter_tokens(decode_text(content))):
        if number >= _TOKEN_LIMIT:
            raise UnreadableFileError("it holds too much markup")
        match kind:
            case _Kind.TEXT:
                page.add_text(value)
            case _Kind.START:
                page.start(value)
            case _Kind.END:
                page.end(value)
    return page.extract()


def _iter_tokens(text: str) -> Iterator[_Token]:
    """Yield the texts, starts and ends of a page. Each step begins where the last one ended."""
    position, end = 0, len(text)
    while position < end:
        opening = text.find("<", position)
        opening = end if opening < 0 else opening
        if opening > position:
            yield _Kind.TEXT, _resolve(text[position:opening])
        if opening == end:
            return
        tag = _TAG.match(text, opening)
        if tag is None:
            position = _skip_markup(text, opening)
            if position == opening + 1:
                yield _Kind.TEXT, "<"
            continue
        name = tag[2].lower()
        position = _find_tag_end(text, tag.end())
        if position == end and text[-1] != ">":
            return
        if tag[1]:
            yield _Kind.END, name
            continue
        yield _Kind.START, name
        if text[position - 2] == "/":
            yield _Kind.END, name
        elif name in _TEXT_ELEMENTS:
            closing = _find_closing_tag(text, name, position)
            yield _Kind.TEXT, _resolve(text[position:closing])
            position = closing


def _skip_markup(text: str, opening: int) -> int:
    """Return the end of a comment, declaration or instruction, or else the end of `<`."""
    if text.startswith("<!--", opening):
        # `<!-->` and `<!--->` are whole comments.
        return _find_end(text, "-->", opening + 2)
    if text.startswith(("<!", "<?", "</"), opening):
        return _find_end(text, ">", opening + 2)
    return opening + 1


def _find_tag_end(text: str, position: int) -> int:
    """Return the end of a tag whose name ends at a position. `>` in a quoted value ends nothing."""
    while (part := _ATTRIBUTES.match(text, position)) is not None:
        position = part.end()
        if text[part.end() - 1] == ">" and not part[1]:
            return position
        if part[1]:
            position = _find_end(text, part[1], position)
    return len(text)


def _find_closing_tag(text: str, name: str, position: int) -> int:
    closing = re.compile(rf"</{re.escape(name)}(?=[\s/>])", re.IGNORECASE).search(text, position)
    return len(text) if closing is None else closing.start()


def _find_end(text: str, mark: str, position: int) -> int:
    start = text.find(mark, position)
    return len(text) if start < 0 else start + len(mark)


def _resolve(text: str) -> str:
    """Resolve character references. Numbers that no character has are replaced."""
    if "&" not in text:
        return text
    return unescape(_LONG_REFERENCE.sub("\ufffd", _LEADING_ZEROS.sub(r"\1\2", text)))


class _Page:
    def __init__(self) -> None:
        self._skipped_element = ""
        self._depth = 0
        self._title: list[str] | None = None
        self._page_title = ""
        self._heading: list[str] | None = None
        self._outline = Outline()
        self._buffer: list[str] = []

    def extract(self) -> DocumentText:
        """Return the text of the page."""
        self._close_section()
        self._outline.finish()
        sections = self._outline.sections
        first = next((section.headings[0] for section in sections if section.headings), "")
        return DocumentText(self._page_title or first, sections)

    def start(self, tag: str) -> None:
        """Handle the start of an element."""
        if self._skipped_element:
            self._depth += tag == self._skipped_element
        elif tag in _SKIPPED_ELEMENTS:
            self._skipped_element, self._depth = tag, 1
        elif tag == "title":
            self._title = []
        elif tag in _HEADINGS:
            self._close_section()
            self._heading = []
        elif tag in _BLOCKS:
            self._buffer.append("\n\n" if tag != "li" else "\n")
        elif tag == "br":
            self._buffer.append("\n")
        elif tag in {"td", "th"}:
            self._buffer.append(" | ")

    def end(self, tag: str) -> None:
        """Handle the end of an element."""
        if self._skipped_element:
            self._depth -= tag == self._skipped_element
            if self._depth == 0:
                self._skipped_element = ""
        elif tag == "title" and self._title is not None:
            self._page_title = self._page_title or normalize_heading("".join(self._title))
            self._title = None
        elif tag in _HEADINGS and self._heading is not None:
            self._outline.add_heading(_HEADINGS[tag], "".join(self._heading))
            self._heading = None
        elif tag in _BLOCKS:
            self._buffer.append("\n\n")

    def add_text(self, data: str) -> None:
        """Handle text."""
        if self._skipped_element:
            return
        if self._title is not None:
            self._title.append(data)
        elif self._heading is not None:
            self._heading.append(data)
        else:
            self._buffer.append(_WHITESPACE.sub(" ", data))

    def _close_section(self) -> None:
        lines = [line.strip() for line in "".join(self._buffer).split("\n")]
        self._outline.add_text(re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip())
        self._buffer = []
