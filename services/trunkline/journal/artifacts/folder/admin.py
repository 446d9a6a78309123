"""Finds, checks, copies and prunes the files beside journals, for operators."""

import shutil
from collections.abc import AsyncGenerator, Container, Iterable
from pathlib import Path

from trunkline.errors import ArtifactNotFoundError, JournalUnavailableError
from trunkline.journal.artifacts.blob_store import BlobStore
from trunkline.journal.artifacts.folder.blob_file import FOLDER_SUFFIX, metadata_path
from trunkline.journal.artifacts.folder.writer import translate_errors
from trunkline.journal.artifacts.references import parse_reference


def is_blob_file(path: Path) -> bool:
    """Return whether a path is in a folder of tasks' files."""
    return any(folder.name.endswith(FOLDER_SUFFIX) for folder in path.parents)


def find_blob_folders(folder: Path) -> list[Path]:
    """Return the folders below a folder that contain files of journals."""
    return sorted(path for path in folder.rglob(f"*{FOLDER_SUFFIX}") if path.is_dir())


async def check_blobs(blobs: BlobStore, references: Iterable[str]) -> AsyncGenerator[str]:
    """Yield a line for each damaged file, and for each reference to a missing file."""
    async for line in blobs.find_damage():
        yield line
    for url in sorted(references):
        reference = parse_reference(url)
        if reference is None:
            continue
        try:
            await blobs.get(reference)
        except ArtifactNotFoundError:
            yield f"task {reference.task_id}: file {reference.blob_id} is missing"
        except JournalUnavailableError:
            continue  # `find_damage` reports it.


def copy_blobs(folder: Path, target: Path) -> int:
    """Copy the complete files of a folder. Return the number of bytes, without metadata.

    Raises:
        JournalUnavailableError: a file can't be read, or the copy can't be written.
    """
    size_bytes = 0
    with translate_errors(target):
        for path in sorted(folder.glob("*/*")):
            # Metadata is copied with its file, and incomplete files are not copied.
            if path.suffix in (".part", ".json"):
                continue
            copy = target / path.relative_to(folder)
            copy.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            try:
                # Metadata alone is no file, but a file without metadata is damaged.
                shutil.copy2(metadata_path(path), metadata_path(copy))
                shutil.copy2(path, copy)
            except FileNotFoundError:
                continue  # Retention deleted its task meanwhile.
            size_bytes += copy.stat().st_size
    return size_bytes


async def prune_blobs(blobs: BlobStore, task_ids: Container[str]) -> int:
    """Delete the files of all tasks that are not in `task_ids`. Return the number of tasks."""
    obsolete = [task_id for task_id in await blobs.list_task_ids() if task_id not in task_ids]
    await blobs.remove(obsolete)
    return len(obsolete)
