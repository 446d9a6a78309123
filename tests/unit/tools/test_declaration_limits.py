"""A server's declarations can't become more work than they look like."""

from typing import Any

import mcp_types
import pytest

from trunkline.tools.conversion import to_tool
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
CHAIN = {f"d{n}": {"allOf": refer(f"d{n + 1}")} for n in range(1000)}
CIRCLES = {f"d{n}": {"anyOf": refer(*(f"d{m}" for m in range(12)))} for n in range(12)}
LIST_ITEMS = [{"allOf": [{"$ref": f"#/anyOf/{n + 1}"}] * 2} for n in range(25)]
# Libraries decode names of references or take them literally.
DECODED = {
    f"a/{n}": {"allOf": [{"$ref": f"#/%24defs/%61~1{number}"} for number in [n + 1] * 2]}
    for n in range(25)
}


@pytest.mark.parametrize(
    ("schema", "problem"),
    [
        ({"$defs": DOUBLING, "$ref": "#/$defs/d0"}, "references"),
        ({"$defs": CIRCLES, "$ref": "#/$defs/d0"}, "references"),
        ({"$defs": CHAIN, "$ref": "#/$defs/d0"}, "references"),
        ({"anyOf": LIST_ITEMS, "$ref": "#/anyOf/0"}, "references"),
        ({"$defs": DECODED, "$ref": "#/$defs/a~10"}, "references"),
        ({"$ref": "#/" + "/" * 5_000}, "references"),
        ({"enum": list(range(30_000))}, "more than 20000 values"),
        ({"maximum": 10**400}, "out of range"),
        ({"description": "x" * 300_000}, "more than 250000 characters"),
        (nest(200), "deeply"),
    ],
    ids=[
        *("doubling", "circles", "chain", "list items", "decoded names", "long reference"),
        *("many values", "huge number", "long text", "depth"),
    ],
)
def test_a_schema_that_grows_is_refused(schema: dict[str, Any], problem: str) -> None:
    assert problem in DeclarationLimits().find_problem(declare_tool(schema))
    output = declare_tool({}, outputSchema=schema)
    assert problem in DeclarationLimits().find_problem(output)


def test_a_chain_of_deep_schemas_exceeds_no_stack() -> None:
    chain: dict[str, Any] = {}
    for number in range(28):
        schema: dict[str, Any] = {"$ref": f"#/$defs/d{number + 1}"}
        for _ in range(20):
            schema = {"a": schema}
        chain[f"d{number}"] = schema
    declared = declare_tool({"$defs": chain, "$ref": "#/$defs/d0"})
    assert "references" in DeclarationLimits().find_problem(declared)


def test_usual_schemas_are_accepted() -> None:
    tree = {"type": "object", "properties": {"children": {"items": {"$ref": "#/$defs/Tree"}}}}
    schema = {"$defs": {"Tree": tree}, "properties": {"root": {"$ref": "#/$defs/Tree"}}}
    assert DeclarationLimits().find_problem(declare_tool(schema, outputSchema=schema)) == ""
    outside = {"$ref": "https://example.org/schema", "properties": {"a": {"$ref": "#/none/x"}}}
    assert DeclarationLimits().find_problem(declare_tool(outside)) == ""
    itself = {"properties": {"a": {"$ref": "#"}, "b": {"$ref": "#/properties/a~0"}}}
    assert DeclarationLimits().find_problem(declare_tool(itself)) == ""


@pytest.mark.parametrize(
    "tool",
    [
        declare_tool({"enum": list(range(15_000))}),
        declare_tool({"enum": list(range(30_000))}),
        declare_tool({}, description="x" * 200_000),
        declare_tool({}, description="x" * 1_000_000),
    ],
    ids=["many values", "too many values", "long text", "text that is too long"],
)
def test_a_server_that_declares_too_much_loses_the_rest(tool: mcp_types.Tool) -> None:
    limits = DeclarationLimits()
    accepted = 0
    while not limits.find_excess():
        limits.find_problem(tool)
        accepted += 1
    assert 0 < accepted < 20


def test_what_is_accepted_fits_into_our_messages() -> None:
    accepted = [depth for depth in range(100) if not find_problem(depth)]
    tool = to_tool("s", declare_tool(nest(accepted[-1])))
    listing = tool_service_pb2.ListToolsResponse(tools=[tool]).SerializeToString()
    assert tool_service_pb2.ListToolsResponse.FromString(listing).tools[0] == tool


def find_problem(depth: int) -> str:
    return DeclarationLimits().find_problem(declare_tool(nest(depth)))
