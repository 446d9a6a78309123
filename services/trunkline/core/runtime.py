"""The runtime of a process: event loop, garbage collection, ready lines, and shutdown."""

import asyncio
import contextlib
import contextvars
import gc
import logging
import math
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ParamSpec, Protocol, TypeVar

_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")

logger = logging.getLogger(__name__)

# A full collection takes tens of milliseconds, which streams would notice. Reference counting frees
# what streams leave; cycles are rare.
_GC_THRESHOLDS = (50_000, 20, 50)
# Agents' code may run this long after the process's work has ended.
_EXIT_GRACE_S = 5.0
# After this time without a registration, the process reports that it waits for a mesh.
_JOIN_NOTICE_S = 0.5
# Addresses are bound before, so a start takes one pass of the event loop.
_GRPC_START_TIMEOUT_S = 5.0
# Loads in threads of their own. The event loop would wait for threads of its executor on close.
_loads: "set[Future[Any]]" = set()


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """The state of a process's service, for the code that started it."""

    endpoints: Sequence[Mapping[str, str]]
    """The ready lines: names and addresses of the endpoints."""
    joined: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the service is registered."""
    is_in_other_mesh: bool = True
    """False if the service is a mesh of its own, so that it waits for no other process."""
    failed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the service can't continue. The log has the reason."""
    inventory: Mapping[str, str] = field(default_factory=dict)
    """Everything the service has loaded, and why, by kind. If empty, it is not reported."""


def run(work: Coroutine[Any, Any, int]) -> int:
    """Run a process's work on a new event loop, uvloop's if installed; return the exit code.

    The process exits at most five seconds after the work. Agents' code that can't be stopped, in a
    thread or because it ignores cancellation, does not delay it further. Loads by
    `load_in_thread` are abandoned at once.
    """
    code, end = 1, None
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            try:
                code = runner.run(work)
            finally:
                end = _schedule_exit(code)
    finally:
        if end is not None:
            end.cancel()
    if _loads:
        # The interpreter would wait for these threads.
        exit_now(code)
    return code


async def load_in_thread(
    work: Callable[_Params, _Result], *args: _Params.args, **kwargs: _Params.kwargs
) -> _Result:
    """Run a function that may block for long in a separate thread.

    It loads code, for example, or is a plain function of an agent. Cancellation and the exit of the
    process abandon the thread. Exceptions of the function are raised unchanged.
    """
    call = partial(contextvars.copy_context().run, work, *args, **kwargs)
    loading: Future[_Result] = Future()
    loading.set_running_or_notify_cancel()
    loading.add_done_callback(_loads.discard)

    def load() -> None:
        try:
            loading.set_result(call())
        except BaseException as error:  # noqa: BLE001  raised where the load is awaited
            loading.set_exception(error)

    _loads.add(loading)
    threading.Thread(target=load, name="load").start()
    return await asyncio.wrap_future(loading)


def format_state(state: str, served: Mapping[str, str]) -> str:
    """Return the line on stdout that reports the state of an endpoint, which is `ready`.

    The line break is included: `print` writes its own break separately to an unbuffered stream,
    and the output of another thread could come between.
    """
    return " ".join((state, *(f"{name}={value}" for name, value in served.items()))) + "\n"


def format_waiting(mesh: object) -> str:
    """Return the line on stderr that reports that there is no mesh to join yet."""
    return f"waiting for a mesh at {mesh}; `trunkline up` starts one"


async def serve(
    service: AbstractAsyncContextManager[ServiceStatus],
    *,
    on_state: Callable[[str, Mapping[str, str]], None],
    on_waiting: Callable[[], None],
    on_ready: Callable[[ServiceStatus], Awaitable[None]] | None = None,
    parent_pipe: int | None = None,
) -> int:
    """Serve until SIGTERM, Ctrl-C or the end of `parent_pipe`; return the exit code.

    `on_state` gets each endpoint as `ready` once it is registered. `on_waiting` is called if the
    registration in the mesh of another process takes more than half a second, and `on_ready` is
    awaited once all endpoints were reported. A second signal exits at once.
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
                    group.create_task(_announce(serving, on_state, on_waiting, on_ready)),
                    group.create_task(_watch_failure(serving, stop)),
                ]
                await stop.requested.wait()
                for wait in waits:
                    wait.cancel()
    except (asyncio.CancelledError, Exception) as error:
        # Stopped before it was up. Errors of the interrupted start don't matter.
        if stop.is_up or not stop.requested.is_set():
            raise
        logger.debug("process.start_interrupted", exc_info=error)
    return 1 if stop.has_failed else 0


def tune_gc() -> None:
    """Tune the garbage collector for a process that is up.

    Objects that exist now live as long as the process, so later collections skip them and are rare.
    """
    # Fewer than 1 % of them are unreachable. To collect these would delay the first request.
    gc.freeze()
    gc.set_threshold(*_GC_THRESHOLDS)
    gc.enable()


def _schedule_exit(code: int) -> threading.Timer:
    """Schedule the exit of the process, even if threads still run; return the timer."""

    def end() -> None:
        logger.warning("process.left_code_behind")
        exit_now(code)

    timer = threading.Timer(_EXIT_GRACE_S, end)
    timer.daemon = True
    timer.start()
    return timer


def exit_now(code: int) -> None:
    """Exit the process now, without the interpreter's cleanup. Printed text is flushed."""
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
    on_state: Callable[[str, Mapping[str, str]], None],
    on_waiting: Callable[[], None],
    on_ready: Callable[[ServiceStatus], Awaitable[None]] | None,
) -> None:
    try:
        async with asyncio.timeout(_JOIN_NOTICE_S if serving.is_in_other_mesh else None):
            await serving.joined.wait()
    except TimeoutError:
        on_waiting()
        await serving.joined.wait()
    for line in serving.endpoints:
        on_state("ready", line)
    if on_ready is not None:
        await on_ready(serving)


async def _watch_failure(serving: ServiceStatus, stop: "_Stop") -> None:
    await serving.failed.wait()
    stop.fail()


class _Stop:
    """Handles requests to stop. Until `is_up` is set, a request cancels the work."""

    def __init__(self) -> None:
        self.is_up = False
        self.has_failed = False
        self.requested = asyncio.Event()
        self._work = asyncio.current_task()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self._request)

    def on_end_of(self, pipe: int) -> None:
        """Stop at the end of a pipe, whose other end the parent process holds."""
        loop = asyncio.get_running_loop()

        def read() -> None:
            if not os.read(pipe, 4096):
                loop.remove_reader(pipe)
                self._request()

        loop.add_reader(pipe, read)

    def fail(self) -> None:
        """Stop because the service has failed."""
        self.has_failed = True
        self.requested.set()

    def _request(self) -> None:
        if self.requested.is_set():
            os._exit(1)
        self.requested.set()
        if not self.is_up and self._work is not None:
            self._work.cancel()


@asynccontextmanager
async def run_in_background(work: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run `work` in the background of the block, and cancel it when the block ends.

    Errors of the block are raised unchanged. If the work fails, the block is canceled and the
    failure is raised in an exception group, as by a task group.
    """
    failure: Exception | GeneratorExit | None = None
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work)
        try:
            yield
        # Raised again below, out of the group's wrapping. GeneratorExit: the block is part of an
        # asynchronous generator that is closed.
        except (Exception, GeneratorExit) as error:  # noqa: BLE001
            failure = error
        finally:
            task.cancel()
    if failure is not None:
        raise failure


async def run_with_late_cancel(
    work: Coroutine[Any, Any, _Result],
    before_cancel: "Callable[[asyncio.Task[_Result | Exception]], Awaitable[None]]",
) -> _Result:
    """Return the result of `work`, or raise its error.

    If the caller is cancelled, `before_cancel` runs while the work continues, and then the work is
    cancelled. It gets the task of the work, which returns errors instead of raising them. It must
    limit its own time and raise no errors.
    """
    async with asyncio.TaskGroup() as group:
        working = group.create_task(_return_errors(work))
        try:
            await asyncio.shield(working)
        except asyncio.CancelledError:
            await before_cancel(working)
            raise
    result = working.result()
    if isinstance(result, Exception):
        raise result
    return result


async def finish(future: "asyncio.Future[_Result]") -> _Result:
    """Return the result of a future, or raise its error.

    The future is not canceled with the caller. A caller that is canceled, even repeatedly, waits
    for the end of the future and then raises CancelledError in place of the result or the error.
    The wait has no deadline, so the work behind the future must limit its own time.
    """
    cancellation: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait({future})
        except asyncio.CancelledError as error:
            cancellation = error
    if cancellation is None:
        return future.result()
    if not future.cancelled():
        # Otherwise asyncio would report an error of the future as never retrieved.
        future.exception()
    raise cancellation


class _GrpcServer(Protocol):
    """A `grpc.aio.Server`."""

    async def start(self) -> None: ...

    async def stop(self, grace: float | None) -> None: ...


async def start_grpc_server(server: _GrpcServer) -> None:
    """Start a server. A cancellation waits until it has started, and stops it.

    gRPC logs errors if its start is canceled, as by Ctrl-C while a process starts.
    """

    async def stop(starting: "asyncio.Task[Exception | None]") -> None:
        await asyncio.wait({starting}, timeout=_GRPC_START_TIMEOUT_S)
        await server.stop(None)

    await run_with_late_cancel(server.start(), stop)


async def _return_errors(work: Coroutine[Any, Any, _Result]) -> _Result | Exception:
    try:
        return await work
    except Exception as error:  # noqa: BLE001  The caller raises it outside of the group.
        return error


def next_tick(now_s: float, period_s: float) -> float:
    """Return the next tick of a period on the event loop's clock.

    Ticks are multiples of the period. The result is 0.1 to 1.1 periods after `now_s`.
    """
    # A timer may fire just before its tick; the minimum distance keeps it from firing twice.
    return math.floor(now_s / period_s + 1.1) * period_s


async def sleep_until_tick(period_s: float) -> None:
    """Sleep until the next tick of a period."""
    now_s = asyncio.get_running_loop().time()
    await asyncio.sleep(next_tick(now_s, period_s) - now_s)
