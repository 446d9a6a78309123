"""Lists with wrong members are cleaned alike in each version of MCP."""

from typing import Any

import mcp_types
import pytest
from mcp_types.methods import validate_server_result
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS

from trunkline.tools.listing import ListFilter

versions = pytest.mark.parametrize("version", KNOWN_PROTOCOL_VERSIONS)


def open_filter(version: str) -> ListFilter:
    cleaner = ListFilter()
    cleaner.version = version
    return cleaner


@versions
def test_a_list_of_tools_is_what_the_sdk_accepts(version: str) -> None:
    schema = {"type": "object"}
    tools = [
        {"name": "a", "inputSchema": {}},
        {"name": "b", "inputSchema": {"type": "string"}},
        {"name": "c", "inputSchema": schema | {"required": "a"}},
        {"name": "d", "inputSchema": schema, "annotations": {"readOnlyHint": "true"}},
    ]
    result = {"tools": tools, "ttlMs": "soon", "_meta": 5, "nextCursor": "next"}
    cleaner = open_filter(version)
    cleaner.clean_tools(result)
    validate_server_result("tools/list", version, result)
    listed = mcp_types.ListToolsResult.model_validate(result, by_name=False)
    assert [tool.name for tool in listed.tools] == ["a", "d"]
    assert listed.next_cursor == "next"
    members = [line.partition(": input should")[0] for line in cleaner.problems.lines()]
    assert members == [
        "b: the tool is left out: inputSchema.type",
        "c: the tool is left out: inputSchema.required",
        "d: a member is left out: annotations.readOnlyHint",
    ]


@versions
def test_the_parts_of_a_result_are_what_the_sdk_accepts(version: str) -> None:
    good = {"type": "text", "text": "good"}
    result = {"content": [good, {"type": "video"}, None], "resultType": "complete"}
    cleaner = open_filter(version)
    assert cleaner.clean_content(result)
    assert not cleaner.clean_content(result)
    validate_server_result("tools/call", version, result)
    content = mcp_types.CallToolResult.model_validate(result, by_name=False).content
    assert [part.type for part in content] == ["text"] * 3


def test_a_result_without_a_type_is_complete() -> None:
    result: dict[str, Any] = {"content": [{"type": "text", "text": "good"}]}
    assert not open_filter("2026-07-28").clean_content(result)
    validate_server_result("tools/call", "2026-07-28", result)
    assert result["resultType"] == "complete"


def test_a_header_of_a_schema_that_cannot_be_sent_leaves_out_its_tool() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array", "x-mcp-header": "A"}}}
    result = {"tools": [{"name": "a", "inputSchema": schema}]}
    cleaner = open_filter("2026-07-28")
    cleaner.clean_tools(result)
    assert result["tools"] == []
    (problem,) = cleaner.problems.lines()
    assert problem.startswith("a: the tool is left out: property 'a': x-mcp-header")
