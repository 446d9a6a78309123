"""Clients of a mesh that record all that they do, as a process at a node of its own.

Run as a script by `harness.histories.trial`, with the fields of `Plan` as JSON. The clients work
until a line comes on stdin. Then they ask for the end of each task that was acknowledged, and end.
"""

import asyncio
import itertools
import json
import random
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from harness.a2a.sse_client import Json, RefusedError, SseResponse, send, sse
from harness.histories.checker import TERMINAL
from harness.histories.history import HistoryFile, Kind, Record, Request, now
from harness.polling import poll
from trunkline.a2a_wire.protocol import RESUME_EXTENSION

WITNESS: Final = "witness"
TALKER: Final = "talker"
"""The agent that has conversations: the turns of one run one after another."""
ASKS: Final = "INPUT_REQUIRED"
_UNARY_S: Final = 5.0
# Longer than a takeover takes, so that a stream that is open meanwhile may go on.
_SILENCE_S: Final = 8.0
_PAUSE_S: Final = 0.2
_KEYED: Final = {"A2A-Extensions": RESUME_EXTENSION}
# The errors that are no outage: task not found, not cancelable, unsupported, invalid parameters.
_REFUSALS: Final = frozenset({-32001, -32002, -32004, -32602})
# A bridge that has not heard from the registry yet.
_OUTAGE: Final = "AGENT_NOT_FOUND"


@dataclass(frozen=True, slots=True)
class Plan:
    """What the clients do."""

    name: str
    """Begins the id of each message and conversation."""
    bridges: dict[str, str]
    """The URL of each bridge."""
    history: str
    """The path of the file."""
    seed: int
    clients: int
    """The number of clients, which each have one message or conversation under way."""
    pieces: int
    """The most pieces of a task."""
    gap_ms: int
    """The pause between two pieces."""
    end_s: float
    """How long they ask for the end of a task."""
    repeats: bool
    """They send a message again, at another bridge, if it was not acknowledged."""


@dataclass(slots=True)
class Followed:
    """A task that was acknowledged."""

    id: str
    agent: str
    text: str = ""
    """The words of its message."""
    state: str = ""
    cursors: list[str] = field(default_factory=list)
    """The ids of its events, as they came."""

    @property
    def has_ended(self) -> bool:
        """True if a client has seen its end."""
        return self.state in TERMINAL


class Clients:
    """Some clients that send messages, follow tasks and cancel, at random bridges."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._rng = random.Random(plan.seed)
        self._file = HistoryFile(Path(plan.history))
        self._numbers = itertools.count(1)
        self._messages = itertools.count(1)
        self._tasks: dict[str, Followed] = {}
        self._earlier: set[str] = set()
        self._stopping = asyncio.Event()

    async def run(self, wait_for_order: Callable[[], Awaitable[object]]) -> None:
        """Work until the order comes; then ask for all ends."""
        listed = await poll(lambda: self._list(self._pick()), lambda listed: listed is not None)
        self._earlier = set(listed or ())
        print("ready", flush=True)  # noqa: T201  the trial reads it
        async with asyncio.TaskGroup() as group:
            clients = [group.create_task(self._work()) for _ in range(self._plan.clients)]
            await wait_for_order()
            self._stopping.set()
            # What they wait for may never come.
            await asyncio.wait(clients, timeout=_SILENCE_S + _UNARY_S)
            for client in clients:
                client.cancel()
        async with asyncio.TaskGroup() as group:
            for task in list(self._tasks.values()):
                group.create_task(self._ask_for_end(task))
        for bridge in self._plan.bridges:
            await self._retry(partial(self._list, bridge))
        self._file.add(Record(now(), Kind.FINISHED))

    async def _work(self) -> None:
        while not self._stopping.is_set():
            match self._rng.randrange(8):
                case 0:
                    await self._converse()
                case 1:
                    await self._tell("ask", is_stream=self._rng.random() < 0.5)
                case number:
                    await self._tell("write", is_stream=number > 3)

    async def _converse(self) -> None:
        """Send messages of one conversation, each before the turn before it has ended."""
        context = f"{self._plan.name}-c{next(self._messages)}"
        async with asyncio.TaskGroup() as group:
            for _ in range(3):
                task = await self._submit(TALKER, "write", context, is_stream=False)
                if task is None:
                    break
                group.create_task(self._follow(task))

    async def _tell(self, how: str, *, is_stream: bool) -> None:
        """Send a message and follow its task to the end; others read and cancel it, too."""
        task = await self._submit(WITNESS, how, "", is_stream=is_stream)
        if task is None:
            return
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow(task))
            if self._rng.random() < 0.4:
                group.create_task(self._read_along(task))
            if self._rng.random() < 0.15:
                group.create_task(self._cancel(task))

    async def _submit(
        self, agent: str, how: str, context: str, *, is_stream: bool
    ) -> Followed | None:
        """Send a message until it is acknowledged or lost, each time at another bridge."""
        message = f"{self._plan.name}-m{next(self._messages)}"
        pieces = self._rng.randrange(1, self._plan.pieces)
        text = f"{how} {pieces} {self._plan.gap_ms}"
        record = Record(0, Kind.INVOKED, message=message, context=context, pieces=pieces)
        body = _message(message, text, contextId=context)
        for bridge in self._rotate():
            if self._stopping.is_set():
                return None
            task = await self._send(bridge, agent, record, body, is_stream=is_stream)
            if task:
                self._tasks[task].text = text
                return self._tasks[task]
            if not self._plan.repeats:
                break
            await asyncio.sleep(_PAUSE_S)
        return None

    async def _follow(self, task: Followed) -> None:
        """Subscribe after the last event that came, until the task ends; answer its question."""
        for bridge in self._rotate():
            if task.has_ended or self._stopping.is_set():
                return
            if task.state == ASKS:
                await self._answer(bridge, task)
            elif task.cursors or not await self._get(bridge, task):
                await self._subscribe(bridge, task, task.cursors[-1] if task.cursors else "")
            elif not task.has_ended:
                await self._subscribe(bridge, task, "")
            await asyncio.sleep(_PAUSE_S * self._rng.random())

    async def _read_along(self, task: Followed) -> None:
        """Read from the middle at another bridge, and get snapshots."""
        for _ in range(3):
            await asyncio.sleep(self._rng.random())
            if self._stopping.is_set():
                return
            await self._get(self._pick(), task)
            cursor = self._rng.choice(task.cursors) if task.cursors else ""
            if cursor or not task.has_ended:
                await self._subscribe(self._pick(), task, cursor)

    async def _cancel(self, task: Followed) -> None:
        await asyncio.sleep(self._rng.random())
        for bridge in self._rotate():
            if self._stopping.is_set():
                return
            record = Record(0, Kind.INVOKED, Request.CANCEL, task=task.id)
            answer = await self._call(bridge, task.agent, record, "CancelTask", {"id": task.id})
            if answer.kind is not Kind.UNKNOWN:
                return
            await asyncio.sleep(_PAUSE_S)

    async def _answer(self, bridge: str, task: Followed) -> None:
        message = f"{task.id}-answer"
        record = Record(
            0, Kind.INVOKED, message=message, task=task.id, is_answer=True,
        )  # fmt: skip
        body = _message(message, task.text, taskId=task.id)
        is_stream = self._rng.random() < 0.5
        await self._send(bridge, task.agent, record, body, is_stream=is_stream)

    async def _ask_for_end(self, task: Followed) -> None:
        """Ask for the end of a task; then for the same at each bridge, and after some cursor."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._plan.end_s
        for bridge in self._rotate():
            await self._get(bridge, task)
            if task.has_ended or loop.time() > until:
                break
            if task.state == ASKS:
                await self._answer(bridge, task)
            await asyncio.sleep(_PAUSE_S)
        for bridge in self._plan.bridges:
            await self._retry(partial(self._get, bridge, task))
        if task.cursors:
            await self._subscribe(self._pick(), task, self._rng.choice(task.cursors), is_cut=False)

    async def _retry(self, request: Callable[[], Awaitable[object]]) -> None:
        """Repeat a request until it is answered, for the time in which the mesh has to recover."""
        with suppress(TimeoutError):
            async with asyncio.timeout(self._plan.end_s):
                await poll(request, lambda answer: answer is not None)

    # The requests, each with its records.

    async def _send(
        self, bridge: str, agent: str, record: Record, message: Json, *, is_stream: bool
    ) -> str:
        """Send a message; return the id of its task, or "" if there was no answer."""
        if is_stream:
            request = replace(record, name=Request.STREAM)
            params: Json = {"message": message}
            return await self._read(bridge, agent, request, "SendStreamingMessage", params, {})
        params = {"message": message, "configuration": {"returnImmediately": True}}
        request = replace(record, name=Request.SEND)
        answer = await self._call(bridge, agent, request, "SendMessage", params)
        return answer.task if answer.kind is Kind.OK else ""

    async def _get(self, bridge: str, task: Followed) -> Record | None:
        """Return the answer; None if there was none."""
        record = Record(0, Kind.INVOKED, Request.GET, task=task.id)
        answer = await self._call(bridge, task.agent, record, "GetTask", {"id": task.id})
        return answer if answer.kind is Kind.OK else None

    async def _subscribe(
        self, bridge: str, task: Followed, cursor: str, *, is_cut: bool = True
    ) -> None:
        record = Record(0, Kind.INVOKED, Request.SUBSCRIBE, task=task.id, cursor=cursor)
        headers = {"Last-Event-ID": cursor} if cursor else {}
        params = {"id": task.id}
        await self._read(
            bridge, task.agent, record, "SubscribeToTask", params, headers, is_cut=is_cut
        )

    async def _list(self, bridge: str) -> list[str] | None:
        """Return the tasks of this plan; None if a page was not answered."""
        number = next(self._numbers)
        self._add(Record(now(), Kind.INVOKED, Request.LIST, number, bridge))
        listed: list[str] = []
        for agent in (WITNESS, TALKER):
            page: Json = {"pageSize": 100}
            while True:
                body = await self._ask(bridge, agent, "ListTasks", page)
                if "error" in body:
                    words = json.dumps(body["error"])
                    self._add(Record(now(), Kind.UNKNOWN, number=number, text=words))
                    return None
                listed += [task["id"] for task in body["result"]["tasks"]]
                page["pageToken"] = body["result"].get("nextPageToken", "")
                if not page["pageToken"]:
                    break
        listed = [task for task in listed if task not in self._earlier]
        self._add(Record(now(), Kind.OK, number=number, listed=listed))
        return listed

    async def _call(
        self, bridge: str, agent: str, record: Record, method: str, params: Json
    ) -> Record:
        """Send a unary request and record it with its answer, which has a task."""
        number = next(self._numbers)
        self._add(replace(record, number=number, where=bridge, at=now()))
        body = await self._ask(bridge, agent, method, params)
        if "error" in body:
            answer = _record_error(number, body["error"])
        else:
            result = body["result"]
            answer = _read_task(result.get("task", result), Kind.OK, number)
            self._learn(answer, agent)
        self._add(answer)
        return answer

    async def _ask(self, bridge: str, agent: str, method: str, params: Json) -> Json:
        """Return the JSON-RPC answer, or an error that stands for the lack of it."""
        try:
            async with asyncio.timeout(_UNARY_S):
                url = self._plan.bridges[bridge]
                _, _, body = await send(url, f"/agents/{agent}", method, params, _KEYED)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError) as error:
            return {"error": {"code": 0, "message": repr(error)}}
        return body

    async def _read(
        self,
        bridge: str,
        agent: str,
        record: Record,
        method: str,
        params: Json,
        headers: dict[str, str],
        *,
        is_cut: bool = True,
    ) -> str:
        """Read a stream, recording each event. Some clients cut it. Return the task's id."""
        number = next(self._numbers)
        self._add(replace(record, number=number, where=bridge, at=now()))
        reads = self._rng.randrange(2, 60) if is_cut else 10_000
        url = self._plan.bridges[bridge]
        task = ""
        try:
            async with (
                asyncio.timeout(_SILENCE_S) as silence,
                sse(url, f"/agents/{agent}", method, params, _KEYED | headers) as stream,
            ):
                task = await self._read_events(stream, agent, number, reads, silence)
        except RefusedError as refused:
            self._add(_record_error(number, _find_error(refused)))
            return ""
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError) as error:
            self._add(Record(now(), Kind.UNKNOWN, number=number, text=repr(error)))
            return task
        self._add(Record(now(), Kind.OK, number=number, task=task))
        return task

    async def _read_events(
        self, stream: SseResponse, agent: str, number: int, reads: int, silence: asyncio.Timeout
    ) -> str:
        loop = asyncio.get_running_loop()
        task = ""
        async for event in stream.events():
            if "error" in event.response:
                raise ValueError(event.response["error"])
            record = _read_event(event.id, event.response["result"], number)
            self._add(record)
            self._learn(record, agent)
            task = record.task
            silence.reschedule(loop.time() + _SILENCE_S)
            reads -= 1
            if not reads:
                stream.cut()
                break
        return task

    def _learn(self, record: Record, agent: str) -> None:
        """Keep what a record says of a task."""
        task = self._tasks.get(record.task)
        if task is None:
            task = self._tasks[record.task] = Followed(record.task, agent)
        if record.cursor:
            task.cursors.append(record.cursor)
        if record.state and not task.has_ended:
            task.state = record.state

    def _add(self, record: Record) -> None:
        self._file.add(record)

    def _pick(self) -> str:
        return self._rng.choice(list(self._plan.bridges))

    def _rotate(self) -> Iterable[str]:
        """Yield bridges forever, from a random one."""
        names = list(self._plan.bridges)
        self._rng.shuffle(names)
        return itertools.cycle(names)


def _message(message_id: str, text: str, **ids: str) -> Json:
    """Return a user's message, with the ids that are not empty."""
    fields = {name: value for name, value in ids.items() if value}
    return {"messageId": message_id, "role": "ROLE_USER", "parts": [{"text": text}], **fields}


def _find_error(refused: RefusedError) -> Json:
    """Return the JSON-RPC error in an answer; one without a code if there is none."""
    try:
        return refused.error
    except (ValueError, KeyError, TypeError):
        return {"code": 0, "message": f"{refused.status} {refused.body[:200]!r}"}


def _record_error(number: int, error: Json) -> Record:
    words = json.dumps(error)
    is_refusal = error["code"] in _REFUSALS and _OUTAGE not in words
    return Record(now(), Kind.REFUSED if is_refusal else Kind.UNKNOWN, number=number, text=words)


def _read_task(task: Json, kind: Kind, number: int, cursor: str = "") -> Record:
    return Record(
        now(), kind, number=number, task=task["id"], cursor=cursor,
        state=_state(task["status"]),
        texts={each["artifactId"]: _text(each) for each in task.get("artifacts", ())},
    )  # fmt: skip


def _read_event(cursor: str, result: Json, number: int) -> Record:
    match result:
        case {"task": task}:
            return _read_task(task, Kind.EVENT, number, cursor)
        case {"statusUpdate": update}:
            return Record(
                now(), Kind.EVENT, number=number, task=update["taskId"], cursor=cursor,
                state=_state(update["status"]),
            )  # fmt: skip
        case {"artifactUpdate": update}:
            return Record(
                now(), Kind.EVENT, number=number, task=update["taskId"], cursor=cursor,
                artifact=update["artifact"]["artifactId"], text=_text(update["artifact"]),
                is_append=update.get("append", False),
            )  # fmt: skip
    raise ValueError(result)


def _state(status: Json) -> str:
    state: str = status["state"]
    return state.removeprefix("TASK_STATE_")


def _text(artifact: Json) -> str:
    return "".join(part.get("text", "") for part in artifact.get("parts", ()))


async def _read_order() -> None:
    """Wait for a line on stdin."""
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    await reader.readline()


if __name__ == "__main__":
    fields: dict[str, Any] = json.loads(sys.argv[1])
    asyncio.run(Clients(Plan(**fields)).run(_read_order))
