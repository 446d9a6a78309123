"""The file of the audit log, and the earlier files that it was rotated to.

`audit.jsonl` is the current file. Rotation renames it to `audit.000001.jsonl`, then
`audit.000002.jsonl` and so on. Several processes append to one file.
"""

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

from trunkline.private_files import create_private_folder, lock_file, open_private_append

# The longest wait for another process that writes.
_LOCK_TIMEOUT_S: Final = 2.0
_FOLLOW_INTERVAL_S: Final = 0.25
# Longer lines are not ours.
_LINE_LIMIT_BYTES: Final = 64 * 1024
_BLOCK_BYTES: Final = 64 * 1024


class RecordPosition(NamedTuple):
    """The position before a line of the log, which rotation does not change."""

    file: int
    """The inode of the file."""
    offset: int


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """A line of the log; `entry` is None if it is not a record."""

    entry: dict[str, Any] | None
    line: bytes


class AuditFile:
    """Appends lines to the log, and rotates it. Used by one thread at a time.

    Each append holds a lock on the file. Other processes can't write or rotate the file meanwhile.
    Lines are never changed.
    """

    def __init__(self, path: Path, *, size_bytes: int, age_s: float, files: int) -> None:
        """`size_bytes` and `age_s` limit a file, `files` their number, which is at least 2.

        Raises:
            ConfigurationError: another user may change the file or its folder, or it can't be used.
            OSError: the folder can't be made.
        """
        self.path = path
        self._size_bytes = size_bytes
        self._age_s = age_s
        self._files = files
        create_private_folder(path.parent)
        self._fd = open_private_append(path)

    def append(self, lines: bytes) -> None:
        """Append whole lines.

        Raises:
            OSError: they can't be written, or can't be written completely.
            ConfigurationError: another user may change the file.
        """
        size = self._lock_current()
        try:
            if size and (size + len(lines) > self._size_bytes or self._is_old()):
                self._rotate()
                size = self._lock_current()
            # A process that died or a full disk may have cut the last line.
            if size and os.pread(self._fd, 1, size - 1) != b"\n":
                lines = b"\n" + lines
            view = memoryview(lines)
            while view:
                view = view[os.write(self._fd, view) :]
        finally:
            fcntl.flock(self._fd, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def _lock_current(self) -> int:
        """Lock the file that is at the path now; return its size."""
        while True:
            lock_file(self._fd, timeout_s=_LOCK_TIMEOUT_S)
            status = os.fstat(self._fd)
            with suppress(FileNotFoundError):
                if os.path.samestat(self.path.lstat(), status):
                    return status.st_size
            # It was rotated by another process, or removed.
            fd = open_private_append(self.path)
            os.close(self._fd)
            self._fd = fd

    def _is_old(self) -> bool:
        line = os.pread(self._fd, 100, 0)
        match = re.match(rb'\{"time":"([^"]+)"', line)
        if match is None:
            return False
        try:
            begun = datetime.fromisoformat(match[1].decode())
        except ValueError:
            return False
        return (datetime.now(UTC) - begun).total_seconds() > self._age_s

    def _rotate(self) -> None:
        """Rename the locked file, and delete the oldest files."""
        numbered = _numbered_files(self.path)
        number = numbered[-1][0] + 1 if numbered else 1
        target = self.path.with_name(f"{self.path.stem}.{number:06d}{self.path.suffix}")
        self.path.rename(target)
        # The current file counts, too.
        surplus = len(numbered) + 2 - self._files
        for _, path in numbered[: max(0, surplus)]:
            path.unlink(missing_ok=True)


def read_records(path: Path) -> Iterator[ReadRecord]:
    """Yield the lines of all files, the oldest first. Files that are deleted meanwhile are missing.

    Raises:
        OSError: a file can't be read.
    """
    for file in _all_files(path):
        with suppress(FileNotFoundError), file.open("rb") as opened:
            yield from _read_lines(opened)


def read_records_backwards(
    path: Path, before: RecordPosition | None = None
) -> Iterator[tuple[ReadRecord, RecordPosition]]:
    """Yield the lines of all files before a position, the newest first, each with its position.

    Nothing is yielded if the file of the position is deleted.

    Raises:
        OSError: a file can't be read.
    """
    for file in reversed(_all_files(path)):
        with suppress(FileNotFoundError), file.open("rb") as opened:
            status = os.fstat(opened.fileno())
            if before is not None and before.file != status.st_ino:
                continue
            end = status.st_size if before is None else min(before.offset, status.st_size)
            before = None
            for line, offset in _read_lines_backwards(opened, end):
                yield ReadRecord(_parse(line), line), RecordPosition(status.st_ino, offset)


def follow_records(path: Path) -> Iterator[ReadRecord | None]:
    """Yield the lines of all files, then new lines as they are written.

    None is yielded while there is no new line. A rotated file is read to its end before the next
    one.

    Raises:
        OSError: a file can't be read.
    """
    last: tuple[int, int] | None = None
    while True:
        for file in _files_after(path, last):
            with suppress(FileNotFoundError), file.open("rb") as opened:
                status = os.fstat(opened.fileno())
                last = (status.st_dev, status.st_ino)
                yield from _follow_file(opened, path)
        yield None
        time.sleep(_FOLLOW_INTERVAL_S)


def _follow_file(opened: BinaryIO, path: Path) -> Iterator[ReadRecord | None]:
    """Yield the lines of a file until it is rotated and read to its end."""
    while True:
        is_current = _is_same(opened, path)
        yield from _read_lines(opened)
        if not is_current:
            return
        yield None
        time.sleep(_FOLLOW_INTERVAL_S)


def _is_same(opened: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(opened.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _files_after(path: Path, last: tuple[int, int] | None) -> list[Path]:
    """Return the files after the file that was read last, or all files if it is gone."""
    files = _all_files(path)
    for index, file in enumerate(files):
        with suppress(FileNotFoundError):
            status = file.stat()
            if (status.st_dev, status.st_ino) == last:
                return files[index + 1 :]
    return files


def _read_lines(opened: BinaryIO) -> Iterator[ReadRecord]:
    """Yield the whole lines from the position of a file on."""
    while True:
        start = opened.tell()
        line = opened.readline(_LINE_LIMIT_BYTES)
        if not line.endswith(b"\n") and len(line) < _LINE_LIMIT_BYTES:
            # A process is writing the rest.
            opened.seek(start)
            return
        if line.strip():
            yield ReadRecord(_parse(line), line)


def _read_lines_backwards(opened: BinaryIO, end: int) -> Iterator[tuple[bytes, int]]:
    """Yield the whole lines before the offset `end`, the last first, each with its offset."""
    # The end of a line whose beginning is before `end`. It is None until a line end is found,
    # because a process may be writing the last line.
    tail: bytes | None = None
    while end > 0:
        start = max(0, end - _BLOCK_BYTES)
        opened.seek(start)
        block = opened.read(end - start)
        end = start
        if tail is None:
            last = block.rfind(b"\n")
            if last < 0:
                continue
            block, tail = block[:last], b""
        first, *whole = (block + tail).split(b"\n")
        offset = start + len(first) + 1 + sum(len(line) + 1 for line in whole)
        for line in reversed(whole):
            offset -= len(line) + 1
            if line.strip():
                yield line, offset
        # A line that is too long is not ours. It must not fill the memory, nor be a record.
        tail = first if len(first) <= _LINE_LIMIT_BYTES else b"\0"
    if tail and tail.strip():
        yield tail, 0


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, dict) else None


def _all_files(path: Path) -> list[Path]:
    numbered = [file for _, file in _numbered_files(path)]
    return [*numbered, path] if path.exists() else numbered


def _numbered_files(path: Path) -> list[tuple[int, Path]]:
    """Return the rotated files with their numbers, the oldest first."""
    pattern = re.compile(rf"{re.escape(path.stem)}\.([0-9]{{6,}}){re.escape(path.suffix)}")
    matches = ((pattern.fullmatch(file.name), file) for file in path.parent.glob("*"))
    return sorted((int(match[1]), file) for match, file in matches if match)
