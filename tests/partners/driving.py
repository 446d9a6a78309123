"""Reads calls from stdin, one JSON line each, and writes answers to stdout; runs with any SDK."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

_LINE_LIMIT = 1 << 20


async def drive(calls: Mapping[str, Callable[..., Any]]) -> None:
    """Serve until stdin ends; an asynchronous generator yields events before its result."""
    reader = asyncio.StreamReader(limit=_LINE_LIMIT)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with asyncio.TaskGroup() as group:
        while line := await reader.readline():
            group.create_task(_answer(calls, json.loads(line)))


async def _answer(calls: Mapping[str, Callable[..., Any]], call: dict[str, Any]) -> None:
    number = call["id"]
    try:
        result = calls[call["call"]](**call["args"])
        if isinstance(result, AsyncIterator):
            async for event in result:
                _write({"id": number, "event": event})
            _write({"id": number, "result": None})
        else:
            _write({"id": number, "result": await result})
    except Exception as error:  # noqa: BLE001  the tests check every error of the SDK
        _write({"id": number, "error": {"name": type(error).__name__, "text": str(error)}})


def _write(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()
