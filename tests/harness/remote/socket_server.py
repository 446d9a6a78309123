"""A socket that is served for the length of a block, and whose connections end with it."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

Serve: TypeAlias = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def listening(
    serve: Serve, *, host: str = "127.0.0.1", port: int = 0, context: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Serve each connection by `serve`, and yield the port.

    At the end connections are canceled, because since Python 3.12 a server waits for open ones.
    """
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            # asyncio would log the cancellation at the end as an error.
            with contextlib.suppress(asyncio.CancelledError):
                await serve(reader, writer)
        finally:
            connections.discard(task)

    server = await asyncio.start_server(connected, host, port, ssl=context, limit=1 << 20)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in connections:
            task.cancel()
        if connections:
            await asyncio.wait(connections)
