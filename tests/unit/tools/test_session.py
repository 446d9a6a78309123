"""An MCP session translates everything that a server may answer, whatever it is."""

import asyncio
from types import SimpleNamespace
from typing import Any

import mcp_types
import pytest
from mcp import MCPError
from mcp_types.version import LATEST_MODERN_VERSION

from harness.logs import find_logged
from harness.mcp.scripted_servers import tool_request
from harness.remote.measurements import measuring
from trunkline.core.json_values import read_json
from trunkline.errors import PeerProtocolError
from trunkline.tools.config import ServerOverlay
from trunkline.tools.listing import ListFilter
from trunkline.tools.open_calls import OpenCalls
from trunkline.tools.result_checker import (
    ResultChecker,
    ResultCheckError,
    ResultSchemaError,
    UncheckableSchemaError,
)
from trunkline.tools.session import McpSession
from trunkline.tools.tool_call import ToolCall
from trunkline.v1 import tool_service_pb2


class ScriptedClient:
    """The SDK's client of a server whose answers the test sets."""

    def __init__(self) -> None:
        self.session = self
        self.protocol_version = LATEST_MODERN_VERSION
        self.server_capabilities = mcp_types.ServerCapabilities()
        self.tools: list[mcp_types.Tool] = []
        self.result = mcp_types.CallToolResult(content=[])
        self.error: MCPError | None = None
        """The error that answers each call. If there is none, `result` answers it."""

    async def list_tools(self, *, cursor: str | None) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(tools=self.tools)

    async def call_tool(self, *_: object, **__: object) -> mcp_types.CallToolResult:
        if self.error is not None:
            raise self.error
        return self.result


class ScriptedChecker(ResultChecker):
    """Records what it checks, and raises an error."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__()
        self.error = error
        self.checked: list[object] = []

    async def check(self, server: str, schema: bytes, value: object) -> None:
        self.checked.append(value)
        if self.error is not None:
            raise self.error


@pytest.fixture
def client() -> ScriptedClient:
    return ScriptedClient()


def open_session(client: Any, checker: ResultChecker | None = None) -> McpSession:
    connection: Any = SimpleNamespace(name="s", transport="pipe", has_ended=asyncio.Event())
    return McpSession(
        connection,
        client,
        checker=checker or ScriptedChecker(),
        listing=ListFilter(),
        open_calls=OpenCalls("s", asyncio.TaskGroup()),
    )


def declare_tool(name: str, schema: dict[str, Any], **more: object) -> mcp_types.Tool:
    return mcp_types.Tool.model_validate({"name": name, "inputSchema": schema, **more})


async def ignore(progress: float, total: float | None, message: str | None) -> None:
    pass


async def refuse_task(handle: str) -> None:
    raise AssertionError(handle)


async def call(session: McpSession, tool: str = "t") -> tool_service_pb2.ToolResult:
    return await session.call_tool(ToolCall(tool_request(tool), ignore, refuse_task))


async def test_a_tool_that_messages_cannot_hold_is_refused_alone(client: ScriptedClient) -> None:
    client.tools = [declare_tool("huge", {"maximum": 10**400}), declare_tool("t", {})]
    session = open_session(client)
    assert list(await session.list_tools(ServerOverlay())) == ["t"]
    problem = "huge: the tool is left out: its declaration has a number that is out of range"
    assert session.listing_problems == (problem,)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ({"a": 10**400}, "data that has a number that is out of range."),
        ({"a": [0] * 100_000}, "data that has more than 100000 values."),
        ([[[]] * 40_000, [[]] * 70_000], "data that has more than 100000 values."),
    ],
)
async def test_structured_content_that_is_too_much_is_a_failure(
    client: ScriptedClient, content: object, problem: str
) -> None:
    client.tools = [declare_tool("t", {}, outputSchema={"type": "object"})]
    client.result = mcp_types.CallToolResult(content=[], structured_content=content)
    checker = ScriptedChecker()
    session = open_session(client, checker)
    await session.list_tools(ServerOverlay())
    result = await call(session)
    assert result.is_error
    assert result.content[0].text == f"s/t answered with {problem}"
    assert checker.checked == []


async def test_a_result_of_too_many_parts_is_a_failure(client: ScriptedClient) -> None:
    part = mcp_types.TextContent(type="text", text="")
    client.result = mcp_types.CallToolResult(content=[part] * 10_001)
    result = await call(open_session(client))
    assert result.content[0].text == "s/t answered with more than 10000 parts."


@pytest.mark.parametrize(
    ("error", "checks"),
    [(UncheckableSchemaError("it is too slow"), 1), (ResultCheckError("no process"), 2)],
)
async def test_a_schema_that_checks_nothing_is_not_tried_again(
    client: ScriptedClient,
    error: Exception,
    checks: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    client.tools = [declare_tool("t", {}, outputSchema={"type": "object"})]
    client.result = mcp_types.CallToolResult(content=[], structured_content={"a": 1})
    checker = ScriptedChecker(error)
    session = open_session(client, checker)
    for _ in range(2):
        await session.list_tools(ServerOverlay())
        assert read_json((await call(session)).structured_content) == {"a": 1}
    assert checker.checked == [{"a": 1}] * checks
    assert [vars(record)["problem"] for record in find_logged(caplog)] == [str(error)] * checks


async def test_errors_and_tools_without_a_schema_are_not_checked(client: ScriptedClient) -> None:
    client.tools = [
        declare_tool("t", {}, outputSchema={"type": "object"}),
        declare_tool("plain", {}),
    ]
    client.result = mcp_types.CallToolResult(content=[], is_error=True)
    checker = ScriptedChecker(ResultSchemaError("type"))
    session = open_session(client, checker)
    await session.list_tools(ServerOverlay())
    assert (await call(session)).is_error
    client.result = mcp_types.CallToolResult(content=[], structured_content={"a": 1})
    await call(session, "plain")
    assert checker.checked == []
    client.result = mcp_types.CallToolResult(content=[])
    with pytest.raises(PeerProtocolError):
        await call(session)


async def test_a_limit_that_ends_the_search_for_a_cause_is_measured_as_a_timeout(
    client: ScriptedClient,
) -> None:
    client.error = MCPError(mcp_types.CONNECTION_CLOSED, "closed")
    session = open_session(client)
    connection: Any = session._connection

    async def describe_end(_: str) -> str:
        await asyncio.Event().wait()
        return ""

    connection.has_ended.set()
    connection.describe_end = describe_end
    requested = ToolCall(tool_request("t"), ignore, refuse_task)
    with measuring() as measured:
        with pytest.raises(TimeoutError):
            async with requested.start_limit(0.01):
                await session.call_tool(requested)
        # The limit is no cancel by the caller.
        assert measured.of("mcp.client.operation.duration") == {
            ("tools/call", "t", "s", "pipe", "timeout"): 1
        }
