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

from trunkline.calls.tool_questions import build_continuation, build_pending, read_lines
from trunkline.json_values import struct_json
from trunkline.tools.adapter import ToolAdapter
from trunkline.tools.config import McpConfig, ServerConfig
from trunkline.v1 import tool_service_pb2

LIMIT_S = 25.0
_SERVER = "suite"
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
    async with ToolAdapter(McpConfig({_SERVER: ServerConfig(url=url)})) as adapter:
        await adapter.wait_ready(timeout_s=LIMIT_S)
        (server,) = adapter.list_servers()
        schemas = {name: struct_json(tool.input_schema) for name, tool in server.tools.items()}
        calls = [(name, build_arguments(schema, schemas)) for name, schema in schemas.items()]
        context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
        if asked := context.get("toolCalls"):
            calls = [(call["name"], call["arguments"]) for call in asked]
        for name, arguments in calls:
            await call_tool(adapter, name, arguments)


async def call_tool(adapter: ToolAdapter, name: str, arguments: Mapping[str, Any]) -> None:
    """Call a tool, and answer what it asks."""

    async def ignore(progress: float, total: float | None, message: str | None) -> None:
        pass

    continuation = tool_service_pb2.ToolContinuation()
    while True:
        result = await adapter.call(
            _SERVER,
            name,
            arguments,
            timeout_s=LIMIT_S,
            on_progress=ignore,
            continuation=continuation,
        )
        if not result.HasField("question"):
            return
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
