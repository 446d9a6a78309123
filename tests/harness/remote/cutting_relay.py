"""A relay to a server that cuts each connection after a number of bytes of an answer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class Relay:
    """Passes bytes on, and counts those of the answer. Each request resets the count."""

    budgets: Iterator[int]
    """The limits of the next answers, in bytes."""
    address: str = ""
    target: str = ""
    """The server, as HOST:PORT."""
    cuts: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, _, port = self.target.rpartition(":")
        try:
            far_reader, far_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            # The server is down at the moment.
            writer.close()
            return
        budget = [next(self.budgets)]

        async def ask() -> None:
            while data := await reader.read(65536):
                far_writer.write(data)
                budget[0] = next(self.budgets)

        async def answer() -> None:
            while data := await far_reader.read(65536):
                writer.write(data[: budget[0]])
                budget[0] -= len(data)
                if budget[0] <= 0:
                    await writer.drain()
                    self.cuts += 1
                    return

        try:
            async with asyncio.TaskGroup() as group:
                both = [group.create_task(_quiet(work)) for work in (ask(), answer())]
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
                for task in both:
                    task.cancel()
        finally:
            for end in (writer, far_writer):
                end.close()
                with contextlib.suppress(ConnectionError):
                    await end.wait_closed()


async def _quiet(work: Coroutine[None, None, None]) -> None:
    with contextlib.suppress(ConnectionError):
        await work


@asynccontextmanager
async def open_relay(budgets: Iterator[int]) -> AsyncIterator[Relay]:
    """Serve a relay for the length of a block; set its target afterwards."""
    relay = Relay(budgets)
    async with asyncio.TaskGroup() as group:
        connections: list[asyncio.Task[None]] = []

        def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(group.create_task(relay.serve(reader, writer)))

        server = await asyncio.start_server(connect, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        relay.address = f"{host}:{port}"
        try:
            yield relay
        finally:
            server.close()
            for connection in connections:
                connection.cancel()
