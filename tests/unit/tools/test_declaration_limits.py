"""A server's declarations can't become more work than they look like."""

import time
from typing import Any

import mcp_types
import pytest

from trunkline.tools.conversion import to_result, to_tool
from trunkline.tools.declaration_limits import DeclarationLimits
from trunkline.v1 import tool_service_pb2


def declare_tool(schema: dict[str, Any], **more: object) -> mcp_types.Tool:
    return mcp_types.Tool.model_validate({"name": "t", "inputSchema": schema, **more})


def nest(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"a": schema}
    return schema


def refer(*names: str) -> list[dict[str, str]]:
    return [{"$ref": f"#/$defs/{name}"} for name in names]


DOUBLING = {f"d{n}": {"allOf": refer(f"d{n + 1}", f"d{n + 1}")} for n in range(25)}
CHAIN = {f"d{n}": {"allOf": refer(f"d{n + 1}")} for n in range(5000)}
CIRCLES = {f"d{n}": {"anyOf": refer(*(f"d{m}" for m in range(12)))} for n in range(12)}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"$defs": DOUBLING, "$ref": "#/$defs/d0"}, "references"),
        ({"$defs": CIRCLES, "$ref": "#/$defs/d0"}, "references"),
        ({"$defs": CHAIN, "$ref": "#/$defs/d0"}, "references"),
        ({"enum": list(range(30_000))}, "references"),
        (nest(200), "deeply"),
    ],
    ids=["doubling", "circles", "chain", "many values", "depth"],
)
def test_a_schema_that_grows_is_refused(schema: dict[str, Any], problem: str) -> None:
    started = time.process_time()
    assert problem in DeclarationLimits().find_problem(declare_tool(schema))
    assert time.process_time() - started < 5


def test_usual_schemas_are_accepted() -> None:
    tree = {"type": "object", "properties": {"children": {"items": {"$ref": "#/$defs/Tree"}}}}
    schema = {"$defs": {"Tree": tree}, "properties": {"root": {"$ref": "#/$defs/Tree"}}}
    assert DeclarationLimits().find_problem(declare_tool(schema, outputSchema=schema)) == ""
    outside = {"$ref": "https://example.org/schema", "properties": {"a": {"$ref": "#/none/x"}}}
    assert DeclarationLimits().find_problem(declare_tool(outside)) == ""


def test_a_server_that_declares_too_much_loses_the_rest() -> None:
    limits = DeclarationLimits()
    large = declare_tool({"enum": list(range(15_000))})
    problems = [limits.find_problem(large) for _ in range(20)]
    assert problems[0] == ""
    assert problems[-1] == "the server declares too much"


def test_what_is_accepted_fits_into_our_messages() -> None:
    accepted = [depth for depth in range(100) if not find_problem(depth)]
    tool = to_tool("s", declare_tool(nest(accepted[-1])))
    listing = tool_service_pb2.ListToolsResponse(tools=[tool]).SerializeToString()
    assert tool_service_pb2.ListToolsResponse.FromString(listing).tools[0] == tool


def find_problem(depth: int) -> str:
    return DeclarationLimits().find_problem(declare_tool(nest(depth)))


def test_a_deep_result_is_a_failure() -> None:
    answer = mcp_types.CallToolResult(content=[], structured_content=nest(40))
    assert to_result(answer, tool="s/t").content[0].text == (
        "s/t answered with data that is nested too deeply."
    )
