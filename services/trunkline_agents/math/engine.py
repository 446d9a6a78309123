"""Computes in one worker process, which is started on demand and killed if it takes too long."""

import asyncio
import json
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from trunkline.errors import InternalError, InvalidArgumentError, ToolServerUnavailableError
from trunkline_agents.math.worker import REPLY_LIMIT_BYTES, Message
from trunkline_agents.mcp_server import ToolAnswer

logger = logging.getLogger(__name__)

_SERVER = "math"
# -P: the current folder is not searched for modules.
_COMMAND = (sys.executable, "-P", "-m", "trunkline_agents.math.worker")
# A worker gets only these variables, so our secrets stay here.
_ENVIRONMENT = ("PATH", "PYTHONPATH", "PYTHONHOME", "SYSTEMROOT", "LANG", "LC_ALL")

# Raised by reads and writes if the worker has ended, or prints anything but a reply.
_LOST = (OSError, EOFError, ValueError)


@dataclass(frozen=True, kw_only=True)
class EngineLimits:
    """Limits on time, in seconds, and on waiting questions."""

    compute_s: float = 1.5
    """The longest computation, from the moment at which the worker is ready."""
    start_s: float = 20.0
    """The longest start of a worker. Loading SymPy takes seconds on a busy machine."""
    queue_s: float = 30.0
    """The longest wait of a question for its turn."""
    queue_length: int = 16
    """The number of questions that run or wait. Further ones get ToolServerUnavailableError."""
    idle_s: float = 600.0
    """A worker without work is killed after this time, which frees its memory."""


class MathEngine:
    """Sends questions to the worker, one at a time, in their order of arrival.

    Cancelling a call kills the computation. The owner closes the engine with `aclose`.
    """

    def __init__(self, limits: EngineLimits | None = None) -> None:
        self._limits = limits or EngineLimits()
        self._turn = asyncio.Lock()
        self._questions = 0
        self._process: Process | None = None
        self._is_killed = False
        self._idle_timer: asyncio.TimerHandle | None = None

    @property
    def worker_pid(self) -> int | None:
        """The process id of the worker, or None without a usable worker."""
        return None if self._process is None or self._is_killed else self._process.pid

    async def compute(self, operation: str, arguments: dict[str, Any]) -> ToolAnswer:
        """Run one operation in the worker.

        Raises:
            InvalidArgumentError: the question has no answer, or none within the limits.
            ToolServerUnavailableError: too many questions wait, or no worker could be started.
            InternalError: the worker failed on it.
        """
        if self._questions >= self._limits.queue_length:
            raise ToolServerUnavailableError(_SERVER, "too many questions at once; try again soon")
        self._questions += 1
        try:
            await self._wait_for_turn()
            try:
                return _parse_reply(await self._exchange(operation, arguments))
            finally:
                self._turn.release()
        finally:
            self._questions -= 1

    async def aclose(self) -> None:
        """Kill the worker and wait until it is gone."""
        self._kill()
        await self._reap()

    async def _wait_for_turn(self) -> None:
        try:
            async with asyncio.timeout(self._limits.queue_s):
                await self._turn.acquire()
        except TimeoutError:
            raise ToolServerUnavailableError(_SERVER, "it is busy; try again soon") from None

    async def _exchange(self, operation: str, arguments: dict[str, Any]) -> Message:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        try:
            process = await self._ready_worker(operation, arguments)
            reply = await self._reply(process)
        except BaseException:
            # Also on cancellation: the result is not needed any more.
            self._kill()
            raise
        if reply.get("is_last"):
            self._kill()
        else:
            loop = asyncio.get_running_loop()
            self._idle_timer = loop.call_later(self._limits.idle_s, self._kill)
        return reply

    async def _ready_worker(self, operation: str, arguments: dict[str, Any]) -> Process:
        """Send the question to the worker, start one if necessary, and wait for `started`."""
        try:
            async with asyncio.timeout(self._limits.start_s):
                question = {"operation": operation, "arguments": arguments}
                request = json.dumps(question).encode() + b"\n"
                try:
                    reply = await _send(request, process := await self._worker())
                except _LOST:
                    # A worker that died while idle has not seen the question, so it is sent again.
                    self._kill()
                    reply = await _send(request, process := await self._worker())
        except TimeoutError:
            problem = f"its worker was not ready within {self._limits.start_s:g} s"
            raise ToolServerUnavailableError(_SERVER, problem) from None
        except _LOST as error:
            logger.warning("math.worker_not_started", extra={"cause": type(error).__name__})
            raise ToolServerUnavailableError(_SERVER, "its worker did not start") from error
        if reply.get("kind") != "started":
            raise ToolServerUnavailableError(_SERVER, "its worker did not start")
        return process

    async def _worker(self) -> Process:
        if self._process is not None and (self._is_killed or self._process.returncode is not None):
            await self._reap()
        if self._process is None:
            environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
            self._process = await asyncio.create_subprocess_exec(
                *_COMMAND, stdin=PIPE, stdout=PIPE, env=environment, limit=REPLY_LIMIT_BYTES
            )
            self._is_killed = False
        return self._process

    async def _reply(self, process: Process) -> Message:
        try:
            async with asyncio.timeout(self._limits.compute_s):
                return await _read_reply(process)
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
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        if self._process is not None:
            self._is_killed = True
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _reap(self) -> None:
        if self._process is not None:
            self._kill()
            await self._process.wait()
            self._process = None


async def _send(request: bytes, process: Process) -> Message:
    """Send a question and return the first reply."""
    assert process.stdin is not None  # noqa: S101 - it was started with pipes
    process.stdin.write(request)
    await process.stdin.drain()
    return await _read_reply(process)


async def _read_reply(process: Process) -> Message:
    """Read a reply.

    Raises:
        EOFError: the worker has ended.
        ValueError: it printed anything but a reply.
    """
    assert process.stdout is not None  # noqa: S101 - it was started with pipes
    line = await process.stdout.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    reply: Message = json.loads(line)
    return reply


def _parse_reply(reply: Message) -> ToolAnswer:
    match reply:
        case {"kind": "answered", "text": str(text), "data": dict(data)}:
            return ToolAnswer(text, data)
        case {"kind": "refused", "field": str(field), "problem": str(problem)}:
            raise InvalidArgumentError(field=field, problem=problem)
        case _:
            logger.error("math.worker_failed", extra={"cause": str(reply.get("problem"))[:100]})
            raise InternalError(trace_id="")
