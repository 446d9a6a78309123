"""The client that the public MCP conformance suite tests: our tool adapter.

The suite gives it the URL of a server as its last argument, and may name tool calls in a variable.
Without them, each tool of the server is called once.
"""

import asyncio
import json
import os
import sys
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2

from harness.mcp.scripted_servers import OPEN_GATE
from trunkline.agents.calls.tool_questions import build_continuation, build_pending, read_lines
from trunkline.core.json_values import struct_json, update_struct
from trunkline.errors import ToolServerUnavailableError
from trunkline.tools.adapter import ToolAdapter
from trunkline.tools.config import McpConfig, ServerConfig
from trunkline.tools.server import ToolServerState
from trunkline.tools.tool_call import ToolCall
from trunkline.v1 import tool_service_pb2

LIMIT_S = 150.0
_SERVER = "suite"
_REMEDY = "trunkline tools login"
_ATTEMPTS = 3
_REDIRECT = "http://127.0.0.1:8765/callback"
_CLIENT_DOCUMENT = "https://conformance-test.local/client-metadata.json"
# By the type in the schema of an argument.
_VALUES: Mapping[str, Any] = {
    "string": "text",
    "number": 5,
    "integer": 5,
    "boolean": True,
    "array": [],
    "object": None,
}


async def call_tools(url: str) -> None:
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    entry: dict[str, Any] = {"url": url}
    if os.environ.get("MCP_CONFORMANCE_SCENARIO", "").startswith("auth/"):
        entry["trunkline"] = {"oauth": build_oauth(context)}
    config = McpConfig({_SERVER: ServerConfig.model_validate(entry)})
    async with ToolAdapter(config) as adapter:
        (server,) = adapter.list_servers()
        for _ in range(_ATTEMPTS):
            try:
                await adapter.wait_ready(timeout_s=LIMIT_S)
                break
            except ToolServerUnavailableError:
                # It may name another authorization server after the first sign-in.
                if server.state != ToolServerState.TOOL_SERVER_STATE_NEEDS_SIGN_IN:
                    raise
                await sign_in(adapter)
        schemas = {name: struct_json(tool.input_schema) for name, tool in server.tools.items()}
        calls = [(name, build_arguments(schema, schemas)) for name, schema in schemas.items()]
        if asked := context.get("toolCalls"):
            calls = [(call["name"], call["arguments"]) for call in asked]
        for name, arguments in calls:
            for _ in range(_ATTEMPTS):
                result = await call_tool(adapter, name, arguments)
                # The call may need more rights than the sign-in gave.
                if not any(_REMEDY in part.text for part in result.content):
                    break
                await sign_in(adapter)


def build_oauth(context: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `oauth` member of the entry, with the credentials that the suite gives."""
    oauth = {name: context[name] for name in ("client_id", "client_secret") if name in context}
    if "private_key_pem" in context:
        key = context["private_key_pem"]
        oauth |= {"private_key": key, "algorithm": context["signing_algorithm"]}
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    if "client-credentials" in scenario:
        oauth["grant"] = "client_credentials"
    if scenario == "auth/basic-cimd":
        oauth["client_metadata_url"] = _CLIENT_DOCUMENT
    return oauth


async def sign_in(adapter: ToolAdapter) -> None:
    """Sign in as a person does. The suite's authorization server redirects at once."""
    url = await adapter.start_sign_in(_SERVER, _REDIRECT)
    async with httpx2.AsyncClient() as browser:
        answer = await browser.get(url)
    query = urlsplit(answer.headers["location"]).query
    await adapter.complete_sign_in(_SERVER, dict(parse_qsl(query)))


async def call_tool(
    adapter: ToolAdapter, name: str, arguments: Mapping[str, Any]
) -> tool_service_pb2.ToolResult:
    """Call a tool, and answer what it asks."""

    async def ignore(progress: float, total: float | None, message: str | None) -> None:
        pass

    continuation = tool_service_pb2.ToolContinuation()
    while True:
        request = tool_service_pb2.CallToolRequest(tool=name, continuation=continuation)
        update_struct(request.arguments, arguments)
        call = ToolCall(request, ignore, timeout_s=LIMIT_S)
        result = await adapter.get_server(_SERVER, name).call(call, OPEN_GATE)
        if not result.HasField("question"):
            return result
        question = build_pending(f"{_SERVER}/{name}", result.question)
        continuation = build_continuation(question, read_lines(question, ["ok"]).responses)


def build_arguments(
    schema: Mapping[str, Any], schemas: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a value for each argument of a tool that its schema declares with a plain type.

    An object is the schema of the first tool, which one scenario compares with its own.
    """
    properties = schema.get("properties", {})
    values = {**_VALUES, "object": next(iter(schemas.values()))}
    return {
        name: values[about["type"]]
        for name, about in properties.items()
        if isinstance(about, dict) and about.get("type") in _VALUES
    }


if __name__ == "__main__":
    asyncio.run(call_tools(sys.argv[-1]))
