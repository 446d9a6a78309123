"""Reads calls from stdin, a line of JSON each, and answers on stdout; runs on any SDK's Python."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

_LINE_LIMIT = 1 << 20


async def drive(calls: Mapping[str, Callable[..., Any]]) -> None:
    """Serve until stdin ends: a call that is an asynchronous generator gives events first."""
    reader = asyncio.StreamReader(limit=_LINE_LIMIT)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with asyncio.TaskGroup() as group:
        while line := await reader.readline():
            group.create_task(_answer(calls, json.loads(line)))


async def _answer(calls: Mapping[str, Callable[..., Any]], asked: dict[str, Any]) -> None:
    number = asked["id"]
    try:
        found = calls[asked["call"]](**asked["args"])
        if isinstance(found, AsyncIterator):
            async for event in found:
                _say({"id": number, "event": event})
            _say({"id": number, "result": None})
        else:
            _say({"id": number, "result": await found})
    except Exception as error:  # noqa: BLE001  whatever the SDK raises is what the test asks for
        _say({"id": number, "error": {"name": type(error).__name__, "text": str(error)}})


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
