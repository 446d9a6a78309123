"""Output to terminals and pipes: text, tables, JSON, colour and progress."""

import io
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TextIO, TypeVar

from trunkline.core.printable import remove_controls

T = TypeVar("T")

DIM, RED, GREEN, YELLOW, CYAN, BOLD = "2", "31", "32", "33", "36", "1"

# States of tasks, messages, servers, circuit breakers, webhooks and trusted folders.
STATE_COLOURS = {
    **dict.fromkeys(("completed", "ready", "done", "handled", "trusted", "approved"), GREEN),
    **dict.fromkeys(("failed", "rejected", "dead", "open", "down", "unreadable"), RED),
    **dict.fromkeys(("input-required", "auth-required", "needs_sign_in", "waits"), YELLOW),
    **dict.fromkeys(("changed", "half_open", "half-open"), YELLOW),
    **dict.fromkeys(("submitted", "working", "pending", "waiting", "running", "starting"), CYAN),
    **dict.fromkeys(("canceled", "expired", "idle", "missing"), DIM),
}

_RICH_STYLES = {DIM: "dim", RED: "red", GREEN: "green", YELLOW: "yellow", CYAN: "cyan"}

# Begins our own colours in text for a filtered terminal. It is random, so that text of others
# can't use it: painted text could pass for ours.
_COLOUR_MARK = f"\x1b{secrets.token_hex(8)}"
_COLOUR = re.compile(rf"({_COLOUR_MARK}\[[0-9]+m)")
# What `paint` adds to a text.
_PAINT = re.compile(rf"\x1b(?:{_COLOUR_MARK[1:]})?\[[0-9]+m")


class _FilteredTerminal(io.TextIOWrapper):
    """A terminal stream that drops control characters. Models and tools write most of the text."""

    def write(self, text: str, /) -> int:
        # Every second piece is one of our colours.
        pieces = _COLOUR.split(text)
        pieces[::2] = map(remove_controls, pieces[::2])
        pieces[1::2] = [piece.replace(_COLOUR_MARK, "\x1b") for piece in pieces[1::2]]
        super().write("".join(pieces))
        return len(text)

    def write_rendered(self, text: str) -> int:
        """Write the output of `rich_console`, whose control sequences are ours alone."""
        return super().write(text)


def accept_any_text() -> None:
    """Prevent encoding errors in input and output, and filter control characters on terminals.

    Characters that stdout can't encode become question marks. Undecodable input becomes surrogates,
    which `is_text` detects. Pipes and files get the text unchanged.
    """
    for stream, errors in (
        (sys.stdin, "surrogateescape"),
        (sys.stdout, "replace"),
        (sys.stderr, "backslashreplace"),
    ):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=errors)
    sys.stdout, sys.stderr = _filter_terminal(sys.stdout), _filter_terminal(sys.stderr)


def _filter_terminal(stream: TextIO) -> TextIO:
    if not isinstance(stream, io.TextIOWrapper) or not stream.isatty():
        return stream
    return _FilteredTerminal(
        stream.buffer, encoding=stream.encoding, errors=stream.errors, line_buffering=True
    )


def is_text(text: str) -> bool:
    """Return whether input from stdin or an argument was valid in its encoding."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def write_rendered(text: str, stream: TextIO) -> int:
    """Write text with control sequences that `rich_console` made."""
    if isinstance(stream, _FilteredTerminal):
        return stream.write_rendered(text)
    return stream.write(text)


def is_interactive(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that can redraw lines."""
    return stream.isatty() and os.environ.get("TERM") not in {"dumb", "unknown"}


def has_colour(stream: TextIO) -> bool:
    """Return whether to use colour: on a terminal, unless NO_COLOR is set or TERM is `dumb`."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint(text: str, colour: str, stream: TextIO) -> str:
    """Return text in a colour, or unchanged if `stream` shows no colour."""
    if not has_colour(stream):
        return text
    start = _COLOUR_MARK if isinstance(stream, _FilteredTerminal) else "\x1b"
    return f"{start}[{colour}m{text}{start}[0m"


def write(text: str) -> None:
    """Write to stdout and flush, without a line break."""
    sys.stdout.write(text)
    sys.stdout.flush()


def print_progress(text: str) -> None:
    """Show a line of progress on stderr, if that is a terminal."""
    if sys.stderr.isatty():
        print(paint(text, DIM, sys.stderr), file=sys.stderr, flush=True)


def print_stderr(text: str) -> None:
    """Print a line to stderr."""
    print(f"{text}\n", end="", file=sys.stderr, flush=True)


def paint_state(state: str, stream: TextIO) -> str:
    """Return a state in its colour. It may be padded, or have a text after a colon."""
    colour = STATE_COLOURS.get(state.partition(":")[0].strip())
    return paint(state, colour, stream) if colour else state


def state_style(state: str) -> str:
    """Return the colour of a state as rich names it, or ""."""
    return _RICH_STYLES.get(STATE_COLOURS.get(state.strip(), ""), "")


def paint_level(level: str) -> str:
    """Return the level of a log line in its colour, for stdout. It may be padded."""
    colours = {"warning": YELLOW, "error": RED, "critical": RED, "debug": DIM}
    colour = colours.get(level.strip())
    return paint(level, colour, sys.stdout) if colour else level


def print_table(
    titles: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    optional: Collection[str] = (),
    empty: str = "",
) -> None:
    """Print rows in columns. On a terminal, cells other than ids are cut to fit its width.

    A terminal does not show the last column if it is `optional` and empty, or if there is no room
    for ids, and so on for the column before it. If there still is no room, each row becomes a list
    of its cells. Instead of a table without rows, a terminal shows the line `empty`, on stderr.
    """
    from trunkline.cli.table_layout import (
        join_cells,
        lay_out_record,
        lay_out_table,
        record_indent,
    )

    table = [[remove_controls(" ".join(cell.split())) for cell in row] for row in rows]
    is_terminal = sys.stdout.isatty()
    if is_terminal and empty and not table:
        print_stderr(empty)
        return
    width = shutil.get_terminal_size().columns if is_terminal else None
    lines = lay_out_table(titles, table, width=width)
    while titles[-1] in optional and (
        lines is None or (is_terminal and not any(row[-1] for row in table))
    ):
        titles, table = titles[:-1], [row[:-1] for row in table]
        lines = lay_out_table(titles, table, width=width)
    if lines is None:
        for number, row in enumerate(table):
            if number:
                print()
            for line in lay_out_record(titles, row):
                print_wrapped(line, indent=record_indent(titles))
        return
    print(paint(join_cells(lines[0]), BOLD, sys.stdout))
    state = titles.index("STATE") if "STATE" in titles else None
    for cells in lines[1:]:
        if state is not None:
            cells[state] = paint_state(cells[state], sys.stdout)
        print(join_cells(cells))


def print_list(
    items: Iterable[T],
    columns: Mapping[str, Callable[[T], object]],
    fields: Callable[[T], object],
    *,
    as_json: bool,
    optional: Collection[str] = (),
    empty: str = "",
) -> None:
    """Print a list: as one JSON document of the `fields` of each item, or as a table.

    `columns` has the title of each column and what its cells show of an item. `optional` and
    `empty` are as in `print_table`.
    """
    if as_json:
        print_json([fields(item) for item in items])
        return
    rows = [[str(cell(item)) for cell in columns.values()] for item in items]
    print_table([*columns], rows, optional=optional, empty=empty)


def print_wrapped(line: str, *, indent: int) -> None:
    """Print a line. On a terminal it is broken between words to fit, and later lines are indented.

    A word that has no room on a line, such as a long id, is not broken.
    """
    if sys.stdout.isatty():
        from rich.cells import cell_len

        width = shutil.get_terminal_size().columns
        first, *words = line.split(" ")
        lines = [first]
        for word in words:
            longer = f"{lines[-1]} {word}"
            size, word_size = (cell_len(_PAINT.sub("", text)) for text in (longer, word))
            if size <= width or indent + word_size > width:
                lines[-1] = longer
            else:
                lines.append(" " * indent + word)
        line = "\n".join(lines)
    print(line)


def print_json(value: object) -> None:
    """Print one JSON document on one line."""
    is_unicode = (sys.stdout.encoding or "utf-8").lower().startswith("utf")
    line = json.dumps(value, ensure_ascii=not is_unicode)
    # `print` would write its own line break separately to an unbuffered stream, and the output of
    # another thread could come between.
    print(f"{line}\n", end="", flush=True)
