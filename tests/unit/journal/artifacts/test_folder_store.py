"""What only files in a folder do: they report a full disk and damaged metadata, and are copied."""

import errno
import os
from pathlib import Path

import pytest

from trunkline.errors import JournalUnavailableError
from trunkline.journal.artifacts import Reference, parse_reference
from trunkline.journal.artifacts.folder import FolderBlobStore
from trunkline.journal.artifacts.folder.admin import check_blobs, copy_blobs
from trunkline.journal.artifacts.references import sanitize_filename

_CONTENT = bytes(range(256)) * 3000
_REFERENCE = Reference.create("j1-1", "a")


@pytest.fixture
def blobs(tmp_path: Path) -> FolderBlobStore:
    return FolderBlobStore(tmp_path / "host.db.artifacts")


async def test_a_full_disk_is_reported_and_the_partial_file_is_deleted(
    blobs: FolderBlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def raise_disk_full(_path: object) -> object:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(
        "trunkline.journal.artifacts.folder.writer.shutil.disk_usage", raise_disk_full
    )
    with pytest.raises(JournalUnavailableError, match="the disk is full; free some space"):
        await blobs.put(_REFERENCE, _CONTENT)

    assert await blobs.list_task_ids() == []


async def test_a_shortened_file_is_refused(blobs: FolderBlobStore) -> None:
    await blobs.put(_REFERENCE, _CONTENT)
    (blobs.folder / "j1-1" / "a").write_bytes(_CONTENT[:-1])

    with pytest.raises(JournalUnavailableError, match="damaged"):
        await blobs.get(_REFERENCE)
    assert [line async for line in blobs.find_damage()] == ["task j1-1: file a is damaged"]


@pytest.mark.parametrize("metadata", [b"", b"{}", b"[]", b'{"size_bytes": 1, "x": 1}'])
async def test_damaged_metadata_is_reported_by_reads_and_by_checks(
    blobs: FolderBlobStore, metadata: bytes
) -> None:
    await blobs.put(_REFERENCE, _CONTENT)
    (blobs.folder / "j1-1" / "a.json").write_bytes(metadata)

    with pytest.raises(JournalUnavailableError, match="damaged"):
        await blobs.get(_REFERENCE)
    lines = [line async for line in check_blobs(blobs, [_REFERENCE.url])]
    assert lines == ["task j1-1: file a is damaged"]


async def test_a_file_that_is_deleted_during_a_copy_is_not_copied(
    blobs: FolderBlobStore, tmp_path: Path
) -> None:
    await blobs.put(_REFERENCE, _CONTENT)
    await blobs.put(Reference.create("j1-2", "b"), b"well")
    (blobs.folder / "j1-1" / "a.json").unlink()

    assert copy_blobs(blobs.folder, tmp_path / "copy") == len(b"well")

    copy = FolderBlobStore(tmp_path / "copy")
    assert [line async for line in copy.find_damage()] == []
    assert (await copy.get(Reference.create("j1-2", "b"))).size_bytes == len(b"well")


@pytest.mark.parametrize(
    ("filename", "safe"),
    [("../../etc/passwd", "passwd"), ("C:\\x\\y.txt", "y.txt"), ("a\r\nb", "a b"), ("..", "")],
)
def test_a_filename_has_no_folders_and_no_control_characters(filename: str, safe: str) -> None:
    assert sanitize_filename(filename) == safe


@pytest.mark.parametrize("url", ["trunkline:x", "trunkline:../a", "trunkline:a/../b", "https://x"])
def test_an_invalid_url_is_no_reference(url: str) -> None:
    assert parse_reference(url) is None
