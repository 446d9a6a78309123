"""What a journal's owner writes beside its commits, while no other process has taken over.

Such a write locks the epoch in the journal's row, which a takeover waits for and commits do not.
"""

from typing import Final

from trunkline.core.postgres import Connection
from trunkline.errors import FencedError

HOLD_FENCE: Final = (
    "SELECT writes FROM trunkline_journals WHERE journal_id = $1 AND epoch = $2 FOR KEY SHARE"
)
"""Locks the epoch until the end of a transaction. It returns a row if the epoch is held."""


async def hold_fence(connection: Connection, journal_id: str, epoch: int) -> int:
    """Lock the epoch until the end of the transaction; return the number of the last commit.

    Raises:
        FencedError: another process has taken over.
    """
    writes: int | None = await connection.fetchval(HOLD_FENCE, journal_id, epoch)
    if writes is None:
        raise FencedError(journal_id)
    return writes


def fenced(*tables: str, select: str = "SELECT true FROM fence") -> str:
    """Return one statement of these tables, which returns a row if the epoch is held.

    $1 and $2 are the journal and its epoch.
    """
    return " ".join(("WITH", ", ".join((f"fence AS ({HOLD_FENCE})", *tables)), select))
