"""Opens the stored form of files: plain, or encrypted if there is a key."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Final, Protocol

from trunkline.core.encryption import Cipher, EncryptedFile, Keyring, is_encrypted
from trunkline.errors import JournalUnavailableError
from trunkline.journal.artifacts.content import CHUNK_BYTES

FOLDER_SUFFIX: Final = ".artifacts"
"""The suffix of the folder beside a journal that contains its tasks' files."""


class ContentFile(Protocol):
    """The content of an open file."""

    def read(self, limit: int, /) -> bytes:
        """Return up to `limit` bytes, none at the end."""
        ...

    def write(self, data: bytes, /) -> int:
        """Write bytes, and return the number of those that were written."""
        ...

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to an offset."""
        ...

    def truncate(self, size: int, /) -> int:
        """Remove the content after an offset."""
        ...

    def fileno(self) -> int:
        """Return the descriptor."""
        ...

    def close(self) -> None:
        """Close the file."""
        ...


class BlobFiles:
    """Opens the files of one folder of blobs, and reads and writes their metadata."""

    def __init__(self, keyring: Keyring | None) -> None:
        """With data keys in the keyring, new files are encrypted."""
        self._cipher: Cipher | None = None
        if keyring is not None and keyring.is_encrypting:
            self._cipher = keyring.cipher("files", name="a file")

    def partial_path(self, path: Path) -> Path:
        """Return the path of a file that is still being written."""
        # An upload that began as plain text does not continue encrypted.
        return path.with_name(f"{path.name}{'.encrypted' if self._cipher else ''}.part")

    def open_partial(self, path: Path) -> ContentFile:
        """Open the incomplete form of a file for reading and writing."""
        fd = os.open(self.partial_path(path), os.O_RDWR | os.O_CREAT, 0o600)
        # Unbuffered: a writer that resumes must see all bytes that were acknowledged.
        file = os.fdopen(fd, "r+b", buffering=0)
        return EncryptedFile(file, self._cipher, _place(path)) if self._cipher else file

    def open_complete(self, path: Path) -> ContentFile:
        """Open a complete file for reading."""
        file = path.open("rb", buffering=0)
        if self._cipher is None or not self._is_encrypted(path):
            return file
        return EncryptedFile(file, self._cipher, _place(path))

    def write_metadata(self, path: Path, metadata: dict[str, Any]) -> None:
        """Write the metadata of a file."""
        content = json.dumps(metadata).encode()
        if self._cipher is not None:
            content = self._cipher.encrypt(content, _place(path))
        fd = os.open(metadata_path(path), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(fd, "wb") as file:
            file.write(content)

    def read_metadata(self, path: Path) -> tuple[dict[str, Any], int]:
        """Return the metadata of a complete file, and the size of its content.

        Raises:
            JournalUnavailableError: the metadata can't be decrypted.
            ValueError: the metadata is damaged.
            OSError: the file can't be read.
        """
        stored_bytes = path.stat().st_size
        content = metadata_path(path).read_bytes()
        if not is_encrypted(content):
            return json.loads(content), stored_bytes
        if self._cipher is None:
            problem = "it is encrypted, and there is no keyring; restore the keyring"
            raise JournalUnavailableError(display_name(path), problem)
        metadata = json.loads(self._cipher.decrypt(content, _place(path)))
        return metadata, EncryptedFile.content_size(stored_bytes)

    def _is_encrypted(self, path: Path) -> bool:
        with metadata_path(path).open("rb") as file:
            return is_encrypted(file.read(1))


def metadata_path(path: Path) -> Path:
    """Return the path of a file's metadata."""
    return path.with_name(f"{path.name}.json")


def hash_content(file: ContentFile) -> "hashlib._Hash":
    """Return the SHA-256 object of the content of an open file. It blocks.

    Raises:
        JournalUnavailableError: it was altered.
        OSError: the file can't be read.
    """
    digest = hashlib.sha256()
    file.seek(0)
    while chunk := file.read(CHUNK_BYTES):
        digest.update(chunk)
    return digest


def display_name(path: Path) -> str:
    """Return a file's name for error texts, without folders, because remote callers read them."""
    folders = [folder.name for folder in (path, *path.parents)]
    return next((name for name in folders if name.endswith(FOLDER_SUFFIX)), path.name)


def _place(path: Path) -> str:
    """Return the place of a file, to which its encryption is bound: its task and its id."""
    return f"{path.parent.name}/{path.name}"
