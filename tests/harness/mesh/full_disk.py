"""A disk that is full for one process."""

import resource
from pathlib import Path
from typing import Final

from harness.mesh.processes import MeshProcess

_UNLIMITED: Final = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


def journal_of(folder: Path) -> Path:
    """Return the journal file of a single-process mesh."""
    (file,) = (folder / "data" / "journals").glob("*.db")
    return file


def fill_disk(mesh: MeshProcess, folder: Path) -> None:
    """Stop the growth of every file of the mesh."""
    journal = journal_of(folder)
    largest = max(path.stat().st_size for path in journal.parent.iterdir())
    # SQLite sees a write that fails half way, as on a full disk. Writes to existing pages still
    # succeed, because nothing is rewritten beyond the limit.
    resource.prlimit(mesh.process.pid, resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))


def free_disk(mesh: MeshProcess) -> None:
    """Let the files grow again."""
    resource.prlimit(mesh.process.pid, resource.RLIMIT_FSIZE, _UNLIMITED)
