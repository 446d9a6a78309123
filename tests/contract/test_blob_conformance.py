"""The conformance suite of stores of files. A store joins by a place in PLACES."""

import asyncio
import hashlib
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.journal.blob_places import PLACES, BlobPlace, pattern
from trunkline.errors import (
    ArtifactNotFoundError,
    InvalidArgumentError,
    JournalUnavailableError,
    PeerUnavailableError,
)
from trunkline.journal.artifacts import BlobStore, Reference, parse_reference

CONTENT = pattern(0, 1_000_000)
SHA256 = hashlib.sha256(CONTENT).hexdigest()
DAY_S = 24 * 3600.0
TESTS = Path(__file__).parents[1]


@pytest.fixture(params=list(PLACES.values()), ids=list(PLACES))
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BlobPlace]:
    async with request.param(tmp_path) as opened:
        yield opened


@pytest.fixture
def blobs(place: BlobPlace) -> BlobStore:
    return place.open()


@pytest.fixture
def reference(place: BlobPlace) -> Reference:
    return Reference.create(f"{place.journal_id}-1", "a")


async def read(blobs: BlobStore, reference: Reference, **where: int) -> bytes:
    return b"".join([chunk async for chunk in blobs.read(reference, **where)])


async def find_damage(blobs: BlobStore) -> list[str]:
    return [line async for line in blobs.find_damage()]


async def test_a_file_is_read_from_any_offset(blobs: BlobStore, reference: Reference) -> None:
    blob = await blobs.put(reference, CONTENT, media_type="a/b", filename="../x.bin")

    assert (blob.size_bytes, blob.sha256) == (len(CONTENT), SHA256)
    assert (blob.media_type, blob.filename) == ("a/b", "x.bin")
    assert await blobs.get(reference) == blob
    assert parse_reference(blob.to_part().url) == reference
    assert await read(blobs, reference) == CONTENT
    for offset, length in ((0, 1), (262_143, 2), (5, 300_000), (700_000, 0), (999_999, 5)):
        end = offset + length if length else len(CONTENT)
        assert await read(blobs, reference, offset=offset, length=length) == CONTENT[offset:end]
    assert await read(blobs, reference, offset=len(CONTENT)) == b""
    assert await blobs.list_task_ids() == [reference.task_id]
    assert await find_damage(blobs) == []


async def test_an_empty_file_is_complete(blobs: BlobStore, reference: Reference) -> None:
    assert (await blobs.put(reference, b"")).size_bytes == 0
    assert await read(blobs, reference) == b""
    assert await find_damage(blobs) == []


async def test_small_pieces_are_one_content(blobs: BlobStore, reference: Reference) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        for offset in range(0, len(CONTENT), 77_777):
            yield CONTENT[offset : offset + 77_777]

    assert (await blobs.put(reference, pieces())).sha256 == SHA256
    assert await read(blobs, reference) == CONTENT


async def test_an_upload_is_visible_only_when_it_is_complete(
    place: BlobPlace, reference: Reference
) -> None:
    blobs = place.open()
    async with blobs.open_writer(reference, media_type="a/b") as writer:
        await writer.write(CONTENT[:300_000])
        with pytest.raises(ArtifactNotFoundError):
            await blobs.get(reference)
    with pytest.raises(ArtifactNotFoundError):
        await read(blobs, reference)

    resumed = place.open()
    async with resumed.open_writer(reference, media_type="c/d") as writer:
        assert writer.offset == 300_000
        await writer.write(b"wrong")
        await writer.write(CONTENT[200_000:400_000], at=200_000)
        with pytest.raises(InvalidArgumentError, match="400000 bytes are stored"):
            await writer.write(b"x", at=400_001)
        await writer.write(CONTENT[400_000:])
        await writer.finish(SHA256.upper())

    assert await read(resumed, reference) == CONTENT
    blob = await resumed.get(reference)
    assert (blob.sha256, blob.media_type) == (SHA256, "c/d")
    assert await find_damage(resumed) == []


async def test_flushed_bytes_survive_a_killed_writer(
    place: BlobPlace, reference: Reference
) -> None:
    await place.open().list_task_ids()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "harness.journal.blob_places",
        *reference,
        *place.arguments,
        cwd=TESTS,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    printed = b"0"
    async with asyncio.timeout(30):
        while int(printed) < 500_000:
            printed = await process.stdout.readline()
        process.kill()
        await process.wait()

    blobs = place.open()
    async with blobs.open_writer(reference) as writer:
        assert writer.offset >= int(printed)
        await writer.write(pattern(writer.offset, 2_000_000 - writer.offset))
        await writer.finish(hashlib.sha256(pattern(0, 2_000_000)).hexdigest())

    assert await read(blobs, reference) == pattern(0, 2_000_000)


async def test_content_with_a_wrong_checksum_is_deleted(
    blobs: BlobStore, reference: Reference
) -> None:
    async with blobs.open_writer(reference) as writer:
        await writer.write(CONTENT[:300_000])
    async with blobs.open_writer(reference) as writer:
        await writer.write(b"other")
        with pytest.raises(InvalidArgumentError, match="send it again"):
            await writer.finish(SHA256)
        with pytest.raises(PeerUnavailableError):
            await writer.write(b"late")

    assert await blobs.list_task_ids() == []
    assert (await blobs.put(reference, CONTENT)).sha256 == SHA256


async def test_the_newest_writer_has_the_file(blobs: BlobStore, reference: Reference) -> None:
    async with blobs.open_writer(reference) as first:
        await first.write(b"one")
        await first.flush()
        async with blobs.open_writer(reference) as second:
            assert second.offset == 3
            for late in (first.write(CONTENT), first.flush(), first.finish()):
                with pytest.raises(PeerUnavailableError):
                    await late
            await first.discard()
            await second.write(b"two")
            await second.finish()

    assert await read(blobs, reference) == b"onetwo"


async def test_a_complete_file_never_changes(blobs: BlobStore, reference: Reference) -> None:
    await blobs.put(reference, b"first")

    assert (await blobs.put(reference, b"second")).size_bytes == len(b"first")
    with pytest.raises(PeerUnavailableError):
        async with blobs.open_writer(reference):
            pass
    assert await read(blobs, reference) == b"first"


async def test_concurrent_calls_write_a_file_once(blobs: BlobStore, reference: Reference) -> None:
    async with blobs.open_writer(reference) as interrupted:
        await interrupted.write(b"of an earlier try")

    async with asyncio.TaskGroup() as group:
        puts = [group.create_task(blobs.put(reference, CONTENT)) for _ in range(3)]

    assert {put.result().sha256 for put in puts} == {SHA256}
    assert await read(blobs, reference) == CONTENT


async def test_a_file_over_the_limit_is_refused_and_leaves_nothing(
    place: BlobPlace, reference: Reference
) -> None:
    blobs = place.open(limit_bytes=len(CONTENT) - 1)
    with pytest.raises(InvalidArgumentError, match="larger than 999999 bytes"):
        await blobs.put(reference, CONTENT)

    assert await blobs.list_task_ids() == []


async def test_damage_is_found(place: BlobPlace, blobs: BlobStore, reference: Reference) -> None:
    await blobs.put(reference, CONTENT)
    await blobs.put(reference._replace(blob_id="b"), b"well")

    await place.damage(reference)

    assert await find_damage(blobs) == [f"task {reference.task_id}: file a is damaged"]


async def test_files_are_removed_with_their_tasks(
    place: BlobPlace, blobs: BlobStore, reference: Reference
) -> None:
    other = reference._replace(task_id=f"{reference.task_id}0")
    for stored in (reference, reference._replace(blob_id="b"), other):
        await blobs.put(stored, CONTENT)

    await blobs.remove([reference.task_id, "no-task"])

    assert await blobs.list_task_ids() == [other.task_id]
    with pytest.raises(ArtifactNotFoundError):
        await blobs.get(reference)
    assert await read(blobs, other) == CONTENT
    with pytest.raises(InvalidArgumentError):
        await blobs.remove(["../escape"])
    # The bodies follow.
    stored_before = await place.count_stored()
    await place.age(reference, 2 * DAY_S)
    await blobs.remove_abandoned()
    assert 0 < await place.count_stored() <= stored_before
    assert await read(blobs, other) == CONTENT
    # The name can be used again.
    await blobs.put(reference, b"again")
    assert await read(blobs, reference) == b"again"


async def test_an_upload_is_abandoned_a_day_after_its_last_write(
    place: BlobPlace, blobs: BlobStore, reference: Reference
) -> None:
    complete = reference._replace(blob_id="complete")
    await blobs.put(complete, CONTENT)
    async with blobs.open_writer(reference) as writer:
        await writer.write(CONTENT)

    await place.age(reference, DAY_S - 600)
    await place.age(complete, 2 * DAY_S)
    await blobs.remove_abandoned()
    async with blobs.open_writer(reference) as writer:
        assert writer.offset == len(CONTENT)
    await place.age(reference, 1200)
    await blobs.remove_abandoned()
    async with blobs.open_writer(reference) as writer:
        assert writer.offset == 0
        await writer.discard()

    await place.age(reference, 2 * DAY_S)
    await blobs.remove_abandoned()
    assert await read(blobs, complete) == CONTENT
    await blobs.remove([complete.task_id])
    await place.age(reference, 2 * DAY_S)
    await blobs.remove_abandoned()
    assert await place.count_stored() == 0


async def test_an_upload_continues_while_files_are_collected(
    place: BlobPlace, blobs: BlobStore, reference: Reference
) -> None:
    has_ended = asyncio.Event()

    async def collect() -> None:
        while not has_ended.is_set():
            await blobs.remove_abandoned()
            await blobs.remove(["no-task"])

    async with asyncio.TaskGroup() as group:
        group.create_task(collect())
        async with blobs.open_writer(reference) as writer:
            for offset in range(0, len(CONTENT), 50_000):
                await writer.write(CONTENT[offset : offset + 50_000])
                await writer.flush()
            await writer.finish(SHA256)
        has_ended.set()

    assert await read(blobs, reference) == CONTENT


async def test_reading_a_missing_file_says_so(blobs: BlobStore, reference: Reference) -> None:
    with pytest.raises(ArtifactNotFoundError):
        await blobs.get(reference)
    with pytest.raises(ArtifactNotFoundError):
        await read(blobs, reference)
    assert await blobs.list_task_ids() == []
    await blobs.remove_abandoned()


async def test_the_end_of_an_upload_leaves_no_task(blobs: BlobStore, reference: Reference) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield CONTENT
        raise JournalUnavailableError("the source", "it is gone")

    with pytest.raises(JournalUnavailableError, match="the source"):
        await blobs.put(reference, broken())

    assert await blobs.list_task_ids() == []
