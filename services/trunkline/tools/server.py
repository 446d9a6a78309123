"""Keeps one MCP server running: start, handshake, tools, calls, and another start with back-off."""

import asyncio
import importlib
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any

from opentelemetry import context as otel_context
from opentelemetry import trace

from trunkline import runtime, telemetry
from trunkline.client.backoff import Backoff
from trunkline.errors import (
    PeerTimeoutError,
    ToolNotFoundError,
    ToolServerUnavailableError,
)
from trunkline.tools.config import AdapterSettings, ServerConfig, expand_all_variables
from trunkline.tools.connection import (
    STDERR_SEPARATOR,
    CallNotDeliveredError,
    ServerConnection,
    raise_if_cancelled,
)
from trunkline.tools.http_endpoint import open_endpoint
from trunkline.tools.server_breaker import ServerBreaker
from trunkline.tools.server_process import build_environment, open_process
from trunkline.v1 import tool_service_pb2

if TYPE_CHECKING:
    from mcp.shared.dispatcher import ProgressFnT

    from trunkline.tools.session import McpSession

logger = logging.getLogger(__name__)

State = tool_service_pb2.ToolServerState

# A server that may rest does so this soon after its start, if nobody has called it yet.
_FIRST_REST_S = 2.0
# A call is made once more if that can do no harm, and twice if it had come to nobody.
_ATTEMPTS = 2
_UNTAKEN_ATTEMPTS = 3


class ToolServer:
    """One configured MCP server, whatever state it is in."""

    def __init__(
        self,
        name: str,
        config: ServerConfig,
        settings: AdapterSettings,
        *,
        telemetry: Mapping[str, str],
        on_change: Callable[[], None],
    ) -> None:
        self.name = name
        self.state: State.ValueType = State.TOOL_SERVER_STATE_STARTING
        self.error = ""
        """What is wrong, or was before this start, in a line, while the state is not READY."""
        self.breaker = ServerBreaker(name, settings.breaker, on_change=on_change)
        self.tools: dict[str, tool_service_pb2.Tool] = {}
        self.pid: int | None = None
        """Its process, while it has one."""
        self._config = config
        self._settings = settings
        own_s = config.trunkline.connect_timeout_s
        self._connect_timeout_s = own_s or settings.connect_timeout_s
        self._telemetry = telemetry
        self._on_change = on_change
        self._session: McpSession | None = None
        self._moved = asyncio.Event()
        # Set when the tools have changed, and when it is in doubt whether anyone is there.
        self._must_list = asyncio.Event()
        self._began = 0.0
        self._was_ready = False
        self._has_expired = False
        # In a row: a long life wipes them out.
        self._failures = 0
        # A server that nobody calls may rest: it has no process then, and the next call wakes it.
        self._is_resting = False
        self._wanted = asyncio.Event()
        self._calls = 0
        self._last_use = 0.0

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Keep the server running until canceled; what goes with it runs in `group`."""
        # Nobody asked for what follows, so neither spans nor log lines belong to a trace.
        otel_context.attach(otel_context.Context())
        settings = self._settings
        backoff = Backoff(first_s=settings.restart_delay_s, limit_s=settings.restart_delay_max_s)
        reported = ""
        while True:
            self._wanted.clear()
            problem = await self._run_once(group)
            if not problem:
                reported = ""
                await self._wanted.wait()
                continue
            if self._has_expired:
                logger.info("tool_server.session_expired", extra={"server": self.name})
                self._become(State.TOOL_SERVER_STATE_STARTING, problem)
                await asyncio.sleep(settings.restart_delay_s)
                continue
            self._fall(problem)
            if not self._was_ready:
                self.breaker.on_failure(problem)
            cause, _, _ = problem.partition(STDERR_SEPARATOR)
            if self._was_ready or cause != reported:
                extra = {"server": self.name, "problem": problem}
                logger.warning("tool_server.failed", extra=extra)
            reported = cause
            if self._failures == 0:
                backoff.reset()
            self._failures += 1
            await asyncio.sleep(max(backoff.next_s(), self.breaker.retry_in_s))
            if self.breaker.is_closed:
                # Else nobody is to wait for what has kept failing.
                self._become(State.TOOL_SERVER_STATE_STARTING, problem)

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        timeout_s: float | None,
        on_progress: "ProgressFnT",
    ) -> tool_service_pb2.ToolResult:
        """Call a tool; while the server is starting, wait for it. Canceling cancels the tool.

        The earlier of `timeout_s` and the server's own limit holds. When the server ends during a
        call of a tool that changes nothing, or nothing more when repeated, it is called once more.

        Raises:
            ToolNotFoundError: it has no such tool.
            ToolServerUnavailableError: it is down, ended during the call, or kept failing.
            PeerTimeoutError: it took longer than it may.
            PeerProtocolError: it answered nonsense.
        """
        own_s = self._config.trunkline.call_timeout_s or self._settings.call_timeout_s
        limit_s = own_s if timeout_s is None else min(own_s, timeout_s)
        self._calls += 1
        try:
            async with asyncio.timeout(limit_s):
                return await self._call(tool, arguments, on_progress)
        except TimeoutError as error:
            if limit_s == own_s:
                self._doubt(f"{tool} took more than {own_s:g} s")
            peer = f"tool {self.name}/{tool}"
            raise PeerTimeoutError(peer, f"it may take {limit_s:g} s") from error
        finally:
            self._calls -= 1
            self._last_use = asyncio.get_running_loop().time()

    async def _call(
        self, tool: str, arguments: Mapping[str, Any], on_progress: "ProgressFnT"
    ) -> tool_service_pb2.ToolResult:
        attempt = 1
        while True:
            session = await self._ready()
            if tool not in self.tools:
                raise ToolNotFoundError(self.name, tool)
            is_harmless = self.tools[tool].read_only or self.tools[tool].idempotent
            try:
                with self.breaker.track_call(session):
                    return await session.call_tool(tool, arguments, on_progress=on_progress)
            except CallNotDeliveredError as error:
                if attempt >= _UNTAKEN_ATTEMPTS:
                    raise ToolServerUnavailableError(self.name, error.problem) from error
            except ToolServerUnavailableError:
                if attempt >= _ATTEMPTS or not is_harmless:
                    raise
            attempt += 1
            trace.get_current_span().set_attribute(telemetry.TOOL_ATTEMPT, attempt)

    def _doubt(self, problem: str) -> None:
        """Take note of a call that the server did not end in its own time."""
        if self._session is not None:
            self.breaker.on_failure(problem)
        # Slow, or gone for good? A list of tools takes no time: see _follow.
        self._must_list.set()

    async def wait_settled(self) -> None:
        """Wait while it is starting."""
        while self.state == State.TOOL_SERVER_STATE_STARTING:
            await self._moved.wait()

    async def _ready(self) -> "McpSession":
        """Return the session; wait for it, unless the server is one that keeps failing."""
        # One that only rested may be started by a call, as a probe.
        is_at_hand = self._session is not None or (self._is_resting and not self.breaker.retry_in_s)
        if not (is_at_hand or self.breaker.is_closed):
            raise self.breaker.refusal_error()
        if self._is_resting:
            self._is_resting = False
            self._become(State.TOOL_SERVER_STATE_STARTING)
            self._wanted.set()
        await self.wait_settled()
        if self._session is None:
            raise ToolServerUnavailableError(self.name, self.error)
        return self._session

    async def _run_once(self, group: asyncio.TaskGroup) -> str:
        """Start the server and stay with it to its end; return what was wrong with it.

        Nothing was wrong, and nothing is returned, when it was only put to rest.
        """
        self._began = asyncio.get_running_loop().time()
        self._was_ready = self._has_expired = False
        try:
            async with self._open(group) as link:
                self.pid = link.pid
                self._on_change()
                return await self._serve(link, group)
        except ToolServerUnavailableError as error:
            return error.problem
        except Exception as error:  # noqa: BLE001
            # A bulkhead: whatever a server makes its client trip over harms that server alone. Its
            # text is not shown: it may quote what the server said.
            raise_if_cancelled()
            return f"its answers make no sense ({type(error).__name__})"
        finally:
            self.pid = None
            self._on_change()

    def _open(self, group: asyncio.TaskGroup) -> AbstractAsyncContextManager[ServerConnection]:
        """Return the way to the server, to be entered."""
        if self._config.url:
            return open_endpoint(self.name, self._config)
        own = expand_all_variables(self.name, self._config.env)
        return open_process(
            self.name,
            self._config,
            build_environment(own, self._telemetry),
            group=group,
            grace_s=self._settings.grace_s,
            secrets=own.values(),
        )

    async def _serve(self, link: ServerConnection, group: asyncio.TaskGroup) -> str:
        # Takes a second, so not before it is needed, and beside the child's own start.
        sessions = await runtime.load_in_thread(importlib.import_module, "trunkline.tools.session")
        self._must_list.clear()
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self._connect_timeout_s):
                    opening = sessions.open_session(link, on_tools_changed=self._must_list.set)
                    session: McpSession = await stack.enter_async_context(opening)
                    await self._list(session)
            except TimeoutError:
                problem = f"it did not answer within {self._connect_timeout_s:g} s"
                # Whoever waits for it need not wait for its end too.
                self._fall(problem)
                return problem
            except Exception:
                if not link.has_ended.is_set():
                    raise
                return await link.describe_failed_start()
            watchers = [
                group.create_task(session.watch_tools(self._must_list.set)),
                group.create_task(self._follow(link, session)),
                group.create_task(self._probe()),
            ]
            try:
                self._session, self._was_ready = session, True
                self._become(State.TOOL_SERVER_STATE_READY)
                if not self._calls:
                    self.breaker.on_start()
                if await self._is_unused(link):
                    self._is_resting = True
                    return ""
                self._has_expired = link.is_expired
                # Before any call that fails by this can be repeated; why it ended comes later.
                self._fall("it has ended")
            finally:
                self._session = None
                for watcher in watchers:
                    watcher.cancel()
        return await link.describe_end()

    async def _is_unused(self, link: ServerConnection) -> bool:
        """Wait until nobody has called the server for `idle_s`, or it has ended: then say no.

        One that was started for its list of tools alone has done that, and need not wait so long.
        """
        loop = asyncio.get_running_loop()
        idle_s = self._config.trunkline.idle_s
        if idle_s is not None and not self._last_use:
            self._last_use = loop.time() - idle_s + min(idle_s, _FIRST_REST_S)
        while True:
            unused_until = loop.time() if self._calls else self._last_use
            limit = None if idle_s is None else unused_until + idle_s
            try:
                async with asyncio.timeout_at(limit):
                    await link.has_ended.wait()
                    return False
            except TimeoutError:
                if idle_s is not None and not self._calls and self._last_use == unused_until:
                    return True

    async def _list(self, session: "McpSession") -> None:
        self.tools = await session.list_tools(self._config.trunkline)

    async def _follow(self, link: ServerConnection, session: "McpSession") -> None:
        """List the tools anew when they have changed, or to see whether anyone still answers."""
        while True:
            await self._must_list.wait()
            self._must_list.clear()
            try:
                async with asyncio.timeout(self._connect_timeout_s):
                    await self._list(session)
            except TimeoutError:
                link.mark_broken("it answers nothing any more")
            except ToolServerUnavailableError as error:
                if link.has_ended.is_set():
                    return
                extra = {"server": self.name, "problem": error.problem}
                logger.warning("tool_server.not_listed", extra=extra)
            else:
                self._on_change()

    async def _probe(self) -> None:
        """See now and then whether a server elsewhere is there, and still has the same tools."""
        while self._config.url:
            await asyncio.sleep(self._settings.probe_s)
            self._must_list.set()

    def _fall(self, problem: str) -> None:
        self._session = None
        self.tools = {}
        if asyncio.get_running_loop().time() - self._began > self._settings.restart_delay_max_s:
            self._failures = 0
        # Who has worked until now is expected back in a moment, and calls wait for that moment.
        is_back_soon = self._was_ready and (self._failures == 0 or self._has_expired)
        self._become(
            State.TOOL_SERVER_STATE_STARTING if is_back_soon else State.TOOL_SERVER_STATE_FAILED,
            problem,
        )

    def _become(self, state: State.ValueType, error: str = "") -> None:
        self.state = state
        self.error = error
        self._moved.set()
        self._moved = asyncio.Event()
        self._on_change()
