"""Lays tables out for a terminal: columns are cut to fit its width, ids never are."""

from collections.abc import Sequence
from typing import Final

from rich.cells import cell_len, set_cell_size

ID_COLUMNS: Final = frozenset(
    {"TASK", "PARENT", "TRACE", "APPROVAL", "WEBHOOK", "CONTEXT", "KEY", "FOLDER", "TOOL"}
    | {"MESSAGE", "ROOM"}
)
"""Titles of columns whose cells are copied, so that they are never cut."""

_GAP: Final = "  "
# A column is not cut below this width, or below the width of its title.
_LEAST_WIDTH: Final = 8


def lay_out_table(
    titles: Sequence[str], rows: Sequence[Sequence[str]], *, width: int | None
) -> list[list[str]] | None:
    """Return the padded cells of the titles and of each row, cut to fit `width` columns.

    Widths count cells of the terminal, which CJK letters and emoji take two of. None as `width`
    means any width. None is returned if the cells that must not be cut need more.
    """
    table = [titles, *rows]
    widths = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    if width is not None:
        least = [
            natural if title in ID_COLUMNS else min(natural, max(len(title), _LEAST_WIDTH))
            for title, natural in zip(titles, widths, strict=True)
        ]
        excess = sum(widths) + len(_GAP) * (len(widths) - 1) - width
        if sum(widths) - sum(least) < excess:
            return None
        for _ in range(excess):
            slack = [now - limit for now, limit in zip(widths, least, strict=True)]
            widest = max(
                (number for number, room in enumerate(slack) if room), key=widths.__getitem__
            )
            widths[widest] -= 1
    return [[_fit(cell, size) for cell, size in zip(row, widths, strict=True)] for row in table]


def join_cells(cells: Sequence[str]) -> str:
    """Join the cells of a row, without spaces at its end."""
    return _GAP.join(cells).rstrip()


def lay_out_record(titles: Sequence[str], row: Sequence[str]) -> list[str]:
    """Return a row as lines of a title and a cell, for a terminal too narrow for the table.

    Empty cells are left out. Cells begin at `record_indent`.
    """
    size = record_indent(titles)
    pairs = zip(titles, row, strict=True)
    return [f"{title.lower().ljust(size)}{cell}" for title, cell in pairs if cell]


def record_indent(titles: Sequence[str]) -> int:
    """Return the column at which the cells of a record begin."""
    return max(map(len, titles)) + len(_GAP)


def cut_text(text: str, width: int) -> str:
    """Return text of at most `width` cells; a cut text ends with `…`."""
    if cell_len(text) <= width:
        return text
    return set_cell_size(text, width - 1).rstrip() + "…"


def _fit(text: str, width: int) -> str:
    return set_cell_size(cut_text(text, width), width)
