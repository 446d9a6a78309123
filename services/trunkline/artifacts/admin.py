"""Finds, checks, copies and prunes the files beside journals, for operators."""

import shutil
from collections.abc import Container, Iterable, Iterator
from pathlib import Path

from trunkline.artifacts.blob_store import BlobStore
from trunkline.artifacts.blob_writer import FOLDER_SUFFIX, metadata_path, translate_errors
from trunkline.artifacts.references import parse_reference
from trunkline.errors import ArtifactNotFoundError, JournalUnavailableError


def is_blob_file(path: Path) -> bool:
    """Return whether a path in a data directory is in a folder of tasks' files."""
    return any(folder.name.endswith(FOLDER_SUFFIX) for folder in path.parents)


def find_blob_folders(folder: Path) -> list[Path]:
    """Return the folders below a folder that contain files of journals."""
    return sorted(path for path in folder.rglob(f"*{FOLDER_SUFFIX}") if path.is_dir())


def check_blobs(blobs: BlobStore, references: Iterable[str]) -> Iterator[str]:
    """Yield damaged files, and references of tasks to missing files, as one line each."""
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
    """Copy complete files. Return the number of bytes. JournalUnavailableError."""
    size_bytes = 0
    with translate_errors(target):
        for path in sorted(folder.glob("*/*")):
            # Metadata is copied with its file, and incomplete files are not copied.
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
    """Delete the files of all tasks that are not in `task_ids`. Return how many tasks it were."""
    obsolete = [task_id for task_id in blobs.list_task_ids() if task_id not in task_ids]
    blobs.remove(obsolete)
    return len(obsolete)
