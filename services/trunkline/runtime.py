"""How every process of ours runs: its event loop, its garbage, how it says ready and is stopped."""

import asyncio
import gc
import logging
import os
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

_Result = TypeVar("_Result")

# Collections of everything that a process holds cost tens of milliseconds, in the middle of
# streams. What streams leave behind is freed by counting references; cycles are rare.
_GC_THRESHOLDS = (50_000, 20, 50)
# What joins later than this is said to be waited for.
_JOIN_NOTICE_S = 0.5


@dataclass(frozen=True, slots=True)
class Serving:
    """What a process serves, as those who started it are told."""

    ready: Sequence[Mapping[str, str]]
    """A line each: what serves, and where."""
    joined: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the mesh knows of it."""
    failed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it can't do its work any more, and why is in the log."""


def run(work: Coroutine[Any, Any, _Result]) -> _Result:
    """Run a process's work on an event loop of its own: uvloop's where it is installed."""
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        return runner.run(work)


def ready_line(served: Mapping[str, str]) -> str:
    """Return how a process says on stdout that something serves."""
    return " ".join(("ready", *(f"{name}={value}" for name, value in served.items())))


def waiting_line(mesh: object) -> str:
    """Return how a process says on stderr that there is no mesh to join yet."""
    return f"waiting for a mesh at {mesh}; `trunkline up` starts one"


async def serve(
    opening: AbstractAsyncContextManager[Serving],
    *,
    tell: Callable[[Mapping[str, str]], None],
    tell_waiting: Callable[[], None],
    lifeline: int | None = None,
) -> int:
    """Serve until SIGTERM or Ctrl-C, or the end of the pipe `lifeline`; return the exit code.

    Each line of what serves is told once the mesh knows of it, and before, if that takes a while,
    that it is waited for. A second signal ends the process at once.
    """
    stop = _Stop()
    if lifeline is not None:
        stop.on_end_of(lifeline)
    try:
        async with opening as serving:
            stop.is_up = True
            settle()
            async with asyncio.TaskGroup() as group:
                waits = [
                    group.create_task(_announce(serving, tell, tell_waiting, stop)),
                    group.create_task(_watch_failure(serving, stop)),
                ]
                await stop.asked.wait()
                for wait in waits:
                    wait.cancel()
    except (asyncio.CancelledError, Exception) as error:
        # Told to stop before it was up: what it was in the middle of matters no more.
        if stop.is_up or not stop.asked.is_set():
            raise
        logger.debug("process.start_interrupted", exc_info=error)
    return 1 if stop.has_failed else 0


def settle() -> None:
    """Tell the garbage collector that this process is up.

    What lives now lives as long as the process: later collections needn't look at it again, and
    there are few of them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _announce(
    serving: Serving,
    tell: Callable[[Mapping[str, str]], None],
    tell_waiting: Callable[[], None],
    stop: "_Stop",
) -> None:
    try:
        async with asyncio.timeout(_JOIN_NOTICE_S):
            await serving.joined.wait()
    except TimeoutError:
        tell_waiting()
        await serving.joined.wait()
    if not stop.asked.is_set():
        for line in serving.ready:
            tell(line)


async def _watch_failure(serving: Serving, stop: "_Stop") -> None:
    await serving.failed.wait()
    stop.fail()


class _Stop:
    """What asks this process to stop. Before `is_up` is set, its work is canceled by it."""

    def __init__(self) -> None:
        self.is_up = False
        self.has_failed = False
        self.asked = asyncio.Event()
        self._work = asyncio.current_task()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._ask)

    def on_end_of(self, pipe: int) -> None:
        """Stop when a pipe ends: whoever holds its other end may have been killed."""
        loop = asyncio.get_running_loop()

        def read() -> None:
            if not os.read(pipe, 4096):
                loop.remove_reader(pipe)
                self._ask()

        loop.add_reader(pipe, read)

    def fail(self) -> None:
        """Stop although nobody asked."""
        self.has_failed = True
        self.asked.set()

    def _ask(self) -> None:
        if self.asked.is_set():
            os._exit(1)
        self.asked.set()
        if not self.is_up and self._work is not None:
            self._work.cancel()
