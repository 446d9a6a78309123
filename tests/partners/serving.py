"""The common part of the servers of both SDKs: the agent's behaviour, and serving."""

import asyncio
import signal
import socket
from collections.abc import Callable
from importlib import import_module
from typing import Any

# The environment of scripts/partners has another version than this one.
uvicorn: Any = import_module("uvicorn")


async def behave(text: str, updater: Any, part: Callable[[str], Any], *, is_answer: bool) -> None:
    """Do what the first word requests, with an SDK's TaskUpdater; `part` makes a text part."""
    word, _, rest = text.partition(" ")
    if is_answer:
        await updater.add_artifact([part(f"answer: {text}")], artifact_id="answer")
        await updater.complete()
    elif word == "ask":
        await updater.requires_input(updater.new_agent_message([part(rest)]))
    elif word == "login":
        await updater.requires_auth(updater.new_agent_message([part(rest)]))
    elif word == "fail":
        await updater.failed(updater.new_agent_message([part(rest)]))
    elif word == "wait":
        await updater.start_work(updater.new_agent_message([part("waiting")]))
        await asyncio.Event().wait()
    else:
        await _count(int(rest), updater, part)


async def _count(count: int, updater: Any, part: Callable[[str], Any]) -> None:
    await updater.start_work()
    for number in range(1, count + 1):
        await updater.add_artifact(
            [part(f"{number} ")],
            artifact_id="count",
            name="count",
            append=number > 1,
            last_chunk=number == count,
        )
    await updater.complete()


def open_listener() -> tuple[socket.socket, str]:
    """Return a listening socket on a free port of this machine, and its URL."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    # From here on, connections wait instead of being refused.
    listener.listen()
    return listener, f"http://127.0.0.1:{listener.getsockname()[1]}"


async def serve(app: Any, listener: socket.socket, url: str, grpc_server: Any) -> None:
    """Serve HTTP and gRPC, print the URL, and run until SIGTERM."""
    await grpc_server.start()
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    server.install_signal_handlers = server.capture_signals = None
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server._serve(sockets=[listener]))
        print(f"ready url={url}", flush=True)  # noqa: T201  the parent process reads this line
        await stopped.wait()
        server.should_exit = True
        await grpc_server.stop(0)
        serving.cancel()
