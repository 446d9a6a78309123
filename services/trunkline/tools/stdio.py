"""A transport of the MCP SDK over a server process's stdio. It imports mcp: load it lazily.

Messages are newline-delimited JSON-RPC. `session_streams` wraps the two ends for the SDK. The SDK's
own `stdio_client` is not used; see docs/decisions/0402.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
import mcp_types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from trunkline.tools.server_process import ServerProcess
from trunkline.tools.stderr_tail import STDERR_LINE_LIMIT_BYTES
from trunkline.tools.undecodable import UndecodableLineError

# A server that prints only lines that are no messages is stopped.
_STRAY_LINES_IN_A_ROW = 100


@asynccontextmanager
async def open_stdio_streams(process: ServerProcess) -> AsyncIterator[tuple["_Reader", "_Writer"]]:
    """Open the two ends of a server's stdio. Leaving the block stops nothing."""
    yield _Reader(process), _Writer(process)


class _Reader:
    """Reads the messages of the server, and an UndecodableLineError for each other line."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process
        self.last_cost = 0.0
        """The cost of the last message, in tokens of the pace of the connection."""
        self._strays = 0

    async def __anext__(self) -> SessionMessage | Exception:
        process = self._process
        line = await process.read_line()
        if line is None:
            raise StopAsyncIteration
        self.last_cost = await process.pace.take(1, len(line))
        try:
            message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError:
            self._strays += 1
            if self._strays >= _STRAY_LINES_IN_A_ROW:
                process.mark_broken("it prints what is no MCP message on stdout")
                raise StopAsyncIteration from None
            return UndecodableLineError(line, shown=process.redact(line[:STDERR_LINE_LIMIT_BYTES]))
        self._strays = 0
        return SessionMessage(message)

    async def aclose(self) -> None:
        """Do nothing: `open_process` stops the process."""


class _Writer:
    """Writes messages to the server, without a queue."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process

    async def send(self, item: SessionMessage, /) -> None:
        is_request = isinstance(item.message, mcp_types.JSONRPCRequest)
        # Only requests wait for a slow server. A server that reads no answers gets no more of them.
        if _is_answer(item) and self._process.is_input_full:
            return
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            self._process.write_line(line.encode())
            if is_request:
                await self._process.drain()
        except OSError:
            self._process.has_ended.set()
            raise anyio.ClosedResourceError from None

    async def aclose(self) -> None:
        """Do nothing: `open_process` stops the process."""


def _is_answer(item: SessionMessage) -> bool:
    return isinstance(item.message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError)
