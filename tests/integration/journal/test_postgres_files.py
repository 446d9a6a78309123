"""Files in PostgreSQL: refused after a takeover, kept while they are referenced, and restarts."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from harness.journal.blob_places import pattern
from harness.journal.builders import TASK, created, group, row, stored
from harness.journal.postgres_server import PostgresServer, new_database
from trunkline.core.postgres import PostgresDatabase
from trunkline.errors import FencedError
from trunkline.journal.artifacts import Reference
from trunkline.journal.artifacts.postgres import PostgresBlobStore
from trunkline.journal.postgres import PostgresCatalog
from trunkline.journal.postgres.store import PostgresStore

CONTENT = pattern(0, 1_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
async def database() -> AsyncIterator[PostgresDatabase]:
    async with new_database() as url, PostgresDatabase(url) as opened:
        yield opened


def open_blobs(database: PostgresDatabase, store: PostgresStore) -> PostgresBlobStore:
    return PostgresBlobStore(database, store.id, store.epoch)


async def read(blobs: PostgresBlobStore, reference: Reference) -> bytes:
    return b"".join([chunk async for chunk in blobs.read(reference)])


async def test_late_writes_of_an_earlier_owner_are_refused(database: PostgresDatabase) -> None:
    catalog = PostgresCatalog(database)
    earlier = await catalog.open("journal")
    reference = Reference.create(f"{earlier.id}-1", "a")
    frozen = open_blobs(database, earlier)
    complete = reference._replace(blob_id="complete")
    await frozen.put(complete, CONTENT)
    async with frozen.open_writer(reference) as late:
        await late.write(CONTENT[:600_000])
        await late.flush()
        await earlier.renew_lease(0.0)
        later = await catalog.take_over("journal")

        for write in (late.write(CONTENT), late.finish()):
            with pytest.raises(FencedError):
                await write
    with pytest.raises(FencedError):
        async with frozen.open_writer(reference):
            pass
    with pytest.raises(FencedError):
        await frozen.remove([reference.task_id])
    with pytest.raises(FencedError):
        await frozen.remove_abandoned()

    blobs = open_blobs(database, later)
    assert await read(blobs, complete) == CONTENT
    async with blobs.open_writer(reference) as writer:
        assert writer.offset == 600_000
        await writer.write(CONTENT[600_000:])
        await writer.finish(SHA256)
    assert await read(blobs, reference) == CONTENT
    await later.close()


async def test_files_of_an_existing_task_are_not_removed(database: PostgresDatabase) -> None:
    store = await PostgresCatalog(database).open("journal")
    await store.commit(group(stored([created()], 1), made=[row()]))
    blobs = open_blobs(database, store)
    reference = Reference.create(TASK, "a")
    await blobs.put(reference, CONTENT)

    await blobs.remove([TASK])

    assert await read(blobs, reference) == CONTENT
    await store.close()


async def test_a_reader_ends_although_the_file_is_removed(database: PostgresDatabase) -> None:
    store = await PostgresCatalog(database).open("journal")
    blobs = open_blobs(database, store)
    reference = Reference.create(f"{store.id}-1", "a")
    await blobs.put(reference, CONTENT)

    async with aclosing(blobs.read(reference)) as chunks:
        content = await anext(chunks)
        await blobs.remove([reference.task_id])
        await blobs.remove_abandoned()
        content += b"".join([chunk async for chunk in chunks])

    assert content == CONTENT
    await store.close()


async def test_files_of_a_deleted_journal_are_removed(database: PostgresDatabase) -> None:
    catalog = PostgresCatalog(database)
    gone, store = await catalog.open("gone"), await catalog.open("journal")
    await open_blobs(database, gone).put(Reference.create(f"{gone.id}-1", "a"), CONTENT)
    kept = Reference.create(f"{store.id}-1", "a")
    blobs = open_blobs(database, store)
    await blobs.put(kept, CONTENT)
    await gone.close()
    assert await catalog.delete_if_empty("gone")

    await blobs.remove_abandoned()

    assert [
        row["task_id"] for row in await database.fetch("SELECT task_id FROM trunkline_blobs")
    ] == [kept.task_id]
    await store.close()


async def test_uploads_and_downloads_wait_while_the_server_is_killed_and_started() -> None:
    server = await asyncio.to_thread(PostgresServer)
    async with PostgresDatabase(server.url) as database:
        store = await PostgresCatalog(database).open("journal")
        blobs = open_blobs(database, store)
        reference = Reference.create(f"{store.id}-1", "a")

        async with blobs.open_writer(reference) as writer:
            await writer.write(CONTENT[:600_000])
            await asyncio.to_thread(server.kill)
            async with asyncio.TaskGroup() as group:
                group.create_task(writer.write(CONTENT[600_000:]))
                await asyncio.to_thread(server.start)
            await writer.finish(SHA256)
        async with aclosing(blobs.read(reference)) as chunks:
            content = await anext(chunks)
            await asyncio.to_thread(server.kill)
            async with asyncio.TaskGroup() as group:
                group.create_task(asyncio.to_thread(server.start))
                content += b"".join([chunk async for chunk in chunks])
        assert content == CONTENT
        await store.close()
    await asyncio.to_thread(server.remove)
