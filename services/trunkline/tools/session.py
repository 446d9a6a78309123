"""An MCP session with one running server, by the SDK's client. It imports mcp: load it lazily."""

import asyncio
import json
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
    suppress,
)
from importlib.metadata import version
from typing import Any

import mcp_types
from mcp import Client, MCPError
from mcp.client import ClientRequestContext
from mcp.client.subscriptions import SubscriptionLost
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from opentelemetry import trace
from pydantic import ValidationError

from trunkline.core.backoff import Backoff
from trunkline.core.runtime import run_with_late_cancel
from trunkline.errors import PeerProtocolError, ToolServerUnavailableError
from trunkline.observe import telemetry
from trunkline.observe.metrics.instruments import MCP_OPERATION_DURATION, MCP_SESSION_DURATION
from trunkline.observe.metrics.kinds import Measurement
from trunkline.tools.config import ServerOverlay
from trunkline.tools.connection import (
    OPEN_CALL_PREFIX,
    CallNotDeliveredError,
    RequestOutcome,
    ServerConnection,
    request_outcome,
)
from trunkline.tools.conversion import to_result, to_tool
from trunkline.tools.declaration_limits import DeclarationLimits
from trunkline.tools.http_endpoint import HttpEndpoint
from trunkline.tools.json_limits import RESULT_LIMIT_VALUES, find_json_problem
from trunkline.tools.listing import NAME_CHARS, ListFilter, ListingProblems
from trunkline.tools.mcp_tasks import TASKS_EXTENSION, McpTask, TaskCreated, TasksExtension
from trunkline.tools.open_calls import OpenCalls
from trunkline.tools.questions import dump_inputs, parse_responses, to_question, unpack_state
from trunkline.tools.result_checker import (
    ResultChecker,
    ResultCheckError,
    ResultSchemaError,
    UncheckableSchemaError,
)
from trunkline.tools.results import failed_result
from trunkline.tools.server_process import ServerProcess
from trunkline.tools.session_streams import open_session_streams
from trunkline.tools.stdio import open_stdio_streams
from trunkline.tools.streamable_http import open_http_streams
from trunkline.tools.tool_call import ToolCall
from trunkline.tools.undecodable import UndecodableAnswer
from trunkline.v1 import tool_service_pb2

logger = logging.getLogger(__name__)

# The number of resources that are read for one result. Other resources remain links.
_RESOURCES = 8
# The first pause before a call is repeated for a server that sheds load.
_FIRST_STATE_PAUSE_S = 0.05
# A canceled call waits this long for the id of a task that it may have created.
_LATE_ANSWER_S = 2.0
# Pauses before a lost subscription to list changes is opened again.
_FIRST_PAUSE_S = 1.0
_LONGEST_PAUSE_S = 60.0


class McpSession:
    """An open MCP session. Any number of tasks may call tools concurrently."""

    def __init__(
        self,
        connection: ServerConnection,
        client: Client,
        *,
        checker: ResultChecker,
        listing: ListFilter,
        open_calls: OpenCalls,
    ) -> None:
        self.listing_problems: tuple[str, ...] = ()
        """The tools and members that the last listing left out, and its limit, each in a line."""
        self._listing = listing
        self._name = connection.name
        self._connection = connection
        self._client = client
        self._checker = checker
        self._open_calls = open_calls
        # The schemas by tool, each as a line of JSON.
        self._output_schemas: dict[str, bytes] = {}
        # The schemas by which no result can be checked.
        self._uncheckable: set[bytes] = set()
        client.session.validate_tool_result = _accept_any_result  # type: ignore[method-assign]

    @property
    def has_ended(self) -> bool:
        """The server will send nothing more in this session."""
        return self._connection.has_ended.is_set()

    @property
    def has_open_calls(self) -> bool:
        """A call is open in the session, and may wait for a person's answer."""
        return bool(self._open_calls)

    async def list_tools(self, overlay: ServerOverlay) -> dict[str, tool_service_pb2.Tool]:
        """Return the server's current tools by name, without tools whose declaration is too large.

        Raises:
            ToolServerUnavailableError: the server did not list them.
        """
        tools: dict[str, tool_service_pb2.Tool] = {}
        schemas: dict[str, bytes] = {}
        try:
            for tool in await self._list_declarations():
                tools[tool.name] = to_tool(self._name, tool, overlay)
                if tool.output_schema is not None:
                    schemas[tool.name] = json.dumps(tool.output_schema).encode()
        except (MCPError, ValidationError) as error:
            is_lost = isinstance(error, MCPError) and await self._has_lost_session(error)
            problem = "it does not list its tools"
            if self._connection.has_ended.is_set() and not is_lost:
                problem = await self._connection.describe_failed_start()
            elif isinstance(error, MCPError):
                problem = f"{problem}: {_error_text(error)}"
            raise ToolServerUnavailableError(self._name, problem) from error
        self._output_schemas = schemas
        self._uncheckable.intersection_update(schemas.values())
        return tools

    async def _list_declarations(self) -> list[mcp_types.Tool]:
        """Return the declarations within the limits, and record the problems with the others."""
        accepted: dict[str, mcp_types.Tool] = {}
        cursor: str | None = None
        limits, problems = DeclarationLimits(), ListingProblems()
        self._listing.problems = problems
        cut = ""
        while not cut:
            with _unrecorded():
                page = await self._client.list_tools(cursor=cursor)
            for tool in page.tools:
                cut = limits.find_excess()
                if cut:
                    break
                problem = limits.find_problem(tool)
                if not problem and tool.name in accepted:
                    problem = "its name is declared twice"
                if problem:
                    problems.refuse(tool.name, problem)
                else:
                    accepted[tool.name] = tool
            cursor = page.next_cursor
            if cursor is None:
                break
            if not cut:
                cut = limits.find_cut(cursor)
        problems.cut = cut or problems.cut
        self.listing_problems = problems.lines()
        return list(accepted.values())

    async def call_tool(self, call: ToolCall) -> tool_service_pb2.ToolResult:
        """Call a tool, or continue a call. Cancellation tells the server to cancel the tool.

        If the server makes the call a task, `on_task` of the call gets the task's id, and the task
        is followed. If a server of an older protocol version asks during the call, `on_task` gets a
        handle of the call, which stays open. Cancellation then ends only the following.

        Links in the result to the server's own resources are read at once, since only this session
        can read them.

        Raises:
            ToolServerUnavailableError: the server ended during the call.
            CallNotDeliveredError: the server ended before the call, or dropped the session.
            PeerProtocolError: the answer is not a valid result, or violates the output schema.
        """
        if call.is_open_call:
            return await self._open_calls.resume(call)
        if self._client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return await self._call(call)
        return await self._open_calls.start(call, self._call)

    async def _call(self, call: ToolCall) -> tool_service_pb2.ToolResult:
        """Call a tool, measure the time, and check the result; raises as `call_tool`."""
        outcome = RequestOutcome()
        token = request_outcome.set(outcome)
        try:
            with (
                MCP_OPERATION_DURATION.measure(
                    "tools/call", call.tool, self._name, self._connection.transport
                ) as measurement,
                _noting_limit(call, measurement),
            ):
                try:
                    result = await self._send(call)
                    if isinstance(result, mcp_types.CallToolResult):
                        result = await self._accept_result(call.tool, result)
                except MCPError as error:
                    result = await self._explain_error(error, outcome)
                    measurement.error_type = str(error.error.code)
                # A ValidationError is a ValueError, too.
                except (ResultSchemaError, ValueError, RuntimeError) as error:
                    raise self._refuse_result(call.tool, error) from error
                if result.is_error and not result.HasField("question"):
                    measurement.error_type = measurement.error_type or telemetry.TOOL_ERROR
                return result
        finally:
            request_outcome.reset(token)

    async def _accept_result(
        self, tool: str, result: mcp_types.CallToolResult
    ) -> tool_service_pb2.ToolResult:
        """Check a result, and convert it with the resources that it links to.

        Raises:
            ResultSchemaError: it violates the output schema.
            ValueError, RuntimeError: it is not a valid result.
        """
        content = result.structured_content
        if problem := find_json_problem(content, limit_values=RESULT_LIMIT_VALUES):
            return failed_result(f"{self._name}/{tool} answered with data that {problem}.")
        await self._check_result(tool, result)
        result.content = await self._with_resources(result.content)
        return to_result(result, tool=f"{self._name}/{tool}")

    async def _explain_error(
        self, error: MCPError, outcome: RequestOutcome
    ) -> tool_service_pb2.ToolResult:
        """Return the result of a call that a server refused.

        Raises:
            CallNotDeliveredError, ToolServerUnavailableError: the error is an error of the
                connection, not of the tool.
        """
        if outcome.is_undelivered or await self._has_lost_session(error):
            raise CallNotDeliveredError(await self._connection.describe_end()) from error
        is_down = outcome.is_server_down or not outcome.is_answered
        if is_down and not outcome.is_unacceptable:
            problem = outcome.problem
            if self._connection.has_ended.is_set():
                problem = await self._connection.describe_end("during the call")
            problem = problem or "the connection broke off during the call"
            raise ToolServerUnavailableError(self._name, problem) from error
        return failed_result(outcome.problem or _error_text(error))

    def _refuse_result(self, tool: str, error: Exception) -> PeerProtocolError:
        """Log that the result of a tool is refused, and return the error."""
        if isinstance(error, ResultSchemaError):
            problem = f"does not fit its outputSchema: {error}"
        else:
            problem = f"is not one of MCP: {_describe_invalid(error)}"
        extra = {"server": self._name, "tool": tool[:NAME_CHARS], "problem": problem}
        logger.warning("tool_server.result_refused", extra=extra)
        return PeerProtocolError(f"tool server {self._name!r}", f"the result of {tool} {problem}")

    async def _has_lost_session(self, error: MCPError) -> bool:
        """Return whether a request was refused because its server dropped the session.

        The specification says HTTP 404, but servers also answer with an error of JSON-RPC. A server
        that lost the session refuses a ping with the same error. The session then expires.
        """
        endpoint = self._connection
        if not isinstance(endpoint, HttpEndpoint) or endpoint.has_ended.is_set():
            return False
        is_modern = self._client.protocol_version in MODERN_PROTOCOL_VERSIONS
        if is_modern or error.error.code == mcp_types.METHOD_NOT_FOUND:
            return False
        token = request_outcome.set(None)
        try:
            with _unrecorded():
                await self._client.session.send_ping()
        except MCPError as refusal:
            if (refusal.error.code, refusal.error.message) == (
                error.error.code,
                error.error.message,
            ):
                endpoint.expire()
                return True
        except ValidationError:
            pass
        finally:
            request_outcome.reset(token)
        return False

    async def _send(self, call: ToolCall) -> mcp_types.CallToolResult | tool_service_pb2.ToolResult:
        """Return the result of a call, or the question that the tool asks instead."""
        session, continuation = self._client.session, call.continuation
        responses = parse_responses(continuation.responses)
        if continuation.task_handle:
            task = McpTask(session, continuation.task_handle)
            if responses:
                await task.answer(dump_inputs(responses))
            return await self._follow(call, task)
        state = unpack_state(continuation)
        backoff = Backoff(first_s=_FIRST_STATE_PAUSE_S, limit_s=_LONGEST_PAUSE_S)
        while True:
            request = session.call_tool(
                call.tool,
                dict(call.arguments),
                progress_callback=call.on_progress,
                input_responses=responses,
                request_state=state,
                allow_input_required=True,
                allow_claimed=True,
            )
            if TASKS_EXTENSION in (self._client.server_capabilities.extensions or {}):
                # The server may have created a task when the call is canceled.
                request = run_with_late_cancel(request, self._cancel_created)
            match result := await request:
                case TaskCreated():
                    await call.follow(result.task_id)
                    task = McpTask(session, result.task_id, poll_ms=result.poll_interval_ms)
                    return await self._follow(call, task)
                case mcp_types.InputRequiredResult() if not result.input_requests:
                    # The server sheds load. The limit of the call ends the loop.
                    responses, state = None, result.request_state
                    await asyncio.sleep(backoff.next_s())
                case mcp_types.InputRequiredResult():
                    return to_question(
                        f"{self._name}/{call.tool}",
                        result.input_requests or {},
                        request_state=result.request_state,
                    )
                case mcp_types.CallToolResult():
                    return result
                case _:
                    raise ValueError(f"a {type(result).__name__} is no result of a tool")

    async def _follow(
        self, call: ToolCall, task: McpTask
    ) -> mcp_types.CallToolResult | tool_service_pb2.ToolResult:
        async def on_status(text: str) -> None:
            await call.on_progress(0, None, text)

        end = await task.follow(on_status=on_status)
        if isinstance(end, mcp_types.CallToolResult):
            return end
        return to_question(f"{self._name}/{call.tool}", end, task_handle=task.id)

    async def _cancel_created(
        self, answering: "asyncio.Task[mcp_types.Result | Exception]"
    ) -> None:
        """Cancel the task that a canceled call may have created.

        Only the answer to the call has the id of the task, so this waits a moment for the answer.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_LATE_ANSWER_S):
                match await answering:
                    case TaskCreated(task_id=task_id):
                        await self.cancel_task(task_id)

    async def cancel_task(self, handle: str) -> None:
        """Tell the server to cancel a task or an open call. A refusal is logged."""
        if handle.startswith(OPEN_CALL_PREFIX):
            self._open_calls.cancel(handle)
            return
        try:
            await McpTask(self._client.session, handle).cancel()
        except (MCPError, ValidationError) as error:
            extra = {"server": self._name, "problem": type(error).__name__}
            logger.info("tool_server.task_not_canceled", extra=extra)

    async def _check_result(self, tool: str, result: mcp_types.CallToolResult) -> None:
        """Check a result against its tool's schema; warn once if that can't be done.

        Raises:
            ResultSchemaError: the result does not fit.
        """
        schema = self._output_schemas.get(tool)
        if schema is None or schema in self._uncheckable or result.is_error:
            return
        if (
            result.structured_content is None
            and "structured_content" not in result.model_fields_set
        ):
            raise ResultSchemaError("its structuredContent is missing")
        try:
            await self._checker.check(self._name, schema, result.structured_content)
        except ResultCheckError as error:
            # The call has taken effect. Its result is worth more than the check.
            if isinstance(error, UncheckableSchemaError):
                self._uncheckable.add(schema)
            extra = {"server": self._name, "tool": tool[:NAME_CHARS], "problem": str(error)}
            logger.warning("tool_server.result_not_checked", extra=extra)

    async def _with_resources(
        self, blocks: Sequence[mcp_types.ContentBlock]
    ) -> list[mcp_types.ContentBlock]:
        """Replace links to the server's own resources by the resources.

        A caller has no session with the server, and this session may have ended when the caller
        would follow the link.
        """
        resolved: list[mcp_types.ContentBlock] = []
        remaining = _RESOURCES
        for block in blocks:
            if (
                isinstance(block, mcp_types.ResourceLink)
                and not _is_public(block.uri)
                and remaining
            ):
                remaining -= 1
                resolved += await self._resource(block)
            else:
                resolved.append(block)
        return resolved

    async def _resource(self, link: mcp_types.ResourceLink) -> list[mcp_types.ContentBlock]:
        try:
            read = await self._client.read_resource(link.uri)
        except (MCPError, ValidationError):
            # The link alone still tells the caller that the resource exists.
            return [link]
        return [
            mcp_types.EmbeddedResource(type="resource", resource=content)
            for content in read.contents
        ]

    async def watch_tools(self, on_tools_changed: Callable[[], None]) -> None:
        """Subscribe to tool list changes, if the protocol version needs a subscription."""
        capability = self._client.server_capabilities.tools
        if capability is None or not capability.list_changed:
            return
        if self._client.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return
        backoff = Backoff(first_s=_FIRST_PAUSE_S, limit_s=_LONGEST_PAUSE_S)
        while not self._connection.has_ended.is_set():
            try:
                with _unrecorded():
                    async with self._client.listen(tools_list_changed=True) as changes:
                        # Changes before the subscription were not reported.
                        on_tools_changed()
                        async for _ in changes:
                            backoff.reset()
                            on_tools_changed()
            except SubscriptionLost:
                pass
            except (MCPError, TimeoutError) as error:
                extra = {"server": self._name, "error": type(error).__name__}
                logger.info("tool_server.not_watched", extra=extra)
                return
            await asyncio.sleep(backoff.next_s())


@asynccontextmanager
async def open_session(
    connection: ServerConnection,
    *,
    checker: ResultChecker,
    group: asyncio.TaskGroup,
    on_tools_changed: Callable[[], None],
) -> AsyncIterator[McpSession]:
    """Open a session by MCP's handshake. The caller sets a deadline. Calls may run in `group`.

    Raises:
        ToolServerUnavailableError: the server refuses, but its connection is still open.
    """

    async def handle(message: object) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            on_tools_changed()

    listing = ListFilter()
    open_calls = OpenCalls(connection.name, group)

    async def ask(
        context: ClientRequestContext, params: mcp_types.ElicitRequestParams
    ) -> mcp_types.ElicitResult | mcp_types.ErrorData:
        return await open_calls.ask(params)

    client = Client(
        open_session_streams(_transport(connection), connection, listing),
        cache=None,
        message_handler=handle,
        elicitation_callback=ask,
        extensions=[TasksExtension()],
        client_info=mcp_types.Implementation(name="trunkline", version=version("trunkline")),
    )
    async with AsyncExitStack() as stack:
        stack.callback(open_calls.close)
        try:
            with _unrecorded():
                await stack.enter_async_context(client)
        except Exception as error:
            # An error of the SDK, possibly in a group. The transport's error is more precise.
            if connection.has_ended.is_set() or not connection.transport_error:
                raise
            raise ToolServerUnavailableError(connection.name, connection.transport_error) from error
        listing.version = client.protocol_version
        session = McpSession(
            connection, client, checker=checker, listing=listing, open_calls=open_calls
        )
        with MCP_SESSION_DURATION.measure(connection.name, connection.transport):
            yield session


def _error_text(error: MCPError) -> str:
    """Return the text of the server's error, or the description of an undecodable answer."""
    data = error.error.data
    return str(data) if isinstance(data, UndecodableAnswer) else error.error.message


@contextmanager
def _noting_limit(call: ToolCall, measurement: Measurement) -> Iterator[None]:
    """Note that a limit ended a block. It cancels as a caller does, but the server is slow."""
    try:
        yield
    except asyncio.CancelledError:
        if call.limit.expired():
            measurement.error_type = telemetry.TIMEOUT
        raise


async def _accept_any_result(name: str, result: mcp_types.CallToolResult) -> None:
    """Do nothing. The SDK's own check would block the event loop, for any time."""


def _describe_invalid(error: Exception) -> str:
    """Return the invalid member of a result, and the reason, without its value."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    member = ".".join(str(step) for step in first["loc"])
    return f"{member}: {first['msg']}" if member else first["msg"]


def _is_public(uri: str) -> bool:
    return uri.startswith(("http://", "https://"))


def _transport(connection: ServerConnection) -> AbstractAsyncContextManager[Any]:
    if isinstance(connection, ServerProcess):
        return open_stdio_streams(connection)
    if isinstance(connection, HttpEndpoint):
        return open_http_streams(connection)
    raise TypeError(connection)


def _unrecorded() -> AbstractContextManager[None]:
    """Record no spans inside the block, here or in the server: the work belongs to no caller."""
    parent = trace.SpanContext(
        trace_id=random.getrandbits(128) | 1,
        span_id=random.getrandbits(64) | 1,
        is_remote=False,
        trace_flags=trace.TraceFlags(trace.TraceFlags.DEFAULT),
    )
    return telemetry.use_context(trace.set_span_in_context(trace.NonRecordingSpan(parent)))
