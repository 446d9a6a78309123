"""Runs an MCP server as a child process: environment, standard streams, and termination."""

import asyncio
import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Self

from trunkline.errors import ToolServerUnavailableError
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
        process: "ChildProcess",
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


class ChildProcess:
    """A child process with its standard streams as sockets, on any event loop.

    asyncio's own subprocesses are not used. uvloop's fork runs Python's at-fork hooks in the child,
    which restart exporter threads and meet gRPC's locks, and it has closed pipes twice.
    `subprocess.Popen` runs no Python code in the child.
    """

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Wrap a started process. Use `start` instead."""
        self.pid = process.pid
        # Keep the unused readers and writers too: a collected writer closes its socket.
        self._streams = streams
        self.stdin = streams[0][1]
        self.stdout = streams[1][0]
        self.stderr = streams[2][0]
        self.returncode: int | None = None
        """The exit code; None while it runs, negative if a signal killed it."""
        self._has_exited = asyncio.Event()
        loop = asyncio.get_running_loop()

        self._is_group_done = threading.Event()

        def reap() -> None:
            code = _wait_for_exit(process)
            # If the loop has been closed, there are no waiters.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(self._note_exit, code)
            # Until then, no other process gets the id of this process and of its group.
            self._is_group_done.wait()
            process.wait()

        threading.Thread(target=reap, name=f"reaper of {self.pid}", daemon=True).start()

    @classmethod
    async def start(
        cls,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path | None,
        limit_bytes: int,
    ) -> Self:
        """Start a command as the leader of a new session. `limit_bytes` is the limit of a line.

        Raises:
            OSError, ValueError: the command can't be started.
        """
        pairs = [socket.socketpair() for _ in range(3)]
        theirs = [pair[1] for pair in pairs]
        try:
            # Popen blocks until the child has executed the command: some milliseconds.
            process = subprocess.Popen(  # noqa: ASYNC220
                command,
                stdin=theirs[0].fileno(),
                stdout=theirs[1].fileno(),
                stderr=theirs[2].fileno(),
                env=dict(environment),
                cwd=folder,
                start_new_session=True,
            )
        except BaseException:
            for ours, _ in pairs:
                ours.close()
            raise
        finally:
            for end in theirs:
                end.close()
        opened: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        try:
            # The buffer of stderr is small, so that a server which prints too much has to wait.
            limits = (limit_bytes, limit_bytes, STDERR_LINE_LIMIT_BYTES)
            for (ours, _), limit in zip(pairs, limits, strict=True):
                opened.append(await _open_streams(ours, limit))
        except BaseException:
            # The caller has no reference to the process, so it has to be killed here.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for _, writer in opened:
                writer.transport.abort()
            for ours, _ in pairs[len(opened) :]:
                ours.close()
            raise
        return cls(process, *opened)

    async def wait(self) -> None:
        """Wait until it has exited."""
        await self._has_exited.wait()

    def signal_group(self, number: signal.Signals) -> None:
        """Send a signal to its process group, which may outlive it."""
        if not self._is_group_done.is_set():
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def kill_group(self) -> None:
        """Kill its process group. No more signals are sent, since the id may be used again."""
        self.signal_group(signal.SIGKILL)
        self._is_group_done.set()

    async def kill(self) -> None:
        """Kill it and its process group, close its streams, and wait until it has exited."""
        self.kill_group()
        self.close()
        await self.wait()

    def close(self) -> None:
        """Close its streams. While reading is paused, a stream does not notice its end."""
        for _, writer in self._streams:
            writer.transport.abort()

    def _note_exit(self, code: int) -> None:
        self.returncode = code
        self._has_exited.set()


def _wait_for_exit(process: subprocess.Popen[bytes]) -> int:
    """Wait until a process has exited; return its code. On Linux its id stays reserved."""
    if sys.platform != "linux":
        return process.wait()
    result = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    if result is None:
        return process.wait()
    has_exited = result.si_code == os.CLD_EXITED
    return result.si_status if has_exited else -result.si_status


class _CloseOnEofProtocol(asyncio.StreamReaderProtocol):
    """Closes the socket when the child closes its end, because the child reads nothing more."""

    def eof_received(self) -> bool:
        super().eof_received()
        return False


async def _open_streams(
    ours: socket.socket, limit_bytes: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit_bytes)
    protocol = _CloseOnEofProtocol(reader)
    ours.setblocking(False)
    transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
