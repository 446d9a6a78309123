"""A transport of the MCP SDK over a server process's stdio. It imports mcp: load it lazily."""

from types import TracebackType
from typing import Self

import anyio
import mcp_types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from trunkline.tools.server_process import ServerProcess
from trunkline.tools.stderr_tail import STDERR_LINE_LIMIT_BYTES
from trunkline.tools.undecodable import UndecodableLineError

# A server that prints only lines that are no messages is stopped.
_STRAY_LINES_IN_A_ROW = 100


class StdioTransport:
    """A server process as the SDK's transport: newline-delimited JSON-RPC, without a queue.

    The SDK's own `stdio_client` is not used; see docs/decisions/0402.
    """

    def __init__(self, process: ServerProcess) -> None:
        self._process = process

    async def __aenter__(self) -> tuple["_Reader", "_Writer"]:
        return _Reader(self._process), _Writer(self._process)

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Do nothing: `open_process` stops the process."""


class _End:
    """A stream of the transport. Closing it does nothing."""

    def __init__(self, process: ServerProcess) -> None:
        self._process = process

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class _Reader(_End):
    """Yields the messages of the server, and an UndecodableLineError for each other line."""

    def __init__(self, process: ServerProcess) -> None:
        super().__init__(process)
        self.last_cost = 0.0
        """The cost of the last message, in tokens of the pace of the connection."""
        self._strays = 0

    def __aiter__(self) -> "_Reader":
        return self

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

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise anyio.EndOfStream from None


class _Writer(_End):
    async def send(self, item: SessionMessage, /) -> None:
        is_request = isinstance(item.message, mcp_types.JSONRPCRequest)
        # Only requests wait for a slow server. One that reads no answers gets no more of them.
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


def _is_answer(item: SessionMessage) -> bool:
    return isinstance(item.message, mcp_types.JSONRPCResponse | mcp_types.JSONRPCError)
