"""Checks structured results of tools against their schemas, in processes that can be killed."""

import asyncio
import json
import os
import sys
from collections import Counter, defaultdict
from contextlib import suppress
from pathlib import Path
from typing import Final

from trunkline.tools.child_process import ChildProcess

TIME_LIMIT_S: Final = 30.0
"""The time limit of a check, beside the worker's own limits on processor time and memory."""
_START_LIMIT_S: Final = 60.0
# A worker of about 30 MB is started when no worker is idle, and then stays.
_WORKERS: Final = 3
# The number of results of one server that are checked or wait.
_QUEUE_LIMIT: Final = 256
_REPLY_LIMIT_BYTES: Final = 65536
# -P: the folder of the file is not searched for modules. -W: no warnings about schemas.
_COMMAND: Final = (
    *(sys.executable, "-P", "-W", "ignore"),
    str(Path(__file__).with_name("result_worker.py")),
)
_ENVIRONMENT: Final = ("PATH", "PYTHONPATH", "PYTHONHOME", "SYSTEMROOT")


class ResultSchemaError(Exception):
    """A result violates the schema of its tool. The text names the member and the rule."""


class ResultCheckError(Exception):
    """A result can't be checked. The text has the reason."""


class UncheckableSchemaError(ResultCheckError):
    """No result can be checked against the schema: it is invalid, or its check takes too long."""


class ResultChecker:
    """Checks the results of all servers, in a bounded number of worker processes.

    The results of one server are checked one by one, so that a slow schema occupies one worker. A
    check that is canceled or takes too long ends its worker.
    """

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(_WORKERS)
        self._idle: list[ChildProcess] = []
        self._is_closed = False
        self._turns: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._queued: Counter[str] = Counter()

    async def check(self, server: str, schema: bytes, value: object) -> None:
        """Check a structured result of a server against a schema, which is one line of JSON.

        Raises:
            ResultSchemaError: it violates the schema.
            UncheckableSchemaError: the schema is invalid, or took too much time or memory.
            ResultCheckError: the check can't be made now.
        """
        if self._queued[server] >= _QUEUE_LIMIT:
            raise ResultCheckError("too many results of the server wait for their check")
        self._queued[server] += 1
        try:
            async with self._turns[server], self._slots:
                reply = await self._run(schema, value)
        finally:
            self._queued[server] -= 1
        match reply:
            case {"violation": str(violation)}:
                raise ResultSchemaError(violation)
            case {"problem": str(problem)}:
                raise UncheckableSchemaError(problem)

    async def close(self) -> None:
        """Stop the workers. A worker that is busy stops after its check."""
        self._is_closed = True
        while self._idle:
            await self._idle.pop().kill()

    async def _run(self, schema: bytes, value: object) -> dict[str, str] | None:
        worker = await self._take_worker()
        try:
            request = b"%b\n%b\n" % (schema, json.dumps(value).encode())
            reply: dict[str, str] | None = json.loads(
                await _exchange(worker, request, limit_s=TIME_LIMIT_S)
            )
        except BaseException:
            await worker.kill()
            raise
        if self._is_closed:
            await worker.kill()
        else:
            self._idle.append(worker)
        return reply

    async def _take_worker(self) -> ChildProcess:
        while self._idle:
            worker = self._idle.pop()
            if worker.returncode is None:
                return worker
            await worker.kill()
        environment = {name: os.environ[name] for name in _ENVIRONMENT if name in os.environ}
        try:
            worker = await ChildProcess.start(
                _COMMAND, environment=environment, folder=None, limit_bytes=_REPLY_LIMIT_BYTES
            )
        except OSError as error:
            raise ResultCheckError(f"no process can be started for the check: {error}") from error
        try:
            await _exchange(worker, b"", limit_s=_START_LIMIT_S)
        except BaseException:
            await worker.kill()
            raise
        return worker


async def _exchange(worker: ChildProcess, request: bytes, *, limit_s: float) -> bytes:
    """Send a request, and return the line that the worker prints next."""
    try:
        async with asyncio.timeout(limit_s):
            # A worker that has ended prints nothing.
            with suppress(ConnectionError):
                worker.stdin.write(request)
                await worker.stdin.drain()
            reply = await worker.stdout.readline()
    except TimeoutError as error:
        raise UncheckableSchemaError(f"the check takes more than {limit_s:g} s") from error
    if not reply.endswith(b"\n"):
        raise UncheckableSchemaError("the check takes too much memory or time")
    return reply
