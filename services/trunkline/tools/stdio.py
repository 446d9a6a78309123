"""A server's pipes as a transport of the MCP SDK. Imports mcp, so load it lazily."""

import asyncio
import contextvars
import logging
from types import TracebackType
from typing import Self

import anyio
import mcp_types
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from trunkline.tools.server_process import ServerProcess

logger = logging.getLogger(__name__)

# A tool that prints a stray line to stdout is forgiven; a server that does nothing else is not.
_STRAY_LINES_IN_A_ROW = 100


class StdioTransport:
    """The process as the SDK's transport: newline-delimited JSON-RPC, and no queue between."""

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
        """The process belongs to whoever started it."""


class _End:
    """One end of the pipes, which there is nothing to close on."""

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
    def __aiter__(self) -> "_Reader":
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        strays = 0
        while (line := await self._process.read_line()) is not None:
            try:
                message = mcp_types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValidationError:
                strays += 1
            else:
                return SessionMessage(message)
            # We are inside the client here, whose work has a parent, if one of no trace.
            extra = {"server": self._process.name}
            contextvars.Context().run(logger.debug, "tool_server.stray_line", extra=extra)
            if strays >= _STRAY_LINES_IN_A_ROW:
                self._process.mark_broken("it prints what is no MCP message on stdout")
                break
            if not strays % 10:
                # Lines that are there already are read without giving way to anyone else.
                await asyncio.sleep(0)
        raise StopAsyncIteration

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await anext(self)
        except StopAsyncIteration:
            raise anyio.EndOfStream from None


class _Writer(_End):
    async def send(self, item: SessionMessage, /) -> None:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        try:
            self._process.write_line(line.encode())
            if not _is_farewell(item):
                await self._process.drain()
        except OSError:
            self._process.has_ended.set()
            raise anyio.ClosedResourceError from None


def _is_farewell(item: SessionMessage) -> bool:
    """Whether it takes back a request: its caller has left, and waits for no slow reader."""
    message = item.message
    if isinstance(message, mcp_types.JSONRPCNotification):
        return message.method == "notifications/cancelled"
    return False
