"""Tests of files beside a journal: complete or not visible, resumable, deleted with their tasks."""

import asyncio
import errno
import hashlib
import os
from pathlib import Path

import pytest

from trunkline.errors import (
    ArtifactNotFoundError,
    InvalidArgumentError,
    JournalUnavailableError,
    PeerUnavailableError,
)
from trunkline.journal.artifacts import BlobStore, Reference, parse_reference
from trunkline.journal.artifacts.admin import check_blobs, copy_blobs
from trunkline.journal.artifacts.references import sanitize_filename

_CONTENT = bytes(range(256)) * 3000
_SHA256 = hashlib.sha256(_CONTENT).hexdigest()
_REFERENCE = Reference.create("j1-1", "a")


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / "host.db.artifacts", limit_bytes=1_000_000)


async def _read(blobs: BlobStore, reference: Reference, **where: int) -> bytes:
    return b"".join([chunk async for chunk in blobs.read(reference, **where)])


async def test_a_stored_blob_is_read_from_any_offset(blobs: BlobStore) -> None:
    blob = await blobs.put(_REFERENCE, _CONTENT, media_type="a/b", filename="x.bin")

    assert (blob.size_bytes, blob.sha256) == (len(_CONTENT), _SHA256)
    assert await blobs.get(_REFERENCE) == blob
    assert parse_reference(blob.to_part().url) == _REFERENCE
    assert await _read(blobs, _REFERENCE) == _CONTENT
    assert await _read(blobs, _REFERENCE, offset=700_000) == _CONTENT[700_000:]
    assert await _read(blobs, _REFERENCE, offset=5, length=300_000) == _CONTENT[5:300_005]


async def test_an_interrupted_upload_is_resumed_by_another_process(blobs: BlobStore) -> None:
    async with blobs.open_writer(_REFERENCE) as writer:
        await writer.write(_CONTENT[:300_000])

    with pytest.raises(ArtifactNotFoundError):
        await blobs.get(_REFERENCE)
    reopened = BlobStore(blobs.folder)
    async with reopened.open_writer(_REFERENCE) as writer:
        assert writer.offset == 300_000
        await writer.write(_CONTENT[200_000:400_000], at=200_000)
        with pytest.raises(InvalidArgumentError, match="400000 bytes are stored"):
            await writer.write(b"x", at=400_001)
        await writer.write(_CONTENT[400_000:])
        await writer.finish(_SHA256)

    assert await _read(reopened, _REFERENCE) == _CONTENT


async def test_content_with_a_wrong_checksum_is_deleted(blobs: BlobStore) -> None:
    async with blobs.open_writer(_REFERENCE) as writer:
        await writer.write(b"other")
        with pytest.raises(InvalidArgumentError, match="send it again"):
            await writer.finish(_SHA256)

    assert await asyncio.to_thread(blobs.list_task_ids) == []


async def test_resuming_an_upload_invalidates_its_earlier_writer(blobs: BlobStore) -> None:
    async with blobs.open_writer(_REFERENCE) as first:
        await first.write(b"one")
        async with blobs.open_writer(_REFERENCE) as second:
            assert second.offset == 3
            with pytest.raises(PeerUnavailableError):
                await first.write(b"late")
            await second.finish()

    assert await _read(blobs, _REFERENCE) == b"one"


async def test_concurrent_writes_of_the_same_content_write_it_once(blobs: BlobStore) -> None:
    async with blobs.open_writer(_REFERENCE) as interrupted:
        await interrupted.write(b"of an earlier try")

    async with asyncio.TaskGroup() as group:
        puts = [group.create_task(blobs.put(_REFERENCE, _CONTENT)) for _ in range(3)]

    assert {put.result().sha256 for put in puts} == {_SHA256}
    assert await _read(blobs, _REFERENCE) == _CONTENT


async def test_a_file_over_the_limit_is_refused_and_leaves_nothing(blobs: BlobStore) -> None:
    with pytest.raises(InvalidArgumentError, match="larger than 1000000 bytes"):
        await blobs.put(_REFERENCE, _CONTENT * 2)

    assert await asyncio.to_thread(blobs.list_task_ids) == []


async def test_a_full_disk_is_reported_and_the_partial_file_is_deleted(
    blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_disk_full(_path: object) -> object:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(
        "trunkline.journal.artifacts.blob_writer.shutil.disk_usage", raise_disk_full
    )
    with pytest.raises(JournalUnavailableError, match="the disk is full; free some space"):
        await blobs.put(_REFERENCE, _CONTENT)

    assert await asyncio.to_thread(blobs.list_task_ids) == []


async def test_damage_is_found_by_reads_and_by_checks(blobs: BlobStore) -> None:
    await blobs.put(_REFERENCE, _CONTENT)
    await blobs.put(Reference.create("j1-2", "b"), b"well")
    path = blobs.folder / "j1-1" / "a"
    assert list(blobs.find_damage()) == []

    path.write_bytes(_CONTENT[:-1] + b"x")
    assert list(blobs.find_damage()) == ["task j1-1: file a is damaged"]
    path.write_bytes(_CONTENT[:-1])
    with pytest.raises(JournalUnavailableError, match="damaged"):
        await blobs.get(_REFERENCE)
    assert list(blobs.find_damage()) == ["task j1-1: file a is damaged"]


@pytest.mark.parametrize("metadata", [b"", b"{}", b"[]", b'{"size_bytes": 1, "x": 1}'])
async def test_damaged_metadata_is_reported_by_reads_and_by_checks(
    blobs: BlobStore, metadata: bytes
) -> None:
    await blobs.put(_REFERENCE, _CONTENT)
    (blobs.folder / "j1-1" / "a.json").write_bytes(metadata)

    with pytest.raises(JournalUnavailableError, match="damaged"):
        await blobs.get(_REFERENCE)
    assert list(check_blobs(blobs, [_REFERENCE.url])) == ["task j1-1: file a is damaged"]


async def test_a_file_that_is_deleted_during_a_copy_is_not_copied(
    blobs: BlobStore, tmp_path: Path
) -> None:
    await blobs.put(_REFERENCE, _CONTENT)
    await blobs.put(Reference.create("j1-2", "b"), b"well")
    (blobs.folder / "j1-1" / "a.json").unlink()

    assert copy_blobs(blobs.folder, tmp_path / "copy") == len(b"well")

    copy = BlobStore(tmp_path / "copy")
    assert list(copy.find_damage()) == []
    assert (await copy.get(Reference.create("j1-2", "b"))).size_bytes == len(b"well")


async def test_an_abandoned_upload_is_removed_after_a_day(blobs: BlobStore) -> None:
    async with blobs.open_writer(_REFERENCE) as writer:
        await writer.write(b"start")
    created_s = (blobs.folder / "j1-1" / "a.part").stat().st_mtime

    blobs.remove_abandoned(created_s + 3600)
    assert (blobs.folder / "j1-1" / "a.part").exists()
    blobs.remove_abandoned(created_s + 25 * 3600)
    assert not (blobs.folder / "j1-1" / "a.part").exists()


@pytest.mark.parametrize(
    ("filename", "safe"),
    [("../../etc/passwd", "passwd"), ("C:\\x\\y.txt", "y.txt"), ("a\r\nb", "a b"), ("..", "")],
)
def test_a_filename_has_no_folders_and_no_control_characters(filename: str, safe: str) -> None:
    assert sanitize_filename(filename) == safe


@pytest.mark.parametrize("url", ["trunkline:x", "trunkline:../a", "trunkline:a/../b", "https://x"])
def test_an_invalid_url_is_no_reference(url: str) -> None:
    assert parse_reference(url) is None
