"""`trunkline up --reload`: runs a mesh in a child process, and again when its files change."""

import asyncio
import os
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.machinery import PathFinder
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

from trunkline.cli.ephemeral_mesh import stop_process
from trunkline.cli.exits import ExitCode
from trunkline.cli.terminal import print_stderr
from trunkline.logs import render_event
from trunkline.settings import AGENT_PLUGIN_GROUP, CONFIG_FILE, ENV_PREFIX, load_settings

FLAG: Final = "--reload"
_INTERVAL_S: Final = 0.5
# A mesh that does not stop in this time is killed. Its tasks continue in the next one.
_STOP_TIMEOUT_S: Final = 15.0
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})
# More files would take too long to look at twice a second.
_FILE_LIMIT: Final = 5_000
_DRAIN_VARIABLE: Final = f"{ENV_PREFIX}DRAIN_GRACE_S"

Versions = Mapping[Path, int]
"""The time of the last change of each file, in nanoseconds."""


async def up_reloading(flags: Mapping[str, object], words: Sequence[str]) -> int:
    """Run `trunkline` with `words` as a child process until a signal; restart it after changes.

    The files are the code of agents that are not part of Trunkline, and the files of settings and
    of MCP servers. A mesh that ends by itself, because of an error in an agent for example, starts
    again after the next change.

    Raises:
        ConfigurationError: a setting is wrong.
    """
    settings = load_settings(flags)
    folders = sorted({*find_folders(settings.agents), *_plugin_folders()})
    files = [path for path in (settings.mcp_file, Path(CONFIG_FILE)) if path is not None]
    if settings.workflows:
        from trunkline.workflows.loading import list_workflow_files

        files += list_workflow_files(settings.workflows)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)

    def report(event: str, text: str, **fields: object) -> None:
        print_stderr(render_event(event, text, log_format=settings.log_format, **fields))

    names = ", ".join(str(folder) for folder in folders) or "no agents of yours"
    report("reload.watching", f"watching {names}", folders=names)
    command = [sys.executable, "-P", "-m", "trunkline.cli", *(w for w in words if w != FLAG)]
    while not stop.is_set():
        versions = await asyncio.to_thread(read_versions, folders, files)
        # In a separate session: this process passes signals on.
        process = await asyncio.create_subprocess_exec(
            *command,
            env={_DRAIN_VARIABLE: "1", **os.environ},
            start_new_session=True,
        )
        try:
            changed = await _wait_for_change(folders, files, versions, process, stop, report)
        finally:
            await stop_process(process, timeout_s=_STOP_TIMEOUT_S)
        if changed:
            report("reload.changed", f"{changed} changed: starting again", file=changed)
    return ExitCode.OK


async def _wait_for_change(
    folders: Sequence[Path],
    files: Sequence[Path],
    versions: Versions,
    process: Process,
    stop: asyncio.Event,
    report: Callable[..., None],
) -> str:
    """Return the name of a changed file, or "" if the process has to stop."""
    is_reported = False
    while not stop.is_set():
        current = await asyncio.to_thread(read_versions, folders, files)
        changed = {path for path, _ in current.items() ^ versions.items()}
        if changed:
            return str(min(changed))
        if process.returncode is not None and not is_reported:
            is_reported = True
            text = "the mesh has ended; it starts again after the next change"
            report("reload.mesh_ended", text, exit_code=process.returncode)
        try:
            async with asyncio.timeout(_INTERVAL_S):
                await stop.wait()
        except TimeoutError:
            continue
    return ""


def find_folders(specs: Iterable[str]) -> Iterator[Path]:
    """Yield the folders of the code of agents, each given as `MODULE:NAME`, without importing it.

    It is the folder of the package, or the folder that a module outside of packages is in.
    """
    for spec in specs:
        name = spec.partition(":")[0].partition(".")[0]
        found = PathFinder.find_spec(name, [*sys.path, str(Path.cwd())])
        if found is not None and found.origin is not None:
            yield Path(found.origin).parent


def _plugin_folders() -> Iterator[Path]:
    """Yield the folders of agents that are installed in editable form, bundled ones excepted."""
    specs = [point.value for point in entry_points(group=AGENT_PLUGIN_GROUP)]
    foreign = [spec for spec in specs if not spec.startswith("trunkline_agents.")]
    for folder in find_folders(foreign):
        if _SKIPPED.isdisjoint(folder.parts):
            yield folder


def read_versions(folders: Iterable[Path], files: Iterable[Path]) -> dict[Path, int]:
    """Return the versions of the Python files below folders, and of the files that exist.

    Hidden folders, virtual environments and caches are skipped.
    """
    versions: dict[Path, int] = {}
    for folder in folders:
        for place, names, sources in os.walk(folder):
            names[:] = [
                name
                for name in names
                if name not in _SKIPPED
                and not name.startswith(".")
                and not Path(place, name, "pyvenv.cfg").exists()
            ]
            for source in sources:
                if source.endswith(".py") and len(versions) < _FILE_LIMIT:
                    _add_version(versions, Path(place, source))
    for file in files:
        _add_version(versions, file)
    return versions


def _add_version(versions: dict[Path, int], path: Path) -> None:
    try:
        versions[path] = path.stat().st_mtime_ns
    except OSError:
        # It was removed meanwhile, or there is none.
        return
