"""A child process with its standard streams as sockets, in a process group of its own."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from trunkline.tools.stderr_tail import STDERR_LINE_LIMIT_BYTES


class ChildProcess:
    """A child process, on any event loop.

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
        """The exit code, or None while the process runs. It is negative after a killing signal."""
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
