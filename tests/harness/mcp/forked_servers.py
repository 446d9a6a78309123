"""Starts MCP servers of a mesh as forks of a process that has their imports done.

Used by the meshes of `harness.mesh.fork_server`, and by tests with a tool adapter; also for the
checkers of tools' results. Imports are nearly all the processor time of a server. A fork is else as
a server that `subprocess.Popen` started: a child of the adapter's process, with its own session,
folder, environment, arguments and standard streams. Only its command line in `/proc` is another.

A request is three descriptors (stdin, stdout, stderr) with the length of a JSON object, and the
object. The reply is the id of the process, in four bytes.
"""

import ctypes
import importlib
import io
import json
import os
import platform
import runpy
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from trunkline.tools import result_checker

SHIPPED: Final = {
    f"trunkline-mcp-{name}": f"trunkline_agents.{name}.server"
    for name in ("argocd", "currency", "math", "research")
}
"""The modules of console scripts."""
MODULES: Final = ("jsonschema.validators", "mcp", *SHIPPED.values())
"""The imports of servers."""
_SCRIPTS: Final = Path(__file__).parent
# The checker of results, as the tool adapter starts it.
_CHECKER: Final = [
    *(sys.executable, "-P", "-W", "ignore"),
    str(Path(result_checker.__file__).with_name("result_worker.py")),
]
_BIN: Final = Path(sys.executable).parent
# The interpreter and its libraries read these when they start.
_READ_AT_START: Final = ("PYTHON", "LANG", "LC_", "TZ", "LD_", "MALLOC_")
# The fork has no search path of its own yet, so this one is obeyed.
_OBEYED: Final = "PYTHONSAFEPATH"

_STREAMS: Final = ("stdin", "stdout", "stderr")
_STARTED: Final[list[subprocess.Popen[bytes]]] = []

_CLONE_PARENT: Final = 0x8000
_PR_SET_NAME: Final = 15
# The numbers of `clone`. Elsewhere, servers are started as usual.
_CLONE: Final = {"x86_64": 56, "aarch64": 220}.get(platform.machine())


def serve_forks() -> dict[str, Any] | None:
    """Let this process start its MCP servers as forks. It must not have threads yet.

    Returns None in this process, and the request in each fork, which shall `run_server` it.
    """
    if sys.platform != "linux" or _CLONE is None:
        return None
    ours, theirs = socket.socketpair()
    if os.fork() == 0:
        ours.close()
        return _serve(theirs)
    theirs.close()
    _start_at(ours)
    return None


@cache
def fork_servers() -> None:
    """Let this process, which may have threads, start its MCP servers as forks from now on."""
    if sys.platform != "linux" or _CLONE is None:
        return
    ours, theirs = socket.socketpair()
    with theirs:
        # It ends with the other end of the socket, which is never closed before this process ends.
        command = (sys.executable, "-P", __file__, str(theirs.fileno()))
        _STARTED.append(subprocess.Popen(command, pass_fds=[theirs.fileno()], process_group=0))
    _start_at(ours)


def _start_at(requests: socket.socket) -> None:
    forks = _Forks(requests)

    class ProcessOrFork(subprocess.Popen[bytes]):
        def __new__(cls, args: Any, **options: Any) -> Any:
            request = _describe(args, options)
            return super().__new__(cls) if request is None else forks.start(request, options)

    # Only this class starts processes: the tool adapter has no other seam for a cheaper one.
    subprocess.Popen = ProcessOrFork  # type: ignore[assignment,misc]


class _Forks:
    """Requests to the process that forks."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._lock = threading.Lock()

    def start(self, request: Mapping[str, Any], options: Mapping[str, Any]) -> "_Fork":
        data = json.dumps(request).encode()
        streams = [options[name] for name in _STREAMS]
        with self._lock:
            socket.send_fds(self._requests, [len(data).to_bytes(4)], streams)
            # Methods of sockets are among the calls that must not wait on a loop.
            os.write(self._requests.fileno(), data)
            return _Fork(int.from_bytes(os.read(self._requests.fileno(), 4)))


class _Fork:
    """A child process, with what the tool adapter uses of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def _open_stream(descriptor: int, mode: str, old: Any) -> Any:
    """Return a standard stream as the interpreter opens it."""
    binary = os.fdopen(descriptor, f"{mode}b", closefd=False)
    is_lines = descriptor == 2 or os.isatty(descriptor)
    return io.TextIOWrapper(binary, old.encoding, old.errors, line_buffering=is_lines)


def use_standard_streams() -> None:
    """Open the standard streams anew, as the interpreter does."""
    sys.stdin = _open_stream(0, "r", sys.stdin)
    sys.stdout = _open_stream(1, "w", sys.stdout)
    sys.stderr = _open_stream(2, "w", sys.stderr)


def run_server(request: Mapping[str, Any]) -> None:
    """Run the server of a request in this process."""
    use_standard_streams()
    if request["folder"] is not None:
        os.chdir(request["folder"])
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = list(request["arguments"])
    name = Path(sys.argv[0]).name
    # As the kernel names the process of a script, for those who look for it.
    ctypes.pythonapi.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)
    if name in SHIPPED:
        importlib.import_module(SHIPPED[name]).main()
        return
    if sys.argv[0] == _CHECKER[-1]:
        warnings.simplefilter("ignore")
    elif _OBEYED not in os.environ:
        sys.path.insert(0, str(_SCRIPTS))
    runpy.run_path(sys.argv[0], run_name="__main__")


def _describe(command: Any, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the request for a command; None if it has to be started as usual."""
    words = [str(word) for word in command] if isinstance(command, (list, tuple)) else []
    environment = options.get("env")
    if not words or environment is None or not options.get("start_new_session"):
        return None
    # A fork cannot make pipes, nor inherit streams.
    if not all(_is_descriptor(options.get(name)) for name in _STREAMS):
        return None
    arguments = _find_server(words, environment)
    changed = any(
        name.startswith(_READ_AT_START) and name != _OBEYED and os.environ.get(name) != value
        for name, value in environment.items()
    )
    if not arguments or changed:
        return None
    folder = options.get("cwd")
    return {
        "arguments": arguments,
        "environment": dict(environment),
        "folder": None if folder is None else str(folder),
    }


def _is_descriptor(stream: object) -> bool:
    return isinstance(stream, int) and stream >= 0


def _find_server(words: list[str], environment: Mapping[str, str]) -> list[str]:
    """Return the script of a server of ours with its arguments, if the command runs one."""
    if words == _CHECKER:
        return words[-1:]
    first, *others = words
    is_first_on_path = environment.get("PATH", "").startswith(f"{_BIN}{os.pathsep}")
    if first in SHIPPED and is_first_on_path:
        return [str(_BIN / first), *others]
    if first == sys.executable and others and Path(others[0]).parent == _SCRIPTS:
        return others
    return []


def _serve(requests: socket.socket) -> dict[str, Any] | None:
    """Fork for each request; return it in the fork. Exit when there are no more."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.close(null)
    while True:
        length, streams, _, _ = socket.recv_fds(requests, 4, 3)
        if not length:
            os._exit(0)
        data = requests.recv(int.from_bytes(length), socket.MSG_WAITALL)
        if (child := _fork_sibling()) == 0:
            requests.close()
            os.setsid()
            for number, stream in enumerate(streams):
                os.dup2(stream, number)
                os.close(stream)
            return dict(json.loads(data))
        for stream in streams:
            os.close(stream)
        requests.sendall(child.to_bytes(4))


def _fork_sibling() -> int:
    """Fork; the new process is a child of this one's parent, which waits for it and reaps it.

    `os.fork` has no such option. This process has one thread, so no lock is held in the fork.
    """
    api = ctypes.pythonapi
    api.PyOS_BeforeFork()
    child = int(api.syscall(_CLONE, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0))
    if child == 0:
        api.PyOS_AfterFork_Child()
    else:
        api.PyOS_AfterFork_Parent()
    assert child >= 0, "clone failed"
    return child


if __name__ == "__main__":
    # A script finds only its own folder.
    sys.path.insert(0, str(Path(__file__).parents[2]))
    from harness.mesh.quick_exit import run_and_exit

    del sys.path[0]
    sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]
    for module in MODULES:
        importlib.import_module(module)
    work = _serve(socket.socket(fileno=int(sys.argv[1])))
    if work is not None:
        run_and_exit(partial(run_server, work))
