"""Keeps one MCP server running: start, handshake, tool list, calls, and restart with backoff."""

import asyncio
import importlib
import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from opentelemetry import context as otel_context
from opentelemetry import trace

from trunkline.core import runtime
from trunkline.core.backoff import Backoff
from trunkline.errors import (
    InvalidArgumentError,
    PeerTimeoutError,
    SignInFailedError,
    ToolNotFoundError,
    ToolServerUnavailableError,
)
from trunkline.observe import telemetry
from trunkline.tools.approval_gate import ApprovalGate
from trunkline.tools.config import (
    AdapterSettings,
    ServerConfig,
    expand_all_variables,
    expand_variables,
)
from trunkline.tools.connection import (
    PACED,
    STDERR_SEPARATOR,
    CallNotDeliveredError,
    ServerConnection,
    ServerWarnings,
    raise_if_cancelled,
)
from trunkline.tools.http_endpoint import open_endpoint
from trunkline.tools.result_checker import ResultChecker
from trunkline.tools.server_breaker import ServerBreaker
from trunkline.tools.server_process import build_environment, open_process
from trunkline.tools.sign_in_files import SignInFiles
from trunkline.tools.tool_call import ToolCall
from trunkline.v1 import tool_service_pb2

if TYPE_CHECKING:
    from trunkline.tools.authorization import ServerAuthorization
    from trunkline.tools.session import McpSession
    from trunkline.tools.span_intake_servicer import SpanIntake

logger = logging.getLogger(__name__)

ToolServerState = tool_service_pb2.ToolServerState

# The attempts of a call that is safe to repeat, and of a call that reached no tool.
_ATTEMPTS = 2
_UNDELIVERED_ATTEMPTS = 3
# The number of sessions that follow one task, if the server ends in each of them.
_FOLLOW_ATTEMPTS = 10
_CANCEL_S = 10.0
_LIST_PAUSE_S = 1.0
# After so many listings that each reported a change, the server is warned about.
_LISTINGS_IN_A_ROW = 3


class ToolServer:
    """One configured MCP server, in any state."""

    def __init__(  # noqa: PLR0913  all but the server by name
        self,
        name: str,
        config: ServerConfig,
        settings: AdapterSettings,
        *,
        checker: ResultChecker,
        intake: "SpanIntake | None",
        on_change: Callable[[], None],
        sign_ins: SignInFiles | None = None,
    ) -> None:
        """The server exports its spans to `intake`, if there is one.

        Sign-ins by OAuth are stored in `sign_ins`, or last as long as the process without it.
        """
        self.name = name
        # A server with `idle_s` starts at its first use. It is stopped again after that time
        # without calls, and the next call starts it.
        self._is_idle = config.trunkline.idle_s is not None
        self._start_requested = asyncio.Event()
        self.state: ToolServerState.ValueType = (
            ToolServerState.TOOL_SERVER_STATE_IDLE
            if self._is_idle
            else ToolServerState.TOOL_SERVER_STATE_STARTING
        )
        self.error = ""
        """The current or previous problem in one line, if the state is not READY."""
        self.breaker = ServerBreaker(name, settings.breaker, on_change=on_change)
        self.tools: dict[str, tool_service_pb2.Tool] = {}
        self.listing_problems: tuple[str, ...] = ()
        """The tools and members that the list lacks, and the limit that cut it, each in a line."""
        self.pid: int | None = None
        """The id of its process, while it has one."""
        self._config = config
        self._settings = settings
        self._checker = checker
        own_s = config.trunkline.connect_timeout_s
        self._connect_timeout_s = own_s or settings.connect_timeout_s
        self._warnings = ServerWarnings(name)
        self._logged_problems: tuple[str, ...] = ()
        self._intake = intake
        self._telemetry = {} if intake is None else intake.environment(name)
        self._on_change = on_change
        self._sign_ins = sign_ins
        self._authorization: ServerAuthorization | None = None
        self._signed_in = asyncio.Event()
        self._session: McpSession | None = None
        self._state_changed = asyncio.Event()
        # Set when the tools have changed, and when the server may be down.
        self._list_requested = asyncio.Event()
        self._started_at = 0.0
        self._was_ready = False
        self._has_expired = False
        # Consecutive failures. A long run without failure resets them.
        self._failures = 0
        self._calls = 0
        self._last_use = 0.0

    async def run(self, group: asyncio.TaskGroup) -> None:
        """Keep the server running until cancelled. Its background tasks run in `group`.

        A server with `idle_s` starts when its tools are listed or called for the first time.
        """
        # Background work belongs to no caller's trace.
        otel_context.attach(otel_context.Context())
        settings = self._settings
        backoff = Backoff(first_s=settings.restart_delay_s, limit_s=settings.restart_delay_max_s)
        reported = ""
        while True:
            if self._is_idle:
                reported = ""
                await self._start_requested.wait()
            self._start_requested.clear()
            self._signed_in.clear()
            problem = await self._run_once(group)
            # The end of the server may have replaced the cancellation of this task.
            raise_if_cancelled()
            if not problem:
                continue
            self._is_idle = False
            if self._has_expired:
                logger.info("tool_server.session_expired", extra={"server": self.name})
                self._set_state(ToolServerState.TOOL_SERVER_STATE_STARTING, problem)
                await asyncio.sleep(settings.restart_delay_s)
                continue
            self._mark_down(problem)
            if self._needs_sign_in:
                extra = {"server": self.name, "problem": problem}
                logger.warning("tool_server.needs_sign_in", extra=extra)
                reported = problem
                await self._signed_in.wait()
                self._set_state(ToolServerState.TOOL_SERVER_STATE_STARTING)
                continue
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
            # With an open breaker the state stays FAILED, so that calls fail at once.
            if self.breaker.is_closed:
                self._set_state(ToolServerState.TOOL_SERVER_STATE_STARTING, problem)

    def note_use(self) -> None:
        """Start the server if it was never used."""
        if self.state == ToolServerState.TOOL_SERVER_STATE_IDLE:
            self._start()

    def _start(self) -> None:
        """Start an idle server. The state changes at once, so that callers wait for the start."""
        self._is_idle = False
        self._set_state(ToolServerState.TOOL_SERVER_STATE_STARTING)
        self._start_requested.set()

    async def call(self, call: ToolCall, gate: ApprovalGate) -> tool_service_pb2.ToolResult:
        """Call a tool. Wait for a server that is starting. Cancellation cancels the tool.

        `gate` checks the call by the current declaration of the tool, before the first attempt.
        The shorter of the caller's and the server's own limit applies; for a task, only the
        caller's. The time in which a person answers counts for neither.
        If the server ends during a call of a read-only or idempotent tool, the call is repeated
        once. The next session follows a task.

        Raises:
            ToolNotFoundError: the server has no such tool.
            PermissionDeniedError, UserNotProvenError, ConfigurationError, JournalUnavailableError:
                as `ApprovalGate.check`.
            ToolServerUnavailableError: the server is down, ended during the call, or keeps failing.
            PeerTimeoutError: the call took too long.
            PeerProtocolError: the server's answer is invalid.
        """
        if self._intake is not None:
            self._intake.admit_current_trace(self.name)
        own_s = self._config.trunkline.call_timeout_s or self._settings.call_timeout_s
        attempt = 1
        self._calls += 1
        self.note_use()
        try:
            async with call.start_limit(own_s):
                while True:
                    session = await self._ready()
                    tool = self._find_tool(call.tool)
                    if attempt == 1:
                        await gate.check(tool, call)
                    try:
                        with self.breaker.track_call(session):
                            return await session.call_tool(call)
                    except CallNotDeliveredError as error:
                        if attempt >= _UNDELIVERED_ATTEMPTS:
                            raise ToolServerUnavailableError(self.name, error.problem) from error
                        await self._wait_for_end(session)
                    except ToolServerUnavailableError:
                        if attempt >= _count_attempts(tool, call):
                            raise
                    attempt += 1
                    trace.get_current_span().set_attribute(telemetry.TOOL_ATTEMPT, attempt)
        except TimeoutError as error:
            if call.limit_s == own_s:
                self._check_alive(f"{call.tool} took more than {own_s:g} s")
            peer = f"tool {self.name}/{call.tool}"
            raise PeerTimeoutError(peer, f"it may take {call.limit_s or 0:.3g} s") from error
        finally:
            self._calls -= 1
            self._last_use = asyncio.get_running_loop().time()

    def _find_tool(self, name: str) -> tool_service_pb2.Tool:
        if name not in self.tools:
            raise ToolNotFoundError(self.name, name)
        return self.tools[name]

    async def _wait_for_end(self, session: "McpSession") -> None:
        """Wait until the state shows the end of a session, which would refuse another attempt."""
        while session.has_ended and self._session is session:
            await self._state_changed.wait()

    async def start_sign_in(self, redirect_uri: str, group: asyncio.TaskGroup) -> str:
        """Begin a sign-in by OAuth, which waits in `group`; return the URL that a person opens.

        Raises:
            InvalidArgumentError: the entry has no OAuth that a person signs in to, or the address
                can't be used.
            SignInFailedError: the server does not say where to sign in, or can't be used.
            ToolServerUnavailableError: the entry needs a missing variable.
        """
        authorization = await self._authorize()
        if authorization is None:
            problem = f"the entry of {self.name} has no `trunkline.oauth`"
            raise InvalidArgumentError("SERVER", problem)
        return await authorization.start_sign_in(redirect_uri, group)

    async def complete_sign_in(self, answer: Mapping[str, str]) -> None:
        """End a sign-in by the parameters of the redirect, and start a server that waits for it.

        Raises:
            SignInFailedError: no sign-in has this `state`, or it is refused.
        """
        if self._authorization is None:
            raise SignInFailedError(self.name, "no sign-in waits for this answer; begin again")
        await self._authorization.complete_sign_in(answer)
        self._signed_in.set()
        if self._needs_sign_in_state:
            # At once and not by `run`, so that the caller waits for it.
            self._set_state(ToolServerState.TOOL_SERVER_STATE_STARTING)

    def cancel_sign_in(self) -> None:
        """End a sign-in that waits for a person."""
        if self._authorization is not None:
            self._authorization.cancel_sign_in()

    @property
    def _needs_sign_in(self) -> bool:
        return self._authorization is not None and self._authorization.needs_sign_in

    @property
    def _needs_sign_in_state(self) -> bool:
        return self.state == ToolServerState.TOOL_SERVER_STATE_NEEDS_SIGN_IN

    async def _authorize(self) -> "ServerAuthorization | None":
        """Return the OAuth of the entry, if it has one."""
        oauth = self._config.trunkline.oauth
        if oauth is None or self._authorization is not None:
            return self._authorization
        module = await runtime.load_in_thread(
            importlib.import_module, "trunkline.tools.authorization"
        )
        if self._authorization is None:
            self._authorization = module.ServerAuthorization(
                self.name,
                expand_variables(self.name, self._config.url),
                oauth,
                ca_file=self._config.trunkline.ca_file,
                files=self._sign_ins,
            )
        return self._authorization

    async def cancel_task(self, handle: str) -> None:
        """Tell the server to cancel a task.

        Raises:
            ToolServerUnavailableError: the server is down.
            PeerTimeoutError: it does not answer.
        """
        self.note_use()
        try:
            async with asyncio.timeout(_CANCEL_S):
                await (await self._ready()).cancel_task(handle)
        except TimeoutError as error:
            peer = f"tool server {self.name!r}"
            raise PeerTimeoutError(peer, f"no answer within {_CANCEL_S:g} s") from error

    def _check_alive(self, problem: str) -> None:
        """Record a call that exceeded the server's own limit, and check that it still answers."""
        if self._session is not None:
            self.breaker.on_failure(problem)
        # Listing is quick even where a tool is slow, so `_relist_on_change` detects a dead server.
        self._list_requested.set()

    async def wait_settled(self) -> None:
        """Wait until it is no longer starting."""
        while self.state == ToolServerState.TOOL_SERVER_STATE_STARTING:
            await self._state_changed.wait()

    async def _ready(self) -> "McpSession":
        """Return the session, and wait for it unless the breaker is open."""
        # A call may start an idle server as the probe of an open breaker.
        may_probe = self._session is not None or (self._is_idle and not self.breaker.retry_in_s)
        if not (may_probe or self.breaker.is_closed):
            raise self.breaker.refusal_error()
        if self._is_idle:
            self._start()
        await self.wait_settled()
        if self._session is None:
            raise ToolServerUnavailableError(self.name, self.error)
        return self._session

    async def _run_once(self, group: asyncio.TaskGroup) -> str:
        """Start the server, serve until it ends, and return the problem in one line.

        The result is empty if the server was stopped for idleness.
        """
        self._started_at = asyncio.get_running_loop().time()
        self._was_ready = self._has_expired = False
        try:
            async with self._open(group, await self._authorize()) as connection:
                self.pid = connection.pid
                self._on_change()
                return await self._serve(connection, group)
        except Exception as error:  # noqa: BLE001
            known = _find_unavailable(error)
            if known is not None:
                return known.problem
            # A bulkhead: an error in the client of one server must not affect other servers. The
            # error's text is not shown, because it may quote the server.
            return f"its answers make no sense ({type(error).__name__})"
        finally:
            self.pid = None
            self._on_change()

    def _open(
        self, group: asyncio.TaskGroup, authorization: "ServerAuthorization | None"
    ) -> AbstractAsyncContextManager[ServerConnection]:
        """Return the connection to the server, to be entered."""
        if self._config.url:
            return open_endpoint(
                self.name, self._config, warnings=self._warnings, authorization=authorization
            )
        own = expand_all_variables(self.name, self._config.env)
        return open_process(
            self.name,
            self._config.model_copy(update={"cwd": self._start_folder()}),
            build_environment(self._config, own, self._telemetry),
            group=group,
            grace_s=self._settings.grace_s,
            warnings=self._warnings,
            secrets=own.values(),
        )

    def _start_folder(self) -> Path | None:
        folder = self._settings.folder
        # A process that serves only tools may have no data directory.
        if self._config.cwd or folder is None or not folder.is_dir():
            return self._config.cwd
        return folder

    async def _serve(self, connection: ServerConnection, group: asyncio.TaskGroup) -> str:
        # Loading mcp takes a second, so it is loaded lazily and while the child process starts.
        sessions = await runtime.load_in_thread(importlib.import_module, "trunkline.tools.session")
        self._list_requested.clear()
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(self._connect_timeout_s):
                    opening = sessions.open_session(
                        connection,
                        checker=self._checker,
                        group=group,
                        on_tools_changed=self._list_requested.set,
                    )
                    session: McpSession = await stack.enter_async_context(opening)
                    await self._list(session)
            except TimeoutError:
                problem = f"it did not answer within {self._connect_timeout_s:g} s"
                # At once: callers need not wait until the process has been stopped.
                self._mark_down(problem)
                return problem
            except Exception:
                if not connection.has_ended.is_set():
                    raise
                return await connection.describe_failed_start()
            watchers = [
                group.create_task(session.watch_tools(self._list_requested.set)),
                group.create_task(self._relist_on_change(connection, session)),
                group.create_task(self._probe()),
            ]
            try:
                self._session, self._was_ready = session, True
                self._set_state(ToolServerState.TOOL_SERVER_STATE_READY)
                if not self._calls:
                    self.breaker.on_start()
                if await self._is_unused(connection, session):
                    self._is_idle = True
                    return ""
                self._has_expired = connection.is_expired
                # Set the state before a failed call is repeated. The cause is known later.
                self._mark_down(connection.problem or "it has ended")
            finally:
                self._session = None
                for watcher in watchers:
                    watcher.cancel()
        return await connection.describe_end()

    async def _is_unused(self, connection: ServerConnection, session: "McpSession") -> bool:
        """Return True after `idle_s` without calls, or False when the server has ended."""
        loop = asyncio.get_running_loop()
        idle_s = self._config.trunkline.idle_s
        if idle_s is not None and not self._last_use:
            self._last_use = loop.time()
        while True:
            is_used = self._calls or session.has_open_calls
            unused_until = loop.time() if is_used else self._last_use
            limit = None if idle_s is None else unused_until + idle_s
            try:
                async with asyncio.timeout_at(limit):
                    await connection.has_ended.wait()
                    return False
            except TimeoutError:
                is_used = self._calls or session.has_open_calls
                if idle_s is not None and not is_used and self._last_use == unused_until:
                    return True

    async def _list(self, session: "McpSession") -> None:
        self.tools = await session.list_tools(self._config.trunkline)
        self.listing_problems = session.listing_problems
        for problem in self.listing_problems:
            # A server is listed again and again, and may be started again.
            if problem not in self._logged_problems:
                extra = {"server": self.name, "problem": problem}
                logger.warning("tool_server.listing_incomplete", extra=extra)
        self._logged_problems = self.listing_problems

    async def _relist_on_change(self, connection: ServerConnection, session: "McpSession") -> None:
        """List the tools again when they have changed, or to check that the server answers.

        At most once a second: a server may report a change at each listing.
        """
        loop = asyncio.get_running_loop()
        begun_at, in_a_row = loop.time() - _LIST_PAUSE_S, 0
        while True:
            await self._list_requested.wait()
            delay_s = begun_at + _LIST_PAUSE_S - loop.time()
            in_a_row = in_a_row + 1 if delay_s > 0 else 0
            if in_a_row >= _LISTINGS_IN_A_ROW:
                problem = "it reports changes of its tools at each listing of them"
                self._warnings.warn(PACED, problem)
            await asyncio.sleep(delay_s)
            self._list_requested.clear()
            begun_at = loop.time()
            try:
                async with asyncio.timeout(self._connect_timeout_s):
                    await self._list(session)
            except TimeoutError:
                connection.mark_broken("it answers nothing any more")
            except ToolServerUnavailableError as error:
                if connection.has_ended.is_set():
                    return
                extra = {"server": self.name, "problem": error.problem}
                logger.warning("tool_server.not_listed", extra=extra)
            else:
                self._on_change()

    async def _probe(self) -> None:
        """List the tools of a remote server periodically, which also detects that it is down."""
        while self._config.url:
            await asyncio.sleep(self._settings.probe_s)
            self._list_requested.set()

    def _mark_down(self, problem: str) -> None:
        self._session = None
        self.tools = {}
        self.listing_problems = ()
        if (
            asyncio.get_running_loop().time() - self._started_at
            > self._settings.restart_delay_max_s
        ):
            self._failures = 0
        # A server that was ready usually restarts quickly, so calls wait for it.
        is_back_soon = self._was_ready and (self._failures == 0 or self._has_expired)
        if self._needs_sign_in:
            state = ToolServerState.TOOL_SERVER_STATE_NEEDS_SIGN_IN
        elif is_back_soon:
            state = ToolServerState.TOOL_SERVER_STATE_STARTING
        else:
            state = ToolServerState.TOOL_SERVER_STATE_FAILED
        self._set_state(state, problem)

    def _set_state(self, state: ToolServerState.ValueType, error: str = "") -> None:
        self.state = state
        self.error = error
        self._state_changed.set()
        self._state_changed = asyncio.Event()
        self._on_change()


def _count_attempts(tool: tool_service_pb2.Tool, call: ToolCall) -> int:
    """Return how often a call is made if its server goes down during it."""
    if call.is_open_call:
        # It ends with its session.
        return 1
    if call.is_task:
        # Following a task again does nothing twice.
        return _FOLLOW_ATTEMPTS
    return _ATTEMPTS if tool.read_only or tool.idempotent else 1


def _find_unavailable(error: Exception) -> ToolServerUnavailableError | None:
    """Return our own error from within the error groups of the SDK, if there is one."""
    if isinstance(error, ToolServerUnavailableError):
        return error
    if isinstance(error, ExceptionGroup):
        found = (_find_unavailable(each) for each in error.exceptions)
        return next(filter(None, found), None)
    return None
