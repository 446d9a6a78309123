"""Statements that write only while the epoch of the journal has not changed."""

from typing import Final

from trunkline.journal.postgres.writer import HOLD_FENCE

_SELECT_HELD: Final = "SELECT true FROM fence"


def fenced(*tables: str, select: str = _SELECT_HELD) -> str:
    """Return one statement of these tables, which returns a row if the epoch has not changed.

    $1 and $2 are the journal and its epoch.
    """
    return " ".join(("WITH", ", ".join((f"fence AS ({HOLD_FENCE})", *tables)), select))
