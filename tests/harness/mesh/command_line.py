"""Runs `trunkline` commands, as processes or in this one, and returns their results."""

import asyncio
import io
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast

from harness.mesh.forked_commands import Stream, start_forked
from trunkline.cli.app import run_command as run_parsed_command

# -P: the current folder is not searched for modules, as in the installed script.
COMMAND = (sys.executable, "-P", "-m", "trunkline.cli")
LIMIT_S = 300.0
_IN_NETWORK = "--net="


@dataclass(frozen=True)
class CompletedCommand:
    """The result of a command."""

    exit: int | None
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class StartedCommand(Protocol):
    """A running command. It has `stdin` only if the caller requested it."""

    stdin: asyncio.StreamWriter
    stdout: asyncio.StreamReader
    stderr: asyncio.StreamReader

    @property
    def returncode(self) -> int | None: ...

    def send_signal(self, signal: int) -> None: ...

    async def wait(self) -> int: ...

    async def communicate(self, data: bytes | None = None, /) -> tuple[bytes, bytes]: ...


async def start_process(
    *command: str,
    cwd: Path | None = None,
    environment: Mapping[str, str] = os.environ,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
) -> asyncio.subprocess.Process:
    """Start a process in a new session; if it is one of ours, without doing its imports again."""
    program = _find_program(command)
    if program is not None:
        process = await start_forked(
            program, cwd, environment, stdin=stdin, stdout=stdout, stderr=stderr
        )
        if process is not None:
            return process
    return await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        env=dict(environment),
        start_new_session=True,
    )


def _find_program(command: Sequence[str]) -> dict[str, Any] | None:
    """Return what a fork runs for a command, with its `sys.argv`."""
    if command[0] == "nsenter" and command[1].startswith(_IN_NETWORK):
        inner = _find_program(command[2:])
        return inner and {**inner, "network": command[1].removeprefix(_IN_NETWORK)}
    if tuple(command[: len(COMMAND)]) == COMMAND:
        return {"form": "trunkline", "arguments": ["trunkline", *command[len(COMMAND) :]]}
    match command:
        case [sys.executable, ("-c" | "-m") as form, program, *others]:
            return {"form": form, "program": program, "arguments": [form, *others]}
        case [sys.executable, program, *others] if program.endswith(".py"):
            return {"form": "", "program": program, "arguments": [program, *others]}
    return None


@asynccontextmanager
async def start_command(
    *words: str, stdin: int | None = None, folder: Path | None = None, **variables: str
) -> AsyncIterator[StartedCommand]:
    """Run a command for the length of a block, in a new session, with additional `variables`.

    If it still runs at the end of the block, it is killed together with its child processes. An
    error in the block gets the command's stderr as a note.
    """
    process = await start_process(
        *COMMAND,
        *words,
        cwd=folder,
        stdin=stdin or asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        environment={**os.environ, **variables},
    )
    try:
        yield cast("StartedCommand", process)
    except Exception as error:
        error.add_note(await _describe_end(process))
        raise
    finally:
        await _kill(process)


async def _kill(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _describe_end(process: asyncio.subprocess.Process) -> str:
    """Kill the command; return its exit code and the unread part of its stderr, as text."""
    await _kill(process)
    stderr = b""
    # A child process may hold the other end of the pipe for a while.
    with suppress(TimeoutError):
        async with asyncio.timeout(5):
            stderr = await process.stderr.read() if process.stderr else b""
    return f"{process.returncode=}, stderr: {stderr.decode()}"


async def run_command(
    *words: str, stdin: str | None = None, folder: Path | None = None, **variables: str
) -> CompletedCommand:
    """Run a command to its end. Assert that it prints no traceback."""
    pipe = None if stdin is None else asyncio.subprocess.PIPE
    async with (
        start_command(*words, stdin=pipe, folder=folder, **variables) as process,
        asyncio.timeout(LIMIT_S),
    ):
        out, err = await process.communicate(None if stdin is None else stdin.encode())
    assert "Traceback" not in err.decode(), err.decode()
    return CompletedCommand(process.returncode, out.decode(), err.decode())


def run_in_process(*words: str) -> CompletedCommand:
    """Run a command that needs no process of its own, which takes half a second to start."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2)]
    arguments = sys.argv
    sys.argv = ["trunkline", *words]
    try:
        with redirect_stdout(streams[0]), redirect_stderr(streams[1]):
            code = run_parsed_command()
    finally:
        sys.argv = arguments
    texts = []
    for stream in streams:
        stream.seek(0)
        texts.append(stream.read())
    return CompletedCommand(code, *texts)
