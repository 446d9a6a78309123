"""Rich output on a terminal. Text of others brings no markup, control character or hidden link.

Only commands that write to a terminal import this module: rich takes a tenth of a second to load.
"""

import re
from collections.abc import Iterable
from typing import Any, Final, TextIO, cast

from markdown_it import MarkdownIt
from rich.console import Console, ConsoleOptions, ConsoleRenderable, RenderResult
from rich.markdown import Markdown
from rich.segment import Segment

from trunkline.cli.terminal import has_colour, write_rendered
from trunkline.core.printable import remove_controls

# Stands for an asterisk that is arithmetic until the text is rendered. A private character, so that
# the parser has no opinion about it.
_ASTERISK: Final = "\ue000"
# The asterisks of `x**2` and `2*3`: between letters, digits or brackets.
_ARITHMETIC: Final = re.compile(r"(?<=[^\W_]|[)\]])\*+(?=[^\W_]|[(\[\\])")
# A heading, list, quote, fence, table, bold text, code or link.
_MARKDOWN: Final = re.compile(
    r"^ {0,3}(?:#{1,6} |[-*+] |> |```|~~~|\|[^\n]*\||[0-9]{1,3}[.)] [^\n]*\n\s*[0-9]{1,3}[.)] )"
    r"|\*\*[^\s*][^*\n]*\*\*|`[^`\n]+`|\[[^\[\]\n]+\]\([^()\s]+\)",
    re.MULTILINE,
)


class Harmless:
    """Renders something, without control characters and links in its texts."""

    def __init__(self, content: ConsoleRenderable) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for segment in console.render(self._content, options):
            if segment.control:
                continue
            style = segment.style
            if style is not None and style.link:
                style = style.update_link(None)
            text = remove_controls(segment.text.replace(_ASTERISK, "*"))
            yield Segment(text, style)


class _Block:
    """Renders something without the blank lines at its ends, which rich adds to some elements."""

    def __init__(self, content: ConsoleRenderable) -> None:
        self._content = content

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        lines = console.render_lines(self._content, options, pad=False)
        written = [n for n, line in enumerate(lines) if any(part.text.strip() for part in line)]
        for line in lines[written[0] : written[-1] + 1] if written else ():
            yield from line
            yield Segment.line()


def open_console(stream: TextIO) -> Console:
    """Return a console that writes to stdout or stderr, in colour if the stream has it."""
    return Console(
        file=cast("Any", _RenderedStream(stream)),
        force_terminal=stream.isatty(),
        color_system="auto" if has_colour(stream) else None,
        markup=False,
        highlight=False,
        emoji=False,
    )


def looks_like_markdown(text: str) -> bool:
    """Return whether a block of text has marks of Markdown. Plain text is shown as it is."""
    return _MARKDOWN.search(text) is not None


def render_markdown(text: str) -> Harmless:
    """Render Markdown, without blank lines at its ends.

    HTML stays text, line breaks stay, and a link shows its target.
    """
    source = _ARITHMETIC.sub(lambda match: _ASTERISK * len(match[0]), text)
    rendered = Markdown(source, hyperlinks=False, code_theme="ansi_dark")
    parser = MarkdownIt("commonmark", {"html": False, "breaks": True})
    rendered.parsed = parser.enable(["strikethrough", "table"]).parse(source)
    _keep_line_breaks(rendered.parsed)
    return Harmless(_Block(rendered))


def _keep_line_breaks(tokens: Iterable[Any]) -> None:
    for token in tokens:
        for child in token.children or ():
            if child.type == "softbreak":
                child.type = "hardbreak"


class _RenderedStream:
    """The stream of a console, as far as rich uses one."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.encoding = stream.encoding

    def write(self, text: str) -> int:
        return write_rendered(text, self._stream)

    def flush(self) -> None:
        self._stream.flush()

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()
