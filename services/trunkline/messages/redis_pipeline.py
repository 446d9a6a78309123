"""Runs the scripts of the distributed store. Waiting calls are sent in one round trip."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trunkline.errors import PeerUnavailableError
from trunkline.messages.redis_connection import ANSWER_S, PEER, REPLICATION_MS, translate_errors
from trunkline.messages.redis_scripts import ACKNOWLEDGED

if TYPE_CHECKING:
    from redis.asyncio import Redis

# Of one round trip.
_CALL_LIMIT: Final = 200


@dataclass(frozen=True, slots=True)
class _Call:
    """A call of a script that waits for the next round trip."""

    script: Any
    arguments: tuple[Any, ...]
    is_acknowledged: bool
    """The write counts once enough replicas have it."""
    answer: "asyncio.Future[Any]"


class ScriptPipeline:
    """Sends calls of scripts while `run` runs. One round trip is under way at a time."""

    def __init__(self, client: "Redis", prefix: str, *, replicas: int = 0) -> None:
        """`prefix` is the key of all scripts, `replicas` the number that must have each write."""
        # The library's types have the answers of all its clients and protocols.
        self._client: Any = client
        self._prefix = prefix
        self._replicas = replicas
        self._scripts: dict[str, Any] = {}
        self._waiting: list[_Call] = []
        self._has_waiting = asyncio.Event()

    async def call(self, script: str, *arguments: Any, is_repeatable: bool = True) -> Any:  # noqa: ANN401  scripts answer as they like
        """Run a script. A repeatable one is tried again if an idle connection was broken.

        Raises:
            PeerUnavailableError: the server did not answer, or too few replicas have the write in
                time. They may get it later.
        """
        prepared = self._scripts.get(script)
        if prepared is None:
            prepared = self._scripts[script] = self._client.register_script(script)
        async with translate_errors():
            from redis.exceptions import ConnectionError as RedisConnectionError
            from redis.exceptions import ReadOnlyError

            is_acknowledged = bool(self._replicas) and script in ACKNOWLEDGED
            try:
                return await self._put(prepared, arguments, is_acknowledged)
            except (RedisConnectionError, ReadOnlyError) as error:
                # The other idle connections are as old: probably broken as well, or to a server
                # that is a replica now.
                await self._client.connection_pool.disconnect(inuse_connections=False)
                if not is_repeatable and not isinstance(error, ReadOnlyError):
                    raise
            return await self._put(prepared, arguments, is_acknowledged)

    async def run(self) -> None:
        """Send waiting calls until canceled."""
        while True:
            await self._has_waiting.wait()
            calls = self._waiting[:_CALL_LIMIT]
            del self._waiting[:_CALL_LIMIT]
            if not self._waiting:
                self._has_waiting.clear()
            try:
                async with asyncio.timeout(ANSWER_S):
                    answers = await self._send(calls)
            except Exception as error:  # noqa: BLE001  every caller gets it
                answers = [error] * len(calls)
            for call, answer in zip(calls, answers, strict=True):
                if call.answer.done():
                    continue
                if isinstance(answer, Exception):
                    call.answer.set_exception(answer)
                else:
                    call.answer.set_result(answer)

    async def _put(self, script: Any, arguments: tuple[Any, ...], is_acknowledged: bool) -> Any:  # noqa: ANN401, FBT001
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append(_Call(script, arguments, is_acknowledged, answer))
        self._has_waiting.set()
        return await answer

    async def _send(self, calls: list[_Call], *, loads: bool = True) -> list[Any]:
        """Run scripts in one round trip; return the answer or the error of each.

        With `loads`, scripts that the server does not have are loaded, and run after the others.
        """
        from redis.exceptions import NoScriptError

        pipeline = self._client.pipeline(transaction=False)
        for call in calls:
            pipeline.evalsha(call.script.sha, 1, self._prefix, *call.arguments)
        if needs_replicas := any(call.is_acknowledged for call in calls):
            # WAIT covers the writes of its own connection. A script may have found a write of
            # another connection, so this connection writes something after it.
            pipeline.hincrby(f"{self._prefix}:counters", "replicated", 1)
            pipeline.wait(self._replicas, REPLICATION_MS)
        answers: list[Any] = await pipeline.execute(raise_on_error=False)
        if needs_replicas:
            *answers, _, reached = answers
            self._check_replicas(calls, answers, reached)
        missing = [n for n, answer in enumerate(answers) if isinstance(answer, NoScriptError)]
        if missing and loads:
            # The server has lost its scripts, or is a new one.
            for script in {calls[n].script.script: calls[n].script for n in missing}.values():
                await self._client.script_load(script.script)
            again = await self._send([calls[n] for n in missing], loads=False)
            for n, answer in zip(missing, again, strict=True):
                answers[n] = answer
        return answers

    def _check_replicas(self, calls: list[_Call], answers: list[Any], reached: Any) -> None:  # noqa: ANN401
        """Replace the answers of calls by an error if too few replicas have their writes."""
        error: Exception | None = None
        if isinstance(reached, Exception):
            error = reached
        elif int(reached) < self._replicas:
            problem = (
                f"{reached} of {self._replicas} replicas have the write, so it does not count yet"
            )
            error = PeerUnavailableError(PEER, problem)
        if error is None:
            return
        for index, call in enumerate(calls):
            if call.is_acknowledged and not isinstance(answers[index], Exception):
                answers[index] = error
