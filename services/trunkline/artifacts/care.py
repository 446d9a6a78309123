"""What operators do with the files beside journals: find, check, copy and trim them."""

import shutil
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from trunkline.artifacts.blobs import Blobs
from trunkline.artifacts.references import find_reference
from trunkline.artifacts.writing import ENDING, about_path, file_errors
from trunkline.errors import ArtifactNotFoundError, JournalUnavailableError


def is_kept_file(path: Path) -> bool:
    """Whether a file of a data directory is a task's, whatever it looks like itself."""
    return any(folder.name.endswith(ENDING) for folder in path.parents)


def blob_folders(folder: Path) -> list[Path]:
    """Return the folders below one that hold the files of journals."""
    return sorted(path for path in folder.rglob(f"*{ENDING}") if path.is_dir())


def problems(blobs: Blobs, references: Iterable[str]) -> Iterator[str]:
    """Yield what is damaged of a journal's files, and what its tasks refer to and isn't there."""
    yield from blobs.damaged()
    for url in sorted(references):
        reference = find_reference(url)
        if reference is None:
            continue
        try:
            blobs.look(reference)
        except ArtifactNotFoundError:
            yield f"task {reference.task_id}: file {reference.blob_id} is missing"
        except (JournalUnavailableError, OSError, ValueError):
            continue  # Named above.


def copy(folder: Path, target: Path) -> int:
    """Copy what is whole; return how many bytes. JournalUnavailableError: it can't be written."""
    size_bytes = 0
    with file_errors(target):
        for path in sorted(folder.glob("*/*")):
            # What stands beside each file goes with it; what is not whole yet stays.
            if path.suffix in (".part", ".json"):
                continue
            into = target / path.relative_to(folder)
            into.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                for one in (path, about_path(path)):
                    shutil.copy2(one, into.with_name(one.name))
            except FileNotFoundError:
                continue  # Its task is past retention since just now.
            size_bytes += into.stat().st_size
    return size_bytes


def prune(blobs: Blobs, task_ids: Container[str]) -> int:
    """Remove the files of tasks that are not among these; return of how many tasks."""
    gone = [task_id for task_id in blobs.task_ids() if task_id not in task_ids]
    blobs.remove(gone)
    return len(gone)
