"""Records what SQLite writes and syncs, and makes the files that a power cut could leave.

A disk may lose any write that came after the last sync of its file, and keep another one that came
later. Writes are recorded below SQLite, by a VFS that passes all calls on to the default one.
"""

import _sqlite3
import ctypes
import os
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from ctypes import POINTER, Structure, c_char_p, c_int, c_int64, c_void_p
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_NAME: Final = b"recorded"
# A disk writes sectors of this size whole or not at all.
_SECTOR_BYTES: Final = 512
# The name is a pointer here, because SQLite keeps it as long as the file is open.
_OPEN = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_void_p, c_int, c_void_p)
_DELETE = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_int)
_WRITE = ctypes.CFUNCTYPE(c_int, c_void_p, c_void_p, c_int, c_int64)
_TRUNCATE = ctypes.CFUNCTYPE(c_int, c_void_p, c_int64)
_SYNC = ctypes.CFUNCTYPE(c_int, c_void_p, c_int)


class _Methods(Structure):
    """`sqlite3_io_methods`. Pointers that are passed on unchanged have no type."""

    _fields_ = [
        ("iVersion", c_int),
        ("xClose", c_void_p),
        ("xRead", c_void_p),
        ("xWrite", _WRITE),
        ("xTruncate", _TRUNCATE),
        ("xSync", _SYNC),
        ("others", c_void_p * 13),
    ]


class _File(Structure):
    """`sqlite3_file`: the start of the default VFS's own structure."""

    _fields_ = [("methods", POINTER(_Methods))]


class _Vfs(Structure):
    """`sqlite3_vfs`."""

    _fields_ = [
        ("iVersion", c_int),
        ("szOsFile", c_int),
        ("mxPathname", c_int),
        ("pNext", c_void_p),
        ("zName", c_char_p),
        ("pAppData", c_void_p),
        ("xOpen", _OPEN),
        ("xDelete", _DELETE),
        ("others", c_void_p * 13),
    ]


@dataclass(frozen=True, slots=True)
class _Sync:
    """All earlier writes of the file are on the disk."""

    file: str


@dataclass(frozen=True, slots=True)
class _Delete:
    """The file is gone. A disk that loses this step has the file as it was."""

    file: str
    is_synced: bool


@dataclass(frozen=True, slots=True)
class _Write:
    """A change of a file: bytes at an offset, or with no bytes a new length."""

    file: str
    offset: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        """Change the content of the file."""
        if self.data is None:
            del content[self.offset :]
            return
        if len(content) < self.offset:
            content.extend(bytes(self.offset - len(content)))
        content[self.offset : self.offset + len(self.data)] = self.data

    def torn(self, rng: random.Random) -> "_Write":
        """Return what is left if the power fails in this write: some first sectors."""
        if self.data is None:
            return self
        sectors = rng.randrange(len(self.data) // _SECTOR_BYTES + 1)
        return _Write(self.file, self.offset, self.data[: sectors * _SECTOR_BYTES])


class RecordedDisk:
    """What was written below a folder, in order."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.realpath(folder)
        self._steps: list[_Sync | _Write | _Delete] = []
        self._lock = threading.Lock()

    @property
    def length(self) -> int:
        """The number of writes and syncs."""
        return len(self._steps)

    def has(self, path: str) -> bool:
        """Return whether a file is recorded. The index of a log is no file: it is not synced."""
        return os.path.dirname(path) == self._folder and not path.endswith("-shm")  # noqa: PTH120

    def add_write(self, file: str, offset: int, data: bytes | None) -> None:
        """Record a write, before it is made."""
        with self._lock:
            self._steps.append(_Write(file, offset, data))

    def add_sync(self, file: str) -> None:
        """Record a sync, after it was made."""
        with self._lock:
            self._steps.append(_Sync(file))

    def add_delete(self, file: str, *, is_synced: bool) -> None:
        """Record that a file was deleted, and whether its folder was synced."""
        with self._lock:
            self._steps.append(_Delete(file, is_synced))

    def cut_power(self, after: int, rng: random.Random, folder: Path) -> None:
        """Make the files in `folder` that a power cut after so many steps could leave."""
        steps = self._steps[:after]
        synced = {step.file: index for index, step in enumerate(steps) if isinstance(step, _Sync)}
        folder_synced = self._find_folder_sync(steps)
        contents: dict[str, bytearray] = {}
        # All, none, or each by a throw: a disk has its own order.
        kept = rng.choice((0.0, 0.5, 0.9, 1.0))
        for index, step in enumerate(steps):
            if isinstance(step, _Delete):
                if step.is_synced or index < folder_synced or rng.random() < kept:
                    contents.pop(step.file, None)
                continue
            content = contents.setdefault(step.file, bytearray())
            if isinstance(step, _Sync):
                continue
            if index < synced.get(step.file, 0) or rng.random() < kept:
                step.apply(content)
            elif rng.random() < 0.5:
                step.torn(rng).apply(content)
        for path, content in contents.items():
            (folder / Path(path).name).write_bytes(content)

    def _find_folder_sync(self, steps: Sequence[_Sync | _Write | _Delete]) -> int:
        """Return the last step that synced the folder: the first sync of a new log, of any kind."""
        first: dict[str, int] = {}
        for index, step in enumerate(steps):
            if isinstance(step, _Sync) and step.file.endswith(("-wal", "-journal")):
                first.setdefault(step.file, index)
        return max(first.values(), default=0)


@contextmanager
def record_disk(folder: Path) -> Iterator[RecordedDisk]:
    """Record all files of SQLite in a folder that are opened in the block."""
    disk = RecordedDisk(folder)
    # Found also if SQLite is part of the interpreter.
    library = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
    library.sqlite3_vfs_find.restype = POINTER(_Vfs)
    default = library.sqlite3_vfs_find(None)
    recorder = _Recorder(disk, default.contents)
    assert library.sqlite3_vfs_register(ctypes.byref(recorder.vfs), 1) == 0
    try:
        yield disk
    finally:
        library.sqlite3_vfs_unregister(ctypes.byref(recorder.vfs))
        library.sqlite3_vfs_register(default, 1)
        # Connections that are still open call it.
        _RECORDERS.append(recorder)


_RECORDERS: Final[list[Any]] = []


class _Recorder:
    """The VFS: a copy of the default one, but for the methods of the files that are recorded."""

    def __init__(self, disk: RecordedDisk, default: _Vfs) -> None:
        self._disk = disk
        self._open = default.xOpen
        self._delete = default.xDelete
        self._files: dict[int, str] = {}
        self._methods: dict[int, _Methods] = {}
        self.vfs = _Vfs.from_buffer_copy(default)
        self.vfs.zName = _NAME
        self.vfs.xOpen = _OPEN(self._open_file)
        self.vfs.xDelete = _DELETE(self._delete_file)

    def _delete_file(self, vfs: int, name: bytes, is_synced: int) -> int:
        code: int = self._delete(vfs, name, is_synced)
        if code == 0 and self._disk.has(path := os.fsdecode(name)):
            self._disk.add_delete(path, is_synced=bool(is_synced))
        return code

    def _open_file(self, vfs: int, name: int | None, file: int, flags: int, out: int) -> int:
        code: int = self._open(vfs, name, file, flags, out)
        path = os.fsdecode(ctypes.string_at(name)) if name else ""
        if code == 0 and self._disk.has(path):
            self._files[file] = path
            opened = ctypes.cast(file, POINTER(_File)).contents
            address = ctypes.addressof(opened.methods.contents)
            opened.methods = ctypes.pointer(self._record(address, opened.methods.contents))
        return code

    def _record(self, address: int, default: _Methods) -> _Methods:
        """Return the methods of a file with those replaced that change it."""
        if address not in self._methods:
            methods = _Methods.from_buffer_copy(default)
            methods.xWrite = _WRITE(self._make_write(default.xWrite))
            methods.xTruncate = _TRUNCATE(self._make_truncate(default.xTruncate))
            methods.xSync = _SYNC(self._make_sync(default.xSync))
            self._methods[address] = methods
        return self._methods[address]

    def _make_write(self, default: Callable[..., int]) -> Callable[..., int]:
        def write(file: int, data: int, size: int, offset: int) -> int:
            self._disk.add_write(self._files[file], offset, ctypes.string_at(data, size))
            return default(file, data, size, offset)

        return write

    def _make_truncate(self, default: Callable[..., int]) -> Callable[..., int]:
        def truncate(file: int, size: int) -> int:
            self._disk.add_write(self._files[file], size, None)
            return default(file, size)

        return truncate

    def _make_sync(self, default: Callable[..., int]) -> Callable[..., int]:
        def sync(file: int, flags: int) -> int:
            code = default(file, flags)
            self._disk.add_sync(self._files[file])
            return code

        return sync
