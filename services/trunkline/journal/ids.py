"""Generates ids of tasks and conversations that cannot be guessed.

They begin with the time, so that new rows are neighbours in a store's index. Random ids would touch
other pages with each row. A task id begins with the id of its journal and a hyphen.
"""

import secrets
import time


def new_task_id(journal_id: str) -> str:
    """Return an id for a task of this journal."""
    return f"{journal_id}-{time.time_ns() // 1_000_000_000:08x}{secrets.token_hex(8)}"


def new_context_id() -> str:
    """Return an id for a conversation: a UUID of version 7."""
    random_bits = secrets.randbits(74)
    high = (time.time_ns() // 1_000_000) << 16 | 0x7000 | random_bits >> 62
    low = 0x8000_0000_0000_0000 | random_bits & 0x3FFF_FFFF_FFFF_FFFF
    text = f"{high:016x}{low:016x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
