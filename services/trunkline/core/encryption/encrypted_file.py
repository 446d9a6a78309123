"""A file that is encrypted in chunks, so that it can be read and written at any offset.

Each chunk is encrypted as `cipher` says, and bound to the file's place and to its number. The size
of the content is not stored here: the file's owner checks it, because chunks may be missing at the
end.
"""

import os
from typing import BinaryIO, Final

from trunkline.core.encryption.cipher import OVERHEAD_BYTES, Cipher, is_encrypted
from trunkline.errors import JournalDamagedError

CHUNK_BYTES: Final = 64 * 1024
"""The size of the content of a chunk; only the last one is smaller."""
_STORED_CHUNK_BYTES: Final = CHUNK_BYTES + OVERHEAD_BYTES


class EncryptedFile:
    """An open file, whose methods take and return plain content. Its methods block."""

    def __init__(self, file: BinaryIO, cipher: Cipher, place: str) -> None:
        """Use an unbuffered file, which is empty or was written by this class."""
        self._file = file
        self._cipher = cipher
        self._place = place
        self._position = 0
        # The last chunk that was read or written.
        self._number = -1
        self._chunk = b""

    @staticmethod
    def content_size(stored_bytes: int) -> int:
        """Return the size of the content of a file of this stored size."""
        chunks, rest = divmod(stored_bytes, _STORED_CHUNK_BYTES)
        return chunks * CHUNK_BYTES + max(0, rest - OVERHEAD_BYTES)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move to an offset from the start, or with SEEK_END from the end."""
        self._position = offset + (self.size() if whence == os.SEEK_END else 0)
        return self._position

    def size(self) -> int:
        """Return the size of the content."""
        return self.content_size(os.fstat(self._file.fileno()).st_size)

    def read(self, limit: int) -> bytes:
        """Return up to `limit` bytes. Fewer only at the end."""
        pieces = []
        while limit > 0:
            number, offset = divmod(self._position, CHUNK_BYTES)
            piece = self._read_chunk(number)[offset : offset + limit]
            if not piece:
                break
            pieces.append(piece)
            limit -= len(piece)
            self._position += len(piece)
        return b"".join(pieces)

    def write(self, data: bytes) -> int:
        """Write bytes at the end. Return their number."""
        view = memoryview(data)
        while view:
            number, offset = divmod(self._position, CHUNK_BYTES)
            chunk = self._read_chunk(number)[:offset] + bytes(view[: CHUNK_BYTES - offset])
            self._write_chunk(number, chunk)
            written = len(chunk) - offset
            self._position += written
            view = view[written:]
        return len(data)

    def truncate(self, size: int) -> int:
        """Remove the content after an offset."""
        number, offset = divmod(size, CHUNK_BYTES)
        rest = self._read_chunk(number)[:offset]
        self._file.truncate(number * _STORED_CHUNK_BYTES)
        self._number = -1
        if rest:
            self._write_chunk(number, rest)
        return size

    def fileno(self) -> int:
        """Return the descriptor of the file."""
        return self._file.fileno()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _read_chunk(self, number: int) -> bytes:
        """Return the content of a chunk, or nothing if the file ends before the chunk.

        Raises:
            JournalDamagedError: the chunk was altered.
        """
        if number != self._number:
            self._file.seek(number * _STORED_CHUNK_BYTES)
            stored = _read_all(self._file, _STORED_CHUNK_BYTES)
            if stored and not is_encrypted(stored):
                raise JournalDamagedError(self._place, "a chunk of it is not encrypted")
            chunk = self._cipher.decrypt(stored, self._chunk_place(number)) if stored else b""
            self._number, self._chunk = number, chunk
        return self._chunk

    def _write_chunk(self, number: int, chunk: bytes) -> None:
        self._number = -1
        self._file.seek(number * _STORED_CHUNK_BYTES)
        view = memoryview(self._cipher.encrypt(chunk, self._chunk_place(number)))
        while view:
            view = view[self._file.write(view) :]
        self._number, self._chunk = number, chunk

    def _chunk_place(self, number: int) -> str:
        return f"{self._place}/{number}"


def _read_all(file: BinaryIO, limit: int) -> bytes:
    """Read up to `limit` bytes from an unbuffered file, which may return fewer at once."""
    content = b""
    while len(content) < limit and (piece := file.read(limit - len(content))):
        content += piece
    return content
