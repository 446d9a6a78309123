"""What goes to a terminal and not into a pipe: colour, and news of work under way."""

import io
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

DIM, RED, BOLD = "2", "31", "1"

# What terminals obey instead of showing it, and what turns the direction of other text. Our own
# colours go through, and so does what ends lines and cells.
_OBEYED = re.compile(r"(\x1b\[(?:0|1|2|31)m)|[\x00-\x08\x0b-\x1f\x7f-\x9f\u202d\u202e]")


class _Screen(io.TextIOWrapper):
    """A terminal that shows text and obeys none of it: agents, tools and peers wrote most."""

    def write(self, text: str, /) -> int:
        super().write(_OBEYED.sub(r"\1", text))
        return len(text)


def accept_any_text() -> None:
    """Let no text fail to be printed or read, and let a terminal obey none.

    What stdout's encoding lacks comes out as question marks, and what is not in stdin's encoding
    comes in so that `is_text` tells. Into pipes and files text goes as it is.
    """
    for stream, errors in (
        (sys.stdin, "surrogateescape"),
        (sys.stdout, "replace"),
        (sys.stderr, "backslashreplace"),
    ):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
    sys.stdout, sys.stderr = _guarded(sys.stdout), _guarded(sys.stderr)


def _guarded(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper) or not stream.isatty():
        return stream
    return _Screen(
        stream.buffer, encoding=stream.encoding, errors=stream.errors, line_buffering=True
    )


def is_text(read: str) -> bool:
    """Whether what was read, from stdin or as an argument, is text in the encoding expected."""
    try:
        read.encode()
    except UnicodeEncodeError:
        return False
    return True


def has_colour(stream: TextIO) -> bool:
    """Whether a stream shows colour: a terminal, unless NO_COLOR is set or it is a dumb one."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, stream: TextIO) -> str:
    """Return text in a colour, or as it is if `stream` shows none."""
    return f"\x1b[{colour}m{text}\x1b[0m" if has_colour(stream) else text


def write(text: str) -> None:
    """Write to stdout at once, without ending the line."""
    sys.stdout.write(text)
    sys.stdout.flush()


def note(text: str) -> None:
    """Show a line of progress on stderr, if that is a terminal."""
    if sys.stderr.isatty():
        print(paint(text, DIM, sys.stderr), file=sys.stderr, flush=True)


def say(text: str) -> None:
    """Print a line to stderr, terminal or not."""
    print(text, file=sys.stderr, flush=True)


def print_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows in columns; on a terminal the last column is cut at its edge."""
    table = [[" ".join(cell.split()) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(heads, *table, strict=True)]
    edge = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    for number, row in enumerate([list(heads), *table]):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        line = "  ".join(cells).rstrip()[:edge]
        print(paint(line, BOLD, sys.stdout) if number == 0 else line)


def print_json(value: object) -> None:
    """Print one JSON document on one line."""
    is_unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    print(json.dumps(value, ensure_ascii=not is_unicode), flush=True)


def state_name(state: str) -> str:
    """Return a state of the wire or the contract as people write it."""
    return state.removeprefix("TASK_STATE_").lower().replace("_", "-")
