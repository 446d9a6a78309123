"""Runs `trunkline` commands and Python programs in forks of one process with the imports done.

Run as a script by `harness.mesh.forked_commands`. Imports are most of the processor time of a short
command, and half of that of a mesh. A fork is else a process as any other: its own session, folder,
environment, arguments, standard streams and signals. A mesh starts its MCP servers as forks, too.

A request is four descriptors (stdin, stdout, stderr, and a pipe for the status) with the length
of a JSON object, and the object. The status is two lines: the process's id, then its exit code.
The object's `form` is "trunkline" or a form of `python`: "-c", "-m", or "" for a file. `network` is
the path of a network namespace in which the program runs.
"""

import ctypes
import gc
import importlib
import json
import os
import runpy
import socket
import sys
import types
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

# A script finds only its own folder.
sys.path.insert(0, str(Path(__file__).parents[2]))
from harness.mesh.quick_exit import run_and_exit  # isort: skip  the first of all that it ends
from harness.mcp.forked_servers import MODULES, run_server, serve_forks, use_standard_streams

del sys.path[0]

# gRPC reads this when it is imported.
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
# jsonschema loads this optional parser of URIs if it is installed, which takes two seconds.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

# Commands, and the lazily loaded parts of a mesh. None of them may start a thread.
_MODULES = (
    "trunkline.cli.app",
    "trunkline.cli.ask",
    "trunkline.cli.directory",
    "trunkline.cli.serve",
    "trunkline.cli.task_view",
    "trunkline.cli.trace",
    "trunkline.processes.agents",
    "trunkline.processes.all_in_one",
    "trunkline.processes.bridge",
    "trunkline.processes.tools",
    "trunkline.agents.reasoning.graph",
    "langgraph.graph",
    "langgraph.checkpoint.sqlite.aio",
    *MODULES,
)


def _prepare() -> None:
    for module in _MODULES:
        importlib.import_module(module)
    # The model of settings is made at its first use.
    from trunkline.core.settings.sources import read_settings

    read_settings(flags={}, environment={}, file=None)
    assert len(os.listdir("/proc/self/task")) == 1, "a module started a thread"  # noqa: PTH208
    gc.collect()
    # Collections of a fork skip what it shares with the others.
    gc.freeze()


def _read(requests: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    length, descriptors, _, _ = socket.recv_fds(requests, 4, 4)
    if not length:
        return None
    data = requests.recv(int.from_bytes(length), socket.MSG_WAITALL)
    return json.loads(data), descriptors


def _serve(requests: socket.socket) -> dict[str, Any] | None:
    """Return the request in each process that shall run one; None when there are no more."""
    while request := _read(requests):
        words, descriptors = request
        if os.fork() == 0:
            requests.close()
            return _watch(words, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
    return None


def _watch(words: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
    """Return in a new child process. This one waits for its end, and reports it."""
    *streams, status = descriptors
    if (child := os.fork()) == 0:
        os.setsid()
        os.close(status)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        return words
    for stream in streams:
        os.close(stream)
    os.write(status, f"{child}\n".encode())
    _, code = os.waitpid(child, 0)
    with suppress(BrokenPipeError):
        os.write(status, f"{os.waitstatus_to_exitcode(code)}\n".encode())
    os._exit(0)


def _run(words: dict[str, Any]) -> None:
    if network := words.get("network"):
        _enter(network)
    os.chdir(words["folder"])
    os.environ.clear()
    os.environ.update(words["environment"])
    # An interpreter that starts with -P puts them first.
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:0] = [path for path in paths if path and path not in sys.path]
    sys.argv = words["arguments"]
    if words["form"] != "trunkline":
        use_standard_streams()
        _run_python(words["form"], words["program"])
        return
    if words["arguments"][1:2] in (["up"], ["serve"]):
        request = serve_forks()
        if request is not None:
            run_server(request)
            return
    use_standard_streams()
    from trunkline.cli.entry import main

    main()


def _enter(network: str) -> None:
    """Move this process into a network namespace, as `nsenter` does."""
    descriptor = os.open(network, os.O_RDONLY)
    if ctypes.CDLL(None, use_errno=True).setns(descriptor, 0):
        raise OSError(ctypes.get_errno(), "the namespace can't be entered", network)
    os.close(descriptor)


def _run_python(form: str, program: str) -> None:
    """Run a program as `python -c`, `python -m` or `python FILE` does."""
    match form:
        case "-c":
            sys.path.insert(0, "")
            main = sys.modules["__main__"] = types.ModuleType("__main__")
            exec(compile(program, "<string>", "exec"), main.__dict__)  # noqa: S102  a test's own
        case "-m":
            sys.path.insert(0, str(Path.cwd()))
            runpy.run_module(program, run_name="__main__", alter_sys=True)
        case _:
            sys.path.insert(0, str(Path(program).absolute().parent))
            runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    _prepare()
    channel = socket.socket(fileno=int(sys.argv[1]))
    channel.sendall(b"r")
    work = _serve(channel)
    if work is not None:
        run_and_exit(partial(_run, work))
