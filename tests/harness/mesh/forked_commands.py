"""Starts `trunkline` commands and Python programs as forks of a server with the imports done."""

import asyncio
import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from asyncio.base_subprocess import BaseSubprocessTransport
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, BinaryIO, Final, TypeAlias, cast

_SERVER: Final = Path(__file__).with_name("fork_server.py")
_LIMIT: Final = 1 << 16
_LOCK: Final = threading.Lock()
# The interpreter and libraries read these when they start.
_READ_AT_START: Final = ("PYTHON", "GRPC_", "OTEL_", "LANG", "LC_", "TZ", "LD_", "MALLOC_")

# A name that nothing else sets: a variable that is there already would change nothing.
AS_USUAL: Final = {"PYTHON_STARTED_AS_USUAL": "1"}
"""Variables of a command that is started without a fork, and its MCP servers too."""

Stream: TypeAlias = IO[Any] | int | None


@cache
def _run_server() -> tuple[socket.socket, Mapping[str, str]]:
    """Start the server of this process; return the socket for requests, and its environment."""
    ours, theirs = socket.socketpair()
    environment = dict(os.environ)
    with theirs:
        server = subprocess.Popen(
            [sys.executable, "-P", str(_SERVER), str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )

    def stop() -> None:
        ours.close()
        server.wait()

    atexit.register(stop)
    assert ours.recv(1), "the server of forked commands did not start"
    return ours, environment


def _get_server() -> tuple[socket.socket, Mapping[str, str]]:
    with _LOCK:
        return _run_server()


async def start_forked(
    program: Mapping[str, Any],
    folder: Path | None,
    environment: Mapping[str, str],
    *,
    stdin: Stream = None,
    stdout: Stream = None,
    stderr: Stream = None,
) -> asyncio.subprocess.Process | None:
    """Start a program, as the server's requests name it, in a session of its own.

    Returns None if a variable of the environment has to be there before the imports.
    """
    if sys.platform != "linux":
        return None
    requests, other = await asyncio.to_thread(_get_server)
    changed = {name for name, _ in environment.items() ^ other.items()}
    if not _has_start_module(environment.get("PYTHONPATH", "")):
        # The fork finds modules there, as it has not imported them yet.
        changed.discard("PYTHONPATH")
    if any(name.startswith(_READ_AT_START) for name in changed):
        return None
    request = {
        **program,
        "folder": str(folder or Path.cwd()),
        "environment": dict(environment),
    }
    loop = asyncio.get_running_loop()
    protocol = asyncio.subprocess.SubprocessStreamProtocol(_LIMIT, loop)
    connected = loop.create_future()
    transport = _ForkTransport(
        *(loop, protocol, ["fork"], False, stdin, stdout, stderr, 0, connected),
        start=partial(_Fork, requests, request),
    )
    try:
        await connected
    except BaseException:
        # Its caller was canceled, and can't end the process.
        transport.close()
        await transport.wait_ended()
        raise
    return asyncio.subprocess.Process(transport, protocol, loop)


def _has_start_module(folders: str) -> bool:
    """Return True if an interpreter runs a module of these folders before anything else."""
    return any((Path(each) / "sitecustomize.py").exists() for each in folders.split(os.pathsep))


class _Fork:
    """A process of the server, with the attributes of `subprocess.Popen` that asyncio uses."""

    def __init__(
        self, requests: socket.socket, request: Mapping[str, Any], *streams: Stream
    ) -> None:
        self.returncode: int | None = None
        self.stdin: BinaryIO | None = None
        self.stdout: BinaryIO | None = None
        self.stderr: BinaryIO | None = None
        data = json.dumps(request).encode()
        status, status_of_child = os.pipe()
        with ExitStack() as stack:
            stack.callback(os.close, status_of_child)
            descriptors = [self._open(stack, number, it) for number, it in enumerate(streams)]
            socket.send_fds(requests, [len(data).to_bytes(4)], [*descriptors, status_of_child])
            requests.sendall(data)
        self.status = os.fdopen(status, "rb", buffering=0)
        self.pid = int(self.status.readline())

    def _open(self, stack: ExitStack, number: int, stream: Stream) -> int:
        """Return the descriptor of a stream for the process; keep the other end of a pipe."""
        match stream:
            case None:
                return number
            case subprocess.DEVNULL:
                null = os.open(os.devnull, os.O_RDWR)
                stack.callback(os.close, null)
                return null
            case subprocess.PIPE:
                reading, writing = os.pipe()
                theirs, ours = (reading, writing) if number == 0 else (writing, reading)
                stack.callback(os.close, theirs)
                name = ("stdin", "stdout", "stderr")[number]
                setattr(self, name, os.fdopen(ours, "rb" if number else "wb", buffering=0))
                return theirs
            case int():
                return stream
        return stream.fileno()

    def poll(self) -> int | None:
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class _ForkTransport(BaseSubprocessTransport):
    """The transport of a process that is no child of this one."""

    def __init__(self, *options: Any, start: partial[_Fork]) -> None:
        self._fork = start
        super().__init__(*options)

    def _start(
        self,
        args: Any,
        shell: Any,
        stdin: Stream,
        stdout: Stream,
        stderr: Stream,
        bufsize: Any,
        **_: Any,
    ) -> None:
        fork = self._fork(stdin, stdout, stderr)
        self._proc = cast("Any", fork)
        self._loop.add_reader(fork.status, self._read_status, fork)

    async def wait_ended(self) -> None:
        """Wait until the process has ended."""
        await self._wait()

    def _read_status(self, fork: _Fork) -> None:
        self._loop.remove_reader(fork.status)
        with fork.status as status:
            self._process_exited(int(status.readline()))
