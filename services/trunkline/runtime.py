"""How every process of ours runs: its event loop, its garbage, how it says ready and is stopped."""

import asyncio
import contextlib
import contextvars
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Loaded = TypeVar("_Loaded")

logger = logging.getLogger(__name__)

# Collections of everything that a process holds cost tens of milliseconds, in the middle of
# streams. What streams leave behind is freed by counting references; cycles are rare.
_GC_THRESHOLDS = (50_000, 20, 50)
# What the code of agents may take longer than the process's work: then it ends with the process.
_LEFT_BEHIND_S = 5.0
# What joins later than this is said to be waited for.
_JOIN_NOTICE_S = 0.5
# What is being loaded, in threads that are not the loop's: it waits for its own when it closes.
_loads: "set[Future[Any]]" = set()


class StandbyAgents:
    """The agents that another process serves: this one takes their place when it is gone."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self._news = asyncio.Event()

    def update(self, names: frozenset[str]) -> None:
        """Say which these are now."""
        if names != self.names:
            self.names = names
            news, self._news = self._news, asyncio.Event()
            news.set()

    async def wait_for_change(self) -> None:
        """Wait until they are others than now."""
        await self._news.wait()


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """What a process serves, as those who started it are told."""

    endpoints: Sequence[Mapping[str, str]]
    """A line each: what serves, and where."""
    joined: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once the mesh knows of it."""
    failed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when it can't do its work any more, and why is in the log."""
    standby: StandbyAgents = field(default_factory=StandbyAgents)
    """Which of its agents it doesn't serve yet."""


def run(work: Coroutine[Any, Any, int]) -> int:
    """Run a process's work on an event loop of its own, uvloop's where installed; its exit code.

    When the work is over, so is the process, five seconds later at the latest: agents' code that
    can't be stopped, in a thread or because it ignores being canceled, doesn't hold it up. What
    `load` still loads ends with it at once.
    """
    code, end = 1, None
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            try:
                code = runner.run(work)
            finally:
                end = _end_soon(code)
    finally:
        if end is not None:
            end.cancel()
    if _loads:
        # The interpreter would wait for them.
        _leave(code)
    return code


async def load_in_thread(
    work: Callable[_Given, _Loaded], *given: _Given.args, **named: _Given.kwargs
) -> _Loaded:
    """Do in a thread what loads code, which takes seconds: nobody needs it when the process ends.

    Canceling leaves it to itself. Raises what it raises.
    """
    call = partial(contextvars.copy_context().run, work, *given, **named)
    loading: Future[_Loaded] = Future()
    loading.set_running_or_notify_cancel()
    loading.add_done_callback(_loads.discard)

    def do() -> None:
        try:
            loading.set_result(call())
        except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
            loading.set_exception(error)

    _loads.add(loading)
    threading.Thread(target=do, name="load").start()
    return await asyncio.wrap_future(loading)


def format_state(state: str, served: Mapping[str, str]) -> str:
    """Return how a process says on stdout that something is `ready`, or on `standby`."""
    return " ".join((state, *(f"{name}={value}" for name, value in served.items())))


def format_waiting(mesh: object) -> str:
    """Return how a process says on stderr that there is no mesh to join yet."""
    return f"waiting for a mesh at {mesh}; `trunkline up` starts one"


async def serve(
    service: AbstractAsyncContextManager[ServiceStatus],
    *,
    on_state: Callable[[str, Mapping[str, str]], None],
    on_waiting: Callable[[], None],
    parent_pipe: int | None = None,
) -> int:
    """Serve until SIGTERM or Ctrl-C, or the end of the pipe `lifeline`; return the exit code.

    Each line of what serves is told as `ready` once the mesh knows of it, or as on `standby` while
    another process serves it; and before, if that takes a while, that the mesh is waited for. A
    second signal ends the process at once.
    """
    stop = _Stop()
    if parent_pipe is not None:
        stop.on_end_of(parent_pipe)
    try:
        async with service as serving:
            stop.is_up = True
            tune_gc()
            async with asyncio.TaskGroup() as group:
                waits = [
                    group.create_task(_announce(serving, on_state, on_waiting, stop)),
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


def tune_gc() -> None:
    """Tell the garbage collector that this process is up.

    What lives now lives as long as the process: later collections needn't look at it again, and
    there are few of them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)


def _end_soon(code: int) -> threading.Timer:
    """End the process without those that it would wait for without end, unless that is canceled."""

    def end() -> None:
        logger.warning("process.left_code_behind")
        _leave(code)

    timer = threading.Timer(_LEFT_BEHIND_S, end)
    timer.daemon = True
    timer.start()
    return timer


def _leave(code: int) -> None:
    """End the process now."""
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    os._exit(code)


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


async def _announce(
    serving: ServiceStatus,
    tell: Callable[[str, Mapping[str, str]], None],
    tell_waiting: Callable[[], None],
    stop: "_Stop",
) -> None:
    try:
        async with asyncio.timeout(_JOIN_NOTICE_S):
            await serving.joined.wait()
    except TimeoutError:
        tell_waiting()
        await serving.joined.wait()
    told: dict[int, str] = {}
    while not stop.asked.is_set():
        for number, line in enumerate(serving.endpoints):
            state = "standby" if line.get("agent") in serving.standby.names else "ready"
            if told.get(number) != state:
                told[number] = state
                tell(state, line)
        await serving.standby.wait_for_change()


async def _watch_failure(serving: ServiceStatus, stop: "_Stop") -> None:
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


@asynccontextmanager
async def run_in_background(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run `work` beside the block and cancel it when the block ends.

    What the block raises comes out as it is; when the work itself fails, the block is cancelled
    and the failure comes out as an exception group, as from any task group.
    """
    failure: Exception | None = None
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        try:
            yield
        except Exception as error:  # noqa: BLE001  raised again below, out of the group's wrapping
            failure = error
        finally:
            task.cancel()
    if failure is not None:
        raise failure
