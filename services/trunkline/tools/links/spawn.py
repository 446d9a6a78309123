"""Starts a child process with its streams, on any event loop, without running a line of ours in it.

asyncio's own way is each loop's own. uvloop forks, and runs in the child what Python runs after a
fork: threads of exporters start there, beside the locks of gRPC's, and now and then it crashes. It
also closes pipes twice, and the second time that may be another thread's file. Sockets it lets go.
"""

import asyncio
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self


class Child:
    """A process that was started here: its standard streams, and its end."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        *streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
    ) -> None:
        """Use `start`."""
        self.pid = process.pid
        # All of each: a writer that nobody holds closes its socket.
        self._streams = streams
        self.stdin = streams[0][1]
        self.stdout = streams[1][0]
        self.stderr = streams[2][0]
        self.returncode: int | None = None
        """How it ended; None: it hasn't yet. Negative: by that signal."""
        self._has_exited = asyncio.Event()
        loop = asyncio.get_running_loop()

        def reap() -> None:
            code = process.wait()
            try:
                loop.call_soon_threadsafe(self._note_exit, code)
            except RuntimeError:
                return  # The loop was closed: nobody is there to be told.

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
        """Start a command, leading a session of its own. `limit_bytes` is that of a line.

        Raises:
            OSError, ValueError: it can't be started.
        """
        pairs = [socket.socketpair() for _ in range(3)]
        theirs = [pair[1] for pair in pairs]
        try:
            # It returns as soon as the child has become the command: some milliseconds.
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
            for one in theirs:
                one.close()
        opened: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        try:
            for ours, _ in pairs:
                opened.append(await _opened(ours, limit_bytes))
        except BaseException:
            # Nobody has it yet, so nobody else can end it.
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

    def _note_exit(self, code: int) -> None:
        self.returncode = code
        self._has_exited.set()


class _UntilEnd(asyncio.StreamReaderProtocol):
    """Closes the socket when the other end is closed: nobody says anything to a dead process."""

    def eof_received(self) -> bool:
        super().eof_received()
        return False


async def _opened(
    ours: socket.socket, limit_bytes: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit_bytes)
    protocol = _UntilEnd(reader)
    ours.setblocking(False)
    transport, _ = await loop.create_connection(lambda: protocol, sock=ours)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)
