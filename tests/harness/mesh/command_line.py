"""`trunkline` as people run it: a process of its own, and what it did."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

COMMAND = (sys.executable, "-m", "trunkline.cli")
LIMIT_S = 90.0


@dataclass(frozen=True)
class CompletedCommand:
    """What a command did."""

    exit: int | None
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class StartedCommand(Protocol):
    """A command that runs. It has `stdin` only if that was asked for."""

    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader

    @property
    def returncode(self) -> int | None: ...

    def send_signal(self, signal: int) -> None: ...

    async def wait(self) -> int: ...

    async def communicate(self, data: bytes | None = None, /) -> tuple[bytes, bytes]: ...


@asynccontextmanager
async def start_command(
    *words: str, stdin: int | None = None, folder: Path | None = None, **variables: str
) -> AsyncIterator[StartedCommand]:
    """Start a command, leading a session of its own; `variables` are of its environment.

    If it runs at the end of the block, it is killed with all that it has started. An error of the
    block tells what the command has said of its own.
    """
    process = await asyncio.create_subprocess_exec(
        *COMMAND,
        *words,
        cwd=folder,
        stdin=stdin or asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **variables},
        start_new_session=True,
    )
    try:
        yield cast("StartedCommand", process)
    except Exception as error:
        error.add_note(await _last_words(process))
        raise
    finally:
        await _killed(process)


async def _killed(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _last_words(process: asyncio.subprocess.Process) -> str:
    """What the command has written to stderr that nobody has read."""
    await _killed(process)
    said = b""
    # Whatever it had started may hold the other end for a while.
    with suppress(TimeoutError):
        async with asyncio.timeout(5):
            said = await process.stderr.read() if process.stderr else b""
    return f"{process.returncode=}, stderr: {said.decode()}"


async def run_command(
    *words: str, stdin: str | None = None, folder: Path | None = None, **variables: str
) -> CompletedCommand:
    """Run a command to its end. No command ever shows a traceback."""
    pipe = None if stdin is None else asyncio.subprocess.PIPE
    async with (
        start_command(*words, stdin=pipe, folder=folder, **variables) as process,
        asyncio.timeout(LIMIT_S),
    ):
        out, err = await process.communicate(None if stdin is None else stdin.encode())
    assert "Traceback" not in err.decode(), err.decode()
    return CompletedCommand(process.returncode, out.decode(), err.decode())
