"""What goes to a terminal and not into a pipe: colour, and news of work under way."""

import os
import sys
from typing import TextIO

DIM, RED, BOLD = "2", "31", "1"


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
