"""`trunkline` with a journal that writes nothing: `python -m bench.no_journal serve agents …`.

Used only for the row "journal on and off". Everything above the store is unchanged: appends are
grouped, sealed, flushed and published as usual; the store holds them in memory instead of SQLite,
and loses them with the process.
"""

from collections import defaultdict
from collections.abc import Collection
from typing import Any

from trunkline.cli import main
from trunkline.journal.events import parse_header
from trunkline.journal.sqlite.store import SqliteStore
from trunkline.journal.store import CommitGroup, TaskRow


class _Memory:
    """In-memory replacements of the store's methods."""

    def __init__(self) -> None:
        self.rows: dict[str, TaskRow] = {}
        self.batches: defaultdict[str, list[bytes]] = defaultdict(list)

    async def commit(self, group: CommitGroup) -> None:
        self.rows.update(group.created)
        self.rows.update(group.changed)
        for batch in group.batches:
            self.batches[batch.task_id].append(batch.sealed)

    async def read(self, task_id: str, after: int, *, limit_bytes: int) -> list[bytes]:
        sealed_batches = []
        for sealed in self.batches[task_id]:
            header = parse_header(sealed)
            if header.first_sequence + header.count - 1 > after:
                sealed_batches.append(sealed)
                limit_bytes -= len(sealed)
            if limit_bytes < 0:
                break
        return sealed_batches

    async def find_rows(self, task_ids: Collection[str]) -> dict[str, TaskRow]:
        return {task_id: self.rows[task_id] for task_id in task_ids if task_id in self.rows}


def _patch() -> None:
    memory = _Memory()
    changes: dict[str, Any] = {
        "commit": lambda _store, group: memory.commit(group),
        "read": lambda _store, task_id, after, *, limit_bytes: memory.read(
            task_id, after, limit_bytes=limit_bytes
        ),
        "find_rows": lambda _store, task_ids: memory.find_rows(task_ids),
    }
    for name, change in changes.items():
        assert hasattr(SqliteStore, name), name
        setattr(SqliteStore, name, change)


if __name__ == "__main__":
    _patch()
    main()
