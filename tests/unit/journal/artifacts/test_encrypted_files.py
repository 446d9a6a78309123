"""Encrypted files beside a journal: any offset, resumed uploads, and damage."""

import asyncio
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.journal.protected import new_key, open_keyring
from trunkline.core.encryption import Cipher, EncryptedFile
from trunkline.errors import JournalUnavailableError
from trunkline.journal.artifacts import Reference
from trunkline.journal.artifacts.folder import FolderBlobStore

KEY = new_key()
TASK = "journal1-aaaaaaaaaaaaaaaa"
CHUNK = 64 * 1024
CONTENT = bytes(range(256)) * 1000


@pytest.fixture
def blobs(tmp_path: Path) -> FolderBlobStore:
    return FolderBlobStore(tmp_path / "host.db.artifacts", keyring=open_keyring(tmp_path, KEY))


async def read(
    blobs: FolderBlobStore, reference: Reference, *, offset: int = 0, length: int = 0
) -> bytes:
    return b"".join([chunk async for chunk in blobs.read(reference, offset=offset, length=length)])


async def test_a_file_and_its_metadata_are_encrypted(blobs: FolderBlobStore) -> None:
    reference = Reference.create(TASK, "file")
    blob = await blobs.put(reference, CONTENT, media_type="text/x", filename="diagnosis.txt")
    assert (blob.size_bytes, blob.filename) == (len(CONTENT), "diagnosis.txt")
    stored = b"".join(path.read_bytes() for path in (blobs.folder / TASK).iterdir())
    assert CONTENT[:64] not in stored
    assert b"diagnosis" not in stored
    assert await read(blobs, reference) == CONTENT
    for offset, length in ((0, 1), (CHUNK - 1, 2), (CHUNK, CHUNK), (200_000, 0), (255_999, 5)):
        end = offset + length if length else len(CONTENT)
        assert await read(blobs, reference, offset=offset, length=length) == CONTENT[offset:end]
    assert [line async for line in blobs.find_damage()] == []


async def test_an_upload_is_resumed_and_corrected(blobs: FolderBlobStore, tmp_path: Path) -> None:
    reference = Reference.create(TASK, "file")
    async with blobs.open_writer(reference) as writer:
        await writer.write(CONTENT[:100_000])
    again = FolderBlobStore(blobs.folder, keyring=open_keyring(tmp_path, KEY))
    async with again.open_writer(reference) as writer:
        assert writer.offset == 100_000
        await writer.write(b"wrong")
        await writer.write(CONTENT[90_000:], at=90_000)
        await writer.finish()
    assert await read(again, reference) == CONTENT
    assert [line async for line in again.find_damage()] == []


async def test_plain_files_stay_readable(blobs: FolderBlobStore, tmp_path: Path) -> None:
    # The first byte is that of encrypted content.
    content = b"\xe7" + CONTENT
    plain = FolderBlobStore(blobs.folder)
    reference = Reference.create(TASK, "plain")
    await plain.put(reference, content)
    async with plain.open_writer(Reference.create(TASK, "part")) as writer:
        await writer.write(content)
    assert await read(blobs, reference) == content
    async with blobs.open_writer(Reference.create(TASK, "part")) as writer:
        assert writer.offset == 0
    assert [line async for line in blobs.find_damage()] == []


async def test_altered_moved_and_shortened_files_are_refused(blobs: FolderBlobStore) -> None:
    first, second = Reference.create(TASK, "first"), Reference.create(TASK, "second")
    for reference in (first, second):
        await blobs.put(reference, CONTENT)
    path, other = (blobs.folder / TASK / name for name in ("first", "second"))
    stored = path.read_bytes()
    shutil.copy(other, path)
    with pytest.raises(JournalUnavailableError, match="altered, or moved"):
        await read(blobs, first)
    half = CHUNK + 33
    path.write_bytes(stored[half : 2 * half] + stored[:half] + stored[2 * half :])
    with pytest.raises(JournalUnavailableError, match="altered, or moved"):
        await read(blobs, first)
    path.write_bytes(stored[:half])
    with pytest.raises(JournalUnavailableError, match="is damaged"):
        await read(blobs, first)
    path.write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]))
    assert [line async for line in blobs.find_damage()] == [f"task {TASK}: file first is damaged"]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["write", "truncate"]),
            st.one_of(st.integers(0, 200), st.integers(CHUNK - 2, 2 * CHUNK + 2)),
        ),
        max_size=6,
    )
)
def test_an_encrypted_file_behaves_like_a_plain_file(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("file")
    cipher: Cipher = open_keyring(folder, KEY).cipher("files", name="file")
    plain = bytearray()
    with (folder / "file").open("w+b", buffering=0) as stored:
        file = EncryptedFile(stored, cipher, "place")
        for kind, size in steps:
            if kind == "write":
                data = bytes(size % 251 for size in range(size))
                file.seek(len(plain))
                assert file.write(data) == size
                plain += data
            else:
                at = min(size, len(plain))
                file.truncate(at)
                del plain[at:]
        fresh = EncryptedFile(stored, cipher, "place")
        assert fresh.seek(0, 2) == len(plain)
        fresh.seek(0)
        assert fresh.read(len(plain) + 1) == plain
    shutil.rmtree(folder)


def test_an_empty_file_is_complete(blobs: FolderBlobStore) -> None:
    async def put_and_read() -> bytes:
        reference = Reference.create(TASK, "empty")
        await blobs.put(reference, b"")
        return await read(blobs, reference)

    assert asyncio.run(put_and_read()) == b""
