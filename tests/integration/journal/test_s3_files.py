"""Files in a bucket: lost answers, an outage, missing objects, and a change of the setting."""

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.journal import blob_places
from harness.journal.blob_places import S3Place, pattern
from harness.journal.s3_server import S3Server, list_objects
from trunkline.errors import JournalUnavailableError
from trunkline.journal.artifacts import BlobStore, Reference
from trunkline.journal.artifacts.postgres import PostgresBlobStore
from trunkline.journal.artifacts.postgres.objects import ObjectBucket

CONTENT = pattern(0, 1_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
DAY_S = 24 * 3600.0


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[S3Place]:
    async with blob_places.s3(tmp_path) as opened:
        assert isinstance(opened, S3Place)
        yield opened


@pytest.fixture
def reference(place: S3Place) -> Reference:
    return Reference.create(f"{place.journal_id}-1", "a")


async def read(blobs: BlobStore, reference: Reference) -> bytes:
    return b"".join([chunk async for chunk in blobs.read(reference)])


class LosingBucket(ObjectBucket):
    """A bucket whose answers to writes are lost after the first."""

    writes = 0

    async def put(self, name: str, data: bytes) -> None:
        await super().put(name, data)
        self.writes += 1
        if self.writes > 1:
            raise JournalUnavailableError(self.name, "the answer was lost")


async def test_no_object_is_forgotten_if_an_upload_ends_during_a_write(
    place: S3Place, reference: Reference
) -> None:
    whole, place.bucket = place.bucket, LosingBucket(place.url, object_bytes=256 * 1024)
    with pytest.raises(JournalUnavailableError, match="the answer was lost"):
        async with place.open().open_writer(reference) as writer:
            await writer.write(CONTENT)
    # One chunk is part of the file, and the next is stored, but nobody knows.
    assert len(await asyncio.to_thread(list_objects, place.url)) == 2

    place.bucket = whole
    blobs = place.open()
    async with blobs.open_writer(reference) as writer:
        assert writer.offset == 256 * 1024
        await writer.write(CONTENT[writer.offset :])
        await writer.finish(SHA256)
    await place.age(reference, DAY_S)
    await blobs.remove_abandoned()

    assert await read(blobs, reference) == CONTENT
    assert await place.count_stored() == 4


async def test_a_truncated_file_keeps_its_new_objects(place: S3Place, reference: Reference) -> None:
    blobs = place.open()
    async with blobs.open_writer(reference) as writer:
        await writer.write(CONTENT[::-1])
        await writer.write(CONTENT[:700_000], at=0)
        await writer.flush()
        await writer.write(CONTENT[300_000:], at=300_000)
        await writer.finish(SHA256)
    await place.age(reference, DAY_S)
    await blobs.remove_abandoned()

    assert await read(blobs, reference) == CONTENT
    await place.count_stored()


async def test_a_missing_object_is_damage(place: S3Place, reference: Reference) -> None:
    blobs = place.open()
    await blobs.put(reference, CONTENT)
    assert place.bucket is not None
    prefix = place.url.partition("//")[2].partition("/")[2]
    objects = await asyncio.to_thread(list_objects, place.url)
    await place.bucket.delete([objects[0].removeprefix(f"{prefix}/")])

    with pytest.raises(JournalUnavailableError, match="damaged"):
        await read(blobs, reference)
    damage = [line async for line in blobs.find_damage()]
    assert damage == [f"task {reference.task_id}: file a is damaged"]


async def test_files_stay_where_they_are_if_the_setting_changes(
    place: S3Place, reference: Reference
) -> None:
    other = reference._replace(blob_id="other")
    with_bucket = place.open()
    without = PostgresBlobStore(place.database, place.journal_id, 1)
    await without.put(reference, CONTENT)
    await with_bucket.put(other, CONTENT)

    assert await read(with_bucket, reference) == CONTENT
    with pytest.raises(JournalUnavailableError, match="set `files` to its URL"):
        await read(without, other)
    # A host without the bucket does not forget the objects that it can't delete.
    await without.remove([reference.task_id])
    await place.age(reference, DAY_S)
    await without.remove_abandoned()
    assert await place.count_stored() == 4
    await with_bucket.remove_abandoned()
    assert await place.count_stored() == 0


async def test_an_upload_continues_after_an_outage_of_the_bucket(
    place: S3Place, reference: Reference, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await asyncio.to_thread(S3Server)
    try:
        for name, value in server.variables.items():
            monkeypatch.setenv(name, value)
        place.bucket = blob_places.open_bucket("s3://outage/files")
        blobs = place.open()
        async with blobs.open_writer(reference) as writer:
            await writer.write(CONTENT[:600_000])
            await asyncio.to_thread(server.stop)
            with pytest.raises(JournalUnavailableError):
                await writer.write(CONTENT[600_000:])
        await asyncio.to_thread(server.start)

        async with blobs.open_writer(reference) as writer:
            assert writer.offset == 2 * 256 * 1024
            await writer.write(CONTENT[writer.offset :])
            await writer.finish(SHA256)
        assert await read(blobs, reference) == CONTENT
    finally:
        await asyncio.to_thread(server.remove)
