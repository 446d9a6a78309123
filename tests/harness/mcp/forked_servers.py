"""Starts MCP servers of a mesh as forks of a process that has their imports done.

Used by the meshes of `harness.mesh.fork_server`, also for the checkers of tools' results. Imports
are nearly all the processor time of a server. A fork is else as a server that `subprocess.Popen`
started: a child of the mesh, with its own session, folder, environment, arguments and standard
streams. Only its command line in `/proc` is another.

A request is three descriptors (stdin, stdout, stderr) with the length of a JSON object, and the
object. The reply is the id of the process, in four bytes.
"""

import ctypes
import importlib
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
from pathlib import Path
from typing import Any, Final

from trunkline.tools import result_checker

SHIPPED: Final = {
    f"trunkline-mcp-{name}": f"trunkline_agents.{name}.server"
    for name in ("argocd", "currency", "math", "research")
}
"""The modules of console scripts."""
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
    forks = _Forks(ours)

    class ProcessOrFork(subprocess.Popen[bytes]):
        def __new__(cls, args: Any, **options: Any) -> Any:
            request = _describe(args, options)
            return super().__new__(cls) if request is None else forks.start(request, options)

    # Only this class starts processes: a mesh has no other seam for a cheaper one.
    subprocess.Popen = ProcessOrFork  # type: ignore[assignment,misc]
    return None


class _Forks:
    """Requests to the process that forks."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._lock = threading.Lock()

    def start(self, request: Mapping[str, Any], options: Mapping[str, Any]) -> "_Fork":
        data = json.dumps(request).encode()
        streams = [int(options[name]) for name in ("stdin", "stdout", "stderr")]
        with self._lock:
            socket.send_fds(self._requests, [len(data).to_bytes(4)], streams)
            self._requests.sendall(data)
            return _Fork(int.from_bytes(self._requests.recv(4, socket.MSG_WAITALL)))


class _Fork:
    """A child process, with what the tool adapter uses of `subprocess.Popen`."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def run_server(request: Mapping[str, Any]) -> None:
    """Run the server of a request in this process."""
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
