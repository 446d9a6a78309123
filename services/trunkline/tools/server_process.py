"""Runs an MCP server as a child process: environment, standard streams, and termination."""

import asyncio
import logging
import os
import re
import signal
import sys
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from trunkline.errors import ToolServerUnavailableError
from trunkline.tools.child_process import ChildProcess
from trunkline.tools.config import ServerConfig
from trunkline.tools.connection import (
    PACED,
    STDERR_SEPARATOR,
    ServerConnection,
    ServerWarnings,
)
from trunkline.tools.pace import Pace
from trunkline.tools.stderr_tail import STDERR_LINE_LIMIT_BYTES, StderrTail

logger = logging.getLogger(__name__)

MESSAGE_LIMIT_BYTES = 16 * 1024 * 1024
"""The limit of a message, on stdout and over HTTP. A server that exceeds it is stopped."""
_INHERITED = ("HOME", "LANG", "TMPDIR", "TZ")
# Python's `-m` or `-c`, also after other options, as in `-um`.
_MODULE_OPTION = re.compile("-[bBdEhiIOPqRsSuvVx?]*[mc]")
_INPUT_LIMIT_BYTES = 256 * 1024
_REAP_TIMEOUT_S = 2.0
_PIPE_TIMEOUT_S = 0.5


def build_environment(
    config: ServerConfig, own: Mapping[str, str], telemetry: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of a server: only what it needs, without our secrets.

    The folder of our interpreter comes first on PATH, so that console scripts of this environment
    are found. Python in the server doesn't search its current folder for modules, unless the entry
    names the folder or a script. `own` are the entry's variables, which override the others.
    """
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name in _INHERITED or name.startswith("LC_")
    }
    folder = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", os.defpath)
    ours = {"PATH": f"{folder}{os.pathsep}{path}"}
    if config.cwd is None and not _runs_script(config):
        ours["PYTHONSAFEPATH"] = "1"
    return inherited | ours | dict(telemetry) | dict(own)


def _runs_script(config: ServerConfig) -> bool:
    """Return True if Python runs a file. Then it searches that file's folder, not the current one.

    The variable would keep the file from importing its neighbours.
    """
    for word in (config.command, *config.args):
        if word.endswith(".py"):
            return True
        if _MODULE_OPTION.match(word):
            return False
    return False


class ServerProcess(ServerConnection):
    """A running MCP server. It leads its own process group, which is killed with it."""

    transport = "pipe"

    def __init__(
        self,
        name: str,
        process: ChildProcess,
        *,
        warnings: ServerWarnings,
        secrets: Iterable[str] = (),
    ) -> None:
        """Wrap a process. `secrets` are removed from its output before the output is shown."""
        super().__init__(name, warnings)
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._stderr = process.stderr
        self._stderr_tail = StderrTail(secrets)
        self._stderr_pace = Pace(
            lambda: warnings.warn(PACED, "it prints more on stderr than is read")
        )
        self._stderr_ended = asyncio.Event()

    @property
    def pid(self) -> int:
        """The id of the process, and of its group."""
        return self._process.pid

    def write_line(self, line: bytes) -> None:
        """Send a line, completely or not at all.

        Raises:
            BrokenPipeError: its stdin is closed.
        """
        if self._stdin.is_closing() or self.has_ended.is_set():
            raise BrokenPipeError
        self._stdin.write(line + b"\n")

    @property
    def is_input_full(self) -> bool:
        """True if the process has not yet read much of what was written."""
        return self._stdin.transport.get_write_buffer_size() > _INPUT_LIMIT_BYTES

    async def drain(self) -> None:
        """Wait until it has read enough of what was written."""
        await self._stdin.drain()

    async def read_line(self) -> bytes | None:
        """Return the next line of stdout, or None at its end."""
        try:
            return await self._stdout.readuntil(b"\n")
        except asyncio.IncompleteReadError:
            pass
        except asyncio.LimitOverrunError:
            self.mark_broken(f"it printed a line of more than {MESSAGE_LIMIT_BYTES} bytes")
        self.has_ended.set()
        return None

    def redact(self, line: bytes) -> str:
        """Return a line of its output as printable text without secrets."""
        return self._stderr_tail.redact(line)

    async def describe_end(self, when: str = "") -> str:
        """Return why it ended, in one line, followed by `when`."""
        return f"{await self._cause()} {when}".rstrip()

    async def describe_failed_start(self) -> str:
        """Return why it ended before it was ready, in one line, with the tail of its stderr."""
        problem = await self.describe_end("before it was ready")
        with suppress(TimeoutError):
            async with asyncio.timeout(_PIPE_TIMEOUT_S):
                await self._stderr_ended.wait()
        tail = self._stderr_tail.last_lines()
        return f"{problem}{STDERR_SEPARATOR}{tail}" if tail else problem

    async def _cause(self) -> str:
        if self.problem:
            return self.problem
        await self._exits_within(_REAP_TIMEOUT_S)
        match self._process.returncode:
            case None:
                return "it closed its pipes"
            case code if code < 0:
                return f"it was killed by {signal.Signals(-code).name}"
            case code:
                return f"it exited with code {code}"

    async def stop(self, grace_s: float) -> None:
        """Stop it and its process group: close stdin, then SIGTERM, then SIGKILL.

        Each step waits up to `grace_s` for its exit. The group is always killed at the end, since
        it may outlive its leader.
        """
        self.has_ended.set()
        async with asyncio.TaskGroup() as group:
            # A full stdout would block its exit.
            drain = group.create_task(self._drop_output())
            try:
                self._stdin.close()
                if not await self._exits_within(grace_s):
                    self._process.signal_group(signal.SIGTERM)
                    await self._exits_within(grace_s)
            finally:
                # Also if this task is cancelled.
                self._process.kill_group()
                await self._exits_within(_REAP_TIMEOUT_S)
                await _end_soon(drain)

    async def read_stderr(self) -> None:
        """Read its stderr in lines of bounded length, and log them, until it ends."""
        rest = b""
        try:
            while chunk := await self._stderr.read(8192):
                *lines, rest = (rest + chunk).split(b"\n")
                rest = rest[: STDERR_LINE_LIMIT_BYTES + 1]
                for line in lines:
                    self._log(line)
                pause_s = self._stderr_pace.count(len(lines), len(chunk))
                if pause_s:
                    # At its end, the rest of its stderr explains the end, and fits into the pipe.
                    with suppress(TimeoutError):
                        async with asyncio.timeout(pause_s):
                            await self.has_ended.wait()
            if rest:
                self._log(rest)
        finally:
            self._stderr_ended.set()

    def _log(self, line: bytes) -> None:
        extra = {"server": self.name, "line": self._stderr_tail.add_line(line)}
        logger.debug("tool_server.stderr", extra=extra)

    async def _drop_output(self) -> None:
        while await self._stdout.read(65536):
            pass

    async def _exits_within(self, timeout_s: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._process.wait()
        return self._process.returncode is not None


@asynccontextmanager
async def open_process(  # noqa: PLR0913  all but the command by name
    name: str,
    config: ServerConfig,
    environment: Mapping[str, str],
    *,
    group: asyncio.TaskGroup,
    grace_s: float,
    warnings: ServerWarnings,
    secrets: Iterable[str] = (),
) -> AsyncIterator[ServerProcess]:
    """Start a server. Leaving the block in any way stops it and its process group.

    A task in `group` reads its stderr. `secrets` are removed from the output that is shown.

    Raises:
        ToolServerUnavailableError: the command can't be started.
    """
    if config.cwd is not None and not config.cwd.is_dir():
        raise ToolServerUnavailableError(name, f"its folder {str(config.cwd)!r} is missing")
    try:
        child = await ChildProcess.start(
            (config.command, *config.args),
            environment=environment,
            folder=config.cwd,
            limit_bytes=MESSAGE_LIMIT_BYTES,
        )
    except FileNotFoundError as error:
        problem = f"its command {config.command!r} is not on PATH; install it or mend the file"
        raise ToolServerUnavailableError(name, problem) from error
    except (OSError, ValueError) as error:
        problem = f"its command {config.command!r} can't be started: {error}"
        raise ToolServerUnavailableError(name, problem) from error
    process = ServerProcess(name, child, warnings=warnings, secrets=secrets)
    stderr = group.create_task(process.read_stderr())
    try:
        yield process
    finally:
        try:
            await process.stop(grace_s)
        finally:
            await _end_soon(stderr)
            child.close()


async def _end_soon(reader: asyncio.Task[None]) -> None:
    """Give a reader some time to reach the end of its stream, then cancel it.

    A process that left the group may keep the other end open for any length of time.
    """
    await asyncio.wait({reader}, timeout=_PIPE_TIMEOUT_S)
    reader.cancel()
