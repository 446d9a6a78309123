"""Supervises the configured MCP servers."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self

from trunkline.errors import (
    InvalidArgumentError,
    PeerTimeoutError,
    ToolNotFoundError,
    ToolServerUnavailableError,
)
from trunkline.tools.config import AdapterSettings, McpConfig
from trunkline.tools.result_checker import ResultChecker
from trunkline.tools.server import ToolServer, ToolServerState
from trunkline.tools.sign_in_files import SignInFiles

if TYPE_CHECKING:
    from trunkline.tools.span_intake_servicer import SpanIntake


_DOWN = (
    ToolServerState.TOOL_SERVER_STATE_FAILED,
    ToolServerState.TOOL_SERVER_STATE_NEEDS_SIGN_IN,
)


class ToolAdapter:
    """The MCP servers of a mesh. Entering starts them in the background; leaving stops them.

    A server with `idle_s` starts when its tools are listed or called for the first time. A missing,
    broken or slow server delays only its own callers.
    """

    def __init__(
        self,
        config: McpConfig,
        *,
        settings: AdapterSettings | None = None,
        intake: "SpanIntake | None" = None,
        sign_ins: SignInFiles | None = None,
    ) -> None:
        """Servers export their spans to `intake`, which must be serving.

        Sign-ins by OAuth are stored in `sign_ins`. Without it, they last as long as the process.
        """
        self.revision = 0
        """Increases with every change of a server's state or tools."""
        self._changed = asyncio.Event()
        settings = settings or AdapterSettings()
        self.result_limit_bytes: int = settings.result_limit_bytes
        """The limit of a result, in bytes."""
        self._checker = ResultChecker()
        self._servers = {
            name: ToolServer(
                name,
                server,
                settings,
                checker=self._checker,
                intake=intake,
                on_change=self._note_change,
                sign_ins=sign_ins,
            )
            for name, server in config.servers.items()
        }
        self._exits = AsyncExitStack()
        self._group: asyncio.TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._exits.push_async_callback(self._checker.close)
        self._group = group = await self._exits.enter_async_context(asyncio.TaskGroup())
        for server in self._servers.values():
            task = group.create_task(server.run(group), name=f"tool server {server.name}")
            self._exits.callback(task.cancel)
            self._exits.callback(server.cancel_sign_in)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._exits.aclose()

    def list_servers(self, names: Sequence[str] = ()) -> list[ToolServer]:
        """Return the servers with these names, or all. Unknown names are ignored."""
        wanted = names or self._servers
        return [self._servers[name] for name in wanted if name in self._servers]

    def note_use(self, names: Sequence[str] = ()) -> None:
        """Start the servers with these names, or all, that nothing has used yet."""
        for server in self.list_servers(names):
            server.note_use()

    def get_server(self, name: str, tool: str) -> ToolServer:
        """Return the server of a tool.

        Raises:
            ToolNotFoundError: the server is unknown.
        """
        if name not in self._servers:
            raise ToolNotFoundError(name, tool)
        return self._servers[name]

    async def start_sign_in(self, server: str, redirect_uri: str) -> str:
        """Begin a sign-in to a server, as `ToolServer.start_sign_in` does.

        Raises:
            InvalidArgumentError: the server is unknown.
        """
        if self._group is None:
            raise RuntimeError("the adapter has not been entered")
        return await self._find(server).start_sign_in(redirect_uri, self._group)

    async def complete_sign_in(self, server: str, answer: Mapping[str, str]) -> None:
        """End a sign-in to a server, as `ToolServer.complete_sign_in` does.

        Raises:
            InvalidArgumentError: the server is unknown.
        """
        await self._find(server).complete_sign_in(answer)

    def _find(self, server: str) -> ToolServer:
        if server not in self._servers:
            problem = f"the mesh has no tool server {server!r}; `trunkline tools` lists them"
            raise InvalidArgumentError("SERVER", problem)
        return self._servers[server]

    async def wait_for_change(self, revision: int) -> int:
        """Wait until `self.revision` differs from `revision`, and return it."""
        while self.revision == revision:
            await self._changed.wait()
        return self.revision

    async def wait_ready(self, names: Sequence[str] = (), *, timeout_s: float) -> None:
        """Start the servers with these names, or all, and wait until they are ready.

        Raises:
            ToolServerUnavailableError: a server failed.
            PeerTimeoutError: a server is still starting after `timeout_s`.
        """
        self.note_use(names)
        for server in self.list_servers(names):
            try:
                async with asyncio.timeout(timeout_s):
                    await server.wait_settled()
            except TimeoutError as error:
                raise PeerTimeoutError(
                    f"tool server {server.name!r}", f"not ready within {timeout_s:g} s"
                ) from error
            if server.state in _DOWN:
                raise ToolServerUnavailableError(server.name, server.error)

    def _note_change(self) -> None:
        self.revision += 1
        self._changed.set()
        self._changed = asyncio.Event()
