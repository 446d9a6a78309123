"""Reads HTML: its text, by headings. Scripts, styles and menus are left out."""

import re
from html.parser import HTMLParser

from trunkline.documents.reading.kinds import Extract, decoded, heading
from trunkline.documents.reading.outline import Outline

_LEFT_OUT = frozenset(
    {"script", "style", "noscript", "template", "svg", "nav", "iframe", "object", "select"}
)
_HEADINGS = {f"h{level}": level for level in range(1, 7)}
_BLOCK_NAMES = (
    "address article aside blockquote dd div dl dt figcaption figure footer header hr li main ol "
    "p pre section table tr ul"
)
_BLOCKS = frozenset(_BLOCK_NAMES.split())
_BLANK = re.compile(r"[ \t\r\f\v\n]+")


def read_html(content: bytes) -> Extract:
    """Read HTML: a section for each heading. The title is the page's, or its first heading."""
    page = _Page()
    page.feed(decoded(content))
    page.close()
    return page.extract()


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self._left_out = ""
        self._depth = 0
        self._title: list[str] | None = None
        self._page_title = ""
        self._heading: list[str] | None = None
        self._outline = Outline()
        self._gathered: list[str] = []

    def extract(self) -> Extract:
        """Return what was read."""
        self._close_section()
        self._outline.end()
        sections = self._outline.sections
        first = next((one.headings[0] for one in sections if one.headings), "")
        return Extract(self._page_title or first, sections)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """See what begins."""
        if self._left_out:
            self._depth += tag == self._left_out
        elif tag in _LEFT_OUT:
            self._left_out, self._depth = tag, 1
        elif tag == "title":
            self._title = []
        elif tag in _HEADINGS:
            self._close_section()
            self._heading = []
        elif tag in _BLOCKS:
            self._gathered.append("\n\n" if tag != "li" else "\n")
        elif tag == "br":
            self._gathered.append("\n")
        elif tag in {"td", "th"}:
            self._gathered.append(" | ")

    def handle_endtag(self, tag: str) -> None:
        """See what ends."""
        if self._left_out:
            self._depth -= tag == self._left_out
            if self._depth == 0:
                self._left_out = ""
        elif tag == "title" and self._title is not None:
            self._page_title = self._page_title or heading("".join(self._title))
            self._title = None
        elif tag in _HEADINGS and self._heading is not None:
            self._outline.head(_HEADINGS[tag], "".join(self._heading))
            self._heading = None
        elif tag in _BLOCKS:
            self._gathered.append("\n\n")

    def handle_data(self, data: str) -> None:
        """Take text."""
        if self._left_out:
            return
        if self._title is not None:
            self._title.append(data)
        elif self._heading is not None:
            self._heading.append(data)
        else:
            self._gathered.append(_BLANK.sub(" ", data))

    def _close_section(self) -> None:
        lines = [line.strip() for line in "".join(self._gathered).split("\n")]
        self._outline.add(re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip())
        self._gathered = []
