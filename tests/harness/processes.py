"""Real processes on real sockets: a mesh, and agents that join it."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

START_TIMEOUT_S = 45.0
STOP_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class MeshProcess:
    """`trunkline up`, serving."""

    process: asyncio.subprocess.Process
    http_url: str
    mesh_address: str


async def read_line(process: asyncio.subprocess.Process, start: str) -> dict[str, str]:
    """Wait for a line of stdout that begins with `start`; return its NAME=VALUE words."""
    assert process.stdout is not None
    seen: list[str] = []
    async with asyncio.timeout(START_TIMEOUT_S):
        while line := (await process.stdout.readline()).decode():
            seen.append(line)
            if line.startswith(start):
                return dict(word.partition("=")[::2] for word in line.split()[1:])
    raise AssertionError(f"ended without a line {start!r}: {seen}")


@asynccontextmanager
async def running_process(
    *command: str, cwd: Path, environment: dict[str, str] | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a command for the length of a block; afterwards it is told to stop, and must."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, **(environment or {})},
        start_new_session=True,
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_S):
                await process.wait()
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            raise


@asynccontextmanager
async def running_mesh(
    folder: Path, *flags: str, environment: dict[str, str] | None = None
) -> AsyncIterator[MeshProcess]:
    """Run `trunkline up` on free ports with its data below `folder`."""
    command: Sequence[str] = (
        sys.executable, "-m", "trunkline.cli", "up",
        "--http", "127.0.0.1:0", "--mesh", "127.0.0.1:0", "--data", str(folder / "data"),
        *flags,
    )  # fmt: skip
    async with running_process(*command, cwd=folder, environment=environment) as process:
        ready = await read_line(process, "ready ")
        yield MeshProcess(process, ready["http"], ready["mesh"])
