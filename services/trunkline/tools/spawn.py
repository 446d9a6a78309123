"""Starts a child process with pipes, on any event loop, without running a line of ours in it.

asyncio's own way is each loop's own. uvloop forks, and runs in the child what Python runs after a
fork: threads of exporters start there, beside the locks of gRPC's, and now and then it crashes.
"""

import asyncio
import subprocess
import threading
from asyncio.streams import FlowControlMixin
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Self


class Child:
    """A process that was started here: its pipes, and its end."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        stdin: asyncio.StreamWriter,
        stdout: asyncio.StreamReader,
        stderr: asyncio.StreamReader,
    ) -> None:
        """Use `start`."""
        self.pid = process.pid
        self.stdin = stdin
        self.stdout = stdout
        self.stderr = stderr
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
        # It returns as soon as the child has become the command: some milliseconds.
        process = subprocess.Popen(  # noqa: ASYNC220
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
        )
        stdout = await _reader(process.stdout, limit_bytes)
        stderr = await _reader(process.stderr, limit_bytes)
        return cls(process, await _writer(process.stdin), stdout, stderr)

    async def wait(self) -> None:
        """Wait until it has exited."""
        await self._has_exited.wait()

    def _note_exit(self, code: int) -> None:
        self.returncode = code
        self._has_exited.set()


async def _reader(pipe: IO[bytes] | None, limit_bytes: int) -> asyncio.StreamReader:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit_bytes)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    return reader


async def _writer(pipe: IO[bytes] | None) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(FlowControlMixin, pipe)
    return asyncio.StreamWriter(transport, protocol, None, loop)
