"""Shows an answer while it arrives: Markdown by blocks, and a spinner while nothing arrives.

Both need a terminal. To a pipe, the answer is written as it comes, and progress is not shown.
"""

import sys
from typing import TYPE_CHECKING, Final, TextIO

from trunkline.cli.terminal import is_interactive, write
from trunkline.core.printable import to_plain_line

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

_FENCES: Final = ("```", "~~~")
_REFRESHES_PER_S: Final = 8
_PROGRESS_CHARS: Final = 200


class AnswerView:
    """Writes an answer to stdout, and progress to stderr until more of the answer arrives."""

    def __init__(self, *, is_plain: bool = False) -> None:
        """With `is_plain`, Markdown is not rendered."""
        self._renders = not is_plain and is_interactive(sys.stdout)
        self._has_spinner = is_interactive(sys.stderr)
        self._live: Live | None = None
        # The text of the block that is not complete yet.
        self._block = ""

    def write(self, text: str) -> None:
        """Write a piece of the answer."""
        if not self._renders:
            self._stop_live()
            write(text)
            return
        if not self._block:
            self._stop_live()
        self._block += text
        if "\n" in text:
            self._print_complete_blocks()
        if self._block:
            self._show_block()

    def show_progress(self, text: str) -> None:
        """Show a line of progress with a spinner, in place of the line before."""
        if not self._has_spinner or self._block:
            return
        from rich.spinner import Spinner
        from rich.text import Text

        line = Text(to_plain_line(text, _PROGRESS_CHARS), style="dim", no_wrap=True)
        line.overflow = "ellipsis"
        self._stop_live()
        self._live = _start_live(sys.stderr, Spinner("dots", line))

    def close(self) -> None:
        """Print the rest of the answer, and stop showing progress. Later text is not rendered."""
        self._stop_live()
        if self._block:
            self._print_block(self._block)
            self._block = ""
        self._renders = self._has_spinner = False

    def _print_complete_blocks(self) -> None:
        blocks = split_blocks(self._block)
        if len(blocks) > 1:
            self._stop_live()
        for block in blocks[:-1]:
            self._print_block(block)
        self._block = blocks[-1]

    def _print_block(self, block: str) -> None:
        from trunkline.cli.rich_console import looks_like_markdown, open_console, render_markdown

        if not looks_like_markdown(block):
            write(block)
            return
        open_console(sys.stdout).print(render_markdown(block))
        if block.endswith("\n\n"):
            write("\n")

    def _show_block(self) -> None:
        """Show the end of the incomplete block as text, until it is complete."""
        from rich.text import Text

        from trunkline.cli.rich_console import Harmless

        if self._live is None:
            self._live = _start_live(sys.stdout, Text(""))
        # Lines above the terminal's first one could not be erased.
        lines = self._block.splitlines()[-self._live.console.height // 2 :]
        self._live.update(Harmless(Text("\n".join(lines))))

    def _stop_live(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def split_blocks(text: str) -> list[str]:
    """Split text after each blank line outside of fenced code; the last block may be incomplete."""
    blocks = [""]
    fence = ""
    for line in text.splitlines(keepends=True):
        mark = line.lstrip()[:3]
        if mark in _FENCES and fence in ("", mark):
            fence = "" if fence else mark
        blocks[-1] += line
        if line == "\n" and not fence and blocks[-1].strip():
            blocks.append("")
    return blocks


def _start_live(stream: TextIO, content: "RenderableType") -> "Live":
    """Draw something on a terminal until it is stopped, which erases it."""
    from rich.live import Live

    from trunkline.cli.rich_console import open_console

    live = Live(
        content,
        console=open_console(stream),
        refresh_per_second=_REFRESHES_PER_S,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    live.start()
    return live
