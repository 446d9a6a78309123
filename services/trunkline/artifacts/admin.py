"""What operators do with the files beside journals: find, check, copy and trim them."""

import shutil
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from trunkline.artifacts.blob_store import BlobStore
from trunkline.artifacts.blob_writer import FOLDER_SUFFIX, metadata_path, translate_errors
from trunkline.artifacts.references import parse_reference
from trunkline.errors import ArtifactNotFoundError, JournalUnavailableError


def is_blob_file(path: Path) -> bool:
    """Whether a file of a data directory is a task's, whatever it looks like itself."""
    return any(folder.name.endswith(FOLDER_SUFFIX) for folder in path.parents)


def find_blob_folders(folder: Path) -> list[Path]:
    """Return the folders below one that hold the files of journals."""
    return sorted(path for path in folder.rglob(f"*{FOLDER_SUFFIX}") if path.is_dir())


def check_blobs(blobs: BlobStore, references: Iterable[str]) -> Iterator[str]:
    """Yield what is damaged of a journal's files, and what its tasks refer to and isn't there."""
    yield from blobs.find_damage()
    for url in sorted(references):
        reference = parse_reference(url)
        if reference is None:
            continue
        try:
            blobs.get_sync(reference)
        except ArtifactNotFoundError:
            yield f"task {reference.task_id}: file {reference.blob_id} is missing"
        except (JournalUnavailableError, OSError, ValueError):
            continue  # Named above.


def copy_blobs(folder: Path, target: Path) -> int:
    """Copy what is whole; return how many bytes. JournalUnavailableError: it can't be written."""
    size_bytes = 0
    with translate_errors(target):
        for path in sorted(folder.glob("*/*")):
            # What stands beside each file goes with it; what is not whole yet stays.
            if path.suffix in (".part", ".json"):
                continue
            into = target / path.relative_to(folder)
            into.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                for one in (path, metadata_path(path)):
                    shutil.copy2(one, into.with_name(one.name))
            except FileNotFoundError:
                continue  # Its task is past retention since just now.
            size_bytes += into.stat().st_size
    return size_bytes


def prune_blobs(blobs: BlobStore, task_ids: Container[str]) -> int:
    """Remove the files of tasks that are not among these; return of how many tasks."""
    gone = [task_id for task_id in blobs.list_task_ids() if task_id not in task_ids]
    blobs.remove(gone)
    return len(gone)
