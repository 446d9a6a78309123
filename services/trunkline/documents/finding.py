"""Finds the files that are meant by paths: folders are searched, hidden things are not."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trunkline.documents.reading import kind_of
from trunkline.documents.reading.kinds import clean
from trunkline.errors import InvalidArgumentError

DEPTH_LIMIT = 32
FILE_LIMIT = 20_000
"""Files that one folder may hold; more are most likely not what was meant."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file that may be a document."""

    path: Path
    name: str
    """How sources call it: its path from the folder on that was named."""
    media_type: str
    size_bytes: int
    modified_ns: int


def candidates(given: Path) -> Iterator[Candidate]:
    """Yield a named file, whatever it is called, or the documents of a folder, by name.

    Links below a folder aren't followed.

    Raises:
        InvalidArgumentError: there is nothing, or far too much.
    """
    try:
        path = given.resolve(strict=True)
        found = path.stat()
    except (OSError, RuntimeError) as error:
        said = getattr(error, "strerror", None) or "it can't be followed"
        raise InvalidArgumentError("PATH", f"{str(given)!r}: {said}") from error
    if stat.S_ISREG(found.st_mode):
        yield _candidate(path, path.name, found, kind_of(path) or "text/plain")
        return
    if not stat.S_ISDIR(found.st_mode):
        raise InvalidArgumentError("PATH", f"{str(given)!r} is neither a file nor a folder")
    count = 0
    for file, status in _files(path, depth=0):
        if media_type := kind_of(file):
            count += 1
            if count > FILE_LIMIT:
                problem = (
                    f"{str(given)!r} holds more than {FILE_LIMIT} documents; name folders in it"
                )
                raise InvalidArgumentError("PATH", problem)
            name = str(Path(path.name) / file.relative_to(path))
            yield _candidate(file, name, status, media_type)


def _files(folder: Path, *, depth: int) -> Iterator[tuple[Path, os.stat_result]]:
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError:
        # A folder that may not be read holds nothing for us.
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                if depth < DEPTH_LIMIT:
                    yield from _files(Path(entry.path), depth=depth + 1)
            elif entry.is_file(follow_symlinks=False):
                yield Path(entry.path), entry.stat(follow_symlinks=False)
        except OSError:
            continue


def _candidate(path: Path, name: str, status: os.stat_result, media_type: str) -> Candidate:
    return Candidate(path, _shown(name), media_type, status.st_size, status.st_mtime_ns)


def _shown(name: str) -> str:
    """A name as text: file systems take anything."""
    return clean(name.encode(errors="surrogateescape").decode(errors="replace").replace("\n", " "))
