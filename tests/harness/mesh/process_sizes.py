"""The memory and the threads of processes that run, as Linux reports them in /proc."""

from pathlib import Path
from typing import Final

IDLE_MESH_BYTES: Final = 250 * 1000 * 1000
"""The memory that an idle mesh stays below, with all its services in one process."""


def process_tree(root: int) -> list[Path]:
    """Return the /proc folders of a process and all its descendants."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        try:
            # The name in parentheses may contain anything; after it come state, parent, ….
            pid = int(folder.name)
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            continue
        parents.setdefault(parent, []).append(pid)
    folders = [root]
    for pid in folders:
        folders += parents.get(pid, [])
    return [Path("/proc") / str(pid) for pid in folders]


def resident_bytes(process: Path) -> int:
    """Return the memory that a process has now."""
    return int(_read_status(process, "VmRSS").removesuffix("kB")) * 1024


def count_threads(process: Path) -> int:
    """Return the number of a process's threads."""
    return int(_read_status(process, "Threads"))


def _read_status(process: Path, name: str) -> str:
    """Return a value of a process's status; "0" if the process has just ended."""
    try:
        lines = (process / "status").read_text().splitlines()
    except OSError:
        return "0"
    # A process that has ended and that nobody has waited for has no memory.
    return next((line.partition(":")[2] for line in lines if line.startswith(f"{name}:")), "0")
