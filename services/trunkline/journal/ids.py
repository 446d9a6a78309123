"""Makes ids of tasks and conversations: nobody can guess them, and new ones lie side by side.

They begin with the time, so that rows of the same moment share a store's pages; with ids without
any order, each row that is written touches pages of its own.
"""

import secrets
import time


def new_task_id(journal_id: str) -> str:
    """Return an id for a task of this journal."""
    return f"{journal_id}-{time.time_ns() // 1_000_000_000:08x}{secrets.token_hex(8)}"


def new_context_id() -> str:
    """Return an id for a conversation: a UUID of version 7."""
    chance = secrets.randbits(74)
    high = (time.time_ns() // 1_000_000) << 16 | 0x7000 | chance >> 62
    low = 0x8000_0000_0000_0000 | chance & 0x3FFF_FFFF_FFFF_FFFF
    text = f"{high:016x}{low:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
