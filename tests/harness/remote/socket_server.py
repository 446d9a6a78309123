"""A socket that is served for the length of a block, and whose connections end with it."""

import asyncio
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

    At the end connections are cut: since Python 3.12 a server waits for open ones, and before, they
    would stay open.
    """
    connections: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        try:
            await serve(reader, writer)
        except asyncio.CancelledError:
            # The block has ended. asyncio would log the cancellation as an error, and unsent data
            # would keep a closed connection open.
            writer.transport.abort()
        finally:
            connections.discard(task)
            writer.close()

    server = await asyncio.start_server(connected, host, port, ssl=context, limit=1 << 20)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in connections:
            task.cancel()
        if connections:
            await asyncio.wait(connections)
