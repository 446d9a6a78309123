"""Keeps one worker process at work: starts it when needed, kills it when it takes too long."""

import asyncio
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from trunkline.errors import InternalError, InvalidArgumentError, ToolServerUnavailableError
from trunkline_agents.math.frames import (
    LENGTH_BYTES,
    BrokenFrameError,
    Frame,
    body_length,
    packed,
    unpacked,
)
from trunkline_agents.mcp_server import ToolAnswer

logger = logging.getLogger(__name__)

_SERVER = "math"
# -P: the current folder is not searched for modules.
_COMMAND = (sys.executable, "-P", "-m", "trunkline_agents.math.worker")
# A worker has no use for anything else, and no business with it.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONHOME", "SYSTEMROOT", "LANG", "LC_ALL")

# How the end of a worker shows.
_LOST = (OSError, EOFError, BrokenFrameError)


@dataclass(frozen=True, kw_only=True)
class EngineLimits:
    """How long each thing may take, and how many questions may wait."""

    compute_s: float = 1.5
    """For one question, from the moment the worker is ready for it."""
    start_s: float = 20.0
    """Until a new worker is ready: loading SymPy takes seconds on a busy machine."""
    queue_s: float = 30.0
    """For a question to get its turn."""
    queue_length: int = 16
    """Questions under way or waiting; the next one is told to come back later."""
    idle_s: float = 60.0
    """After which a worker without work gives its memory back."""


class MathEngine:
    """Asks the worker, one question at a time, in the order they came.

    Cancelling a call kills the computation. Close it with `aclose` when done.
    """

    def __init__(self, limits: EngineLimits | None = None) -> None:
        self._limits = limits or EngineLimits()
        self._turn = asyncio.Lock()
        self._questions = 0
        self._process: Process | None = None
        self._is_spent = False
        self._retirement: asyncio.TimerHandle | None = None

    @property
    def worker_pid(self) -> int | None:
        """The process id of the worker, if there is one to go on with."""
        return None if self._process is None or self._is_spent else self._process.pid

    async def compute(self, operation: str, arguments: dict[str, Any]) -> ToolAnswer:
        """Have one operation done.

        Raises:
            InvalidArgumentError: the question can't be answered, or not within the limits.
            ToolServerUnavailableError: too many questions wait, or no worker could be started.
            InternalError: the worker failed on it.
        """
        if self._questions >= self._limits.queue_length:
            raise ToolServerUnavailableError(_SERVER, "too many questions at once; try again soon")
        self._questions += 1
        try:
            await self._wait_for_turn()
            try:
                return _computed(await self._exchange(operation, arguments))
            finally:
                self._turn.release()
        finally:
            self._questions -= 1

    async def aclose(self) -> None:
        """Kill the worker and wait until it is gone."""
        self._kill()
        await self._bury()

    async def _wait_for_turn(self) -> None:
        try:
            async with asyncio.timeout(self._limits.queue_s):
                await self._turn.acquire()
        except TimeoutError:
            raise ToolServerUnavailableError(_SERVER, "it is busy; try again soon") from None

    async def _exchange(self, operation: str, arguments: dict[str, Any]) -> Frame:
        if self._retirement is not None:
            self._retirement.cancel()
        try:
            process = await self._ready_worker(operation, arguments)
            reply = await self._reply(process)
        except BaseException:
            # Whatever the reason, cancelled included: what goes on in there is of no more use.
            self._kill()
            raise
        if reply.get("is_last"):
            self._kill()
        else:
            loop = asyncio.get_running_loop()
            self._retirement = loop.call_later(self._limits.idle_s, self._kill)
        return reply

    async def _ready_worker(self, operation: str, arguments: dict[str, Any]) -> Process:
        """Send the question to a worker, a new one if need be, and wait until it has begun."""
        try:
            async with asyncio.timeout(self._limits.start_s):
                request = packed({"operation": operation, "arguments": arguments})
                try:
                    frame = await _sent(request, process := await self._worker())
                except _LOST:
                    # A worker that died while it was idle has not seen the question: once more.
                    self._kill()
                    frame = await _sent(request, process := await self._worker())
        except TimeoutError:
            problem = f"its worker was not ready within {self._limits.start_s:g} s"
            raise ToolServerUnavailableError(_SERVER, problem) from None
        except _LOST as error:
            logger.warning("math.worker_not_started", extra={"cause": type(error).__name__})
            raise ToolServerUnavailableError(_SERVER, "its worker did not start") from error
        if frame.get("kind") != "started":
            raise ToolServerUnavailableError(_SERVER, "its worker did not start")
        return process

    async def _worker(self) -> Process:
        if self._process is not None and (self._is_spent or self._process.returncode is not None):
            await self._bury()
        if self._process is None:
            environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
            self._process = await asyncio.create_subprocess_exec(
                *_COMMAND, stdin=PIPE, stdout=PIPE, env=environment
            )
            self._is_spent = False
        return self._process

    async def _reply(self, process: Process) -> Frame:
        try:
            async with asyncio.timeout(self._limits.compute_s):
                return await _read_frame(process)
        except TimeoutError:
            logger.info("math.computation_stopped", extra={"limit_s": self._limits.compute_s})
            problem = (
                f"That takes longer than the {self._limits.compute_s:g} s allowed. "
                "Ask for something smaller or simpler."
            )
        except _LOST as error:
            logger.warning("math.worker_died", extra={"cause": type(error).__name__})
            problem = "That takes more memory or time than is allowed."
        raise InvalidArgumentError(field="expression", problem=problem)

    def _kill(self) -> None:
        if self._retirement is not None:
            self._retirement.cancel()
        if self._process is not None:
            self._is_spent = True
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _bury(self) -> None:
        if self._process is not None:
            self._kill()
            await self._process.wait()
            self._process = None


async def _sent(request: bytes, process: Process) -> Frame:
    """Send a question and wait for the first frame that comes back."""
    assert process.stdin is not None  # noqa: S101 - it was started with pipes
    process.stdin.write(request)
    await process.stdin.drain()
    return await _read_frame(process)


async def _read_frame(process: Process) -> Frame:
    assert process.stdout is not None  # noqa: S101 - it was started with pipes
    head = await process.stdout.readexactly(LENGTH_BYTES)
    return unpacked(await process.stdout.readexactly(body_length(head)))


def _computed(reply: Frame) -> ToolAnswer:
    match reply:
        case {"kind": "answered", "text": str(text), "data": dict(data)}:
            return ToolAnswer(text, data)
        case {"kind": "refused", "field": str(field), "problem": str(problem)}:
            raise InvalidArgumentError(field=field, problem=problem)
        case _:
            logger.error("math.worker_failed", extra={"cause": str(reply.get("problem"))[:100]})
            raise InternalError(trace_id="")
