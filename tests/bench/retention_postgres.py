"""Deletes a million events from PostgreSQL, by rows and by a partition, beside commits.

Run it on a quiet machine: `.venv/bin/python tests/bench/retention_postgres.py`.
"""

import asyncio
import os
import secrets
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeAlias

import asyncpg

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from harness.journal.postgres_server import PostgresServer

TASKS: Final = 50_000
BATCHES: Final = 20
TASKS_PER_DELETION: Final = 25
BODY: Final = os.urandom(300)
IDLE_S: Final = 5.0
TABLES: Final = """
CREATE TABLE plain (task_id text, sequence bigint, body bytea NOT NULL,
    PRIMARY KEY (task_id, sequence));
CREATE TABLE parted (day int, task_id text, sequence bigint, body bytea NOT NULL,
    PRIMARY KEY (day, task_id, sequence)) PARTITION BY RANGE (day);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (1) TO (2);
CREATE TABLE parted_2 PARTITION OF parted FOR VALUES FROM (2) TO (3);
"""
Connection: TypeAlias = "asyncpg.Connection[asyncpg.Record]"


def task_id(number: int) -> str:
    return f"abcdefgh-{number:024d}"


def rows(first: int, day: int | None) -> Iterator[tuple[object, ...]]:
    for number in range(first, first + 1000):
        for sequence in range(1, BATCHES + 1):
            row = (task_id(number), sequence, BODY)
            yield row if day is None else (day, *row)


async def fill(connection: Connection, table: str, day: int | None) -> None:
    names = ["task_id", "sequence", "body"]
    columns = names if day is None else ["day", *names]
    for first in range(0, TASKS, 1000):
        await connection.copy_records_to_table(table, records=rows(first, day), columns=columns)


async def commit(server: PostgresServer, table: str, times_s: list[float]) -> None:
    """Commit four events again and again."""
    connection = await asyncpg.connect(server.url)
    day = "2, " if table == "parted" else ""
    values = f"{day} t, 1, $2 FROM unnest($1::text[]) AS t"
    insert = " ".join(("INSERT INTO", table, "SELECT", values))
    while True:
        ids = [secrets.token_hex(8) for _ in range(4)]
        began_s = time.perf_counter()
        await connection.execute(insert, ids, BODY)
        times_s.append(time.perf_counter() - began_s)
        await asyncio.sleep(0.005)


async def measure(
    server: PostgresServer, table: str, name: str, work: Callable[[Connection], Awaitable[object]]
) -> None:
    """Print the time and the log of some work, and the times of the commits beside it."""
    connection = await asyncpg.connect(server.url)
    times_s: list[float] = []
    position = "SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint"
    before = await connection.fetchval(position)
    async with asyncio.TaskGroup() as tasks:
        committing = tasks.create_task(commit(server, table, times_s))
        began_s = time.perf_counter()
        await work(connection)
        took_s = time.perf_counter() - began_s
        committing.cancel()
    written_mb = (await connection.fetchval(position) - before) / 1e6
    size_mb = await connection.fetchval("SELECT pg_total_relation_size('plain')") / 1e6
    await connection.close()
    place = f"log {written_mb:.0f} MB, plain {size_mb:.0f} MB"
    print(f"{name}: {took_s:.2f} s, {place}, commits {format_times(times_s)}", flush=True)


def format_times(times_s: Sequence[float]) -> str:
    ordered = sorted(times_s)
    median, high = (ordered[int(len(ordered) * share)] * 1e3 for share in (0.5, 0.99))
    return f"{len(ordered)}: median {median:.2f} ms, 99 % {high:.2f} ms"


async def delete(connection: Connection) -> None:
    for first in range(0, TASKS, TASKS_PER_DELETION):
        ids = [task_id(number) for number in range(first, first + TASKS_PER_DELETION)]
        await connection.execute("DELETE FROM plain WHERE task_id = ANY($1)", ids)


async def drop(connection: Connection) -> None:
    await connection.execute("ALTER TABLE parted DETACH PARTITION parted_1 CONCURRENTLY")
    await connection.execute("DROP TABLE parted_1")


async def pause(_connection: Connection) -> None:
    await asyncio.sleep(IDLE_S)


async def main() -> None:
    server = PostgresServer()
    connection = await asyncpg.connect(server.url)
    await connection.execute(TABLES)
    await measure(server, "plain", "fill", lambda used: fill(used, "plain", None))
    await measure(server, "parted", "fill a partition", lambda used: fill(used, "parted", 1))
    await connection.execute("CHECKPOINT")
    await measure(server, "plain", "idle", pause)
    await measure(server, "plain", "delete", delete)
    await measure(server, "plain", "vacuum", lambda used: used.execute("VACUUM plain"))
    await measure(server, "plain", "fill again", lambda used: fill(used, "plain", None))
    await measure(server, "parted", "drop", drop)
    await connection.close()
    server.remove()


if __name__ == "__main__":
    asyncio.run(main())
