import json
from typing import Any

import mcp_types
import pytest

from trunkline.core.json_values import message_to_dict, struct_json
from trunkline.tools.config import ServerOverlay
from trunkline.tools.conversion import to_result, to_tool
from trunkline.v1 import tool_service_pb2

ADDED = ServerOverlay.model_validate({"tools": {"t": {"match": [{"pattern": "added"}]}}})


def result(*content: mcp_types.ContentBlock, **more: object) -> tool_service_pb2.ToolResult:
    answer = mcp_types.CallToolResult.model_validate({"content": list(content), **more})
    return to_result(answer, tool="s/t")


def declare_tool(**more: object) -> mcp_types.Tool:
    return mcp_types.Tool.model_validate({"name": "t", "inputSchema": {"type": "object"}, **more})


def test_a_tool_without_annotations_counts_as_destructive_and_asks() -> None:
    tool = to_tool("s", declare_tool())
    assert (tool.read_only, tool.destructive, tool.idempotent) == (False, True, False)
    assert tool.needs_approval
    assert (tool.title, tool.description) == ("", "")


def test_a_declaration_of_the_wrong_type_is_replaced_by_the_configuration() -> None:
    tool = to_tool("s", declare_tool(_meta={"trunkline/match": "x"}), ADDED)
    metadata = message_to_dict(tool.metadata)
    assert metadata["trunkline/match"] == [{"pattern": "added"}]


def test_embedded_resources_become_text_or_bytes() -> None:
    text = mcp_types.TextResourceContents(uri="file:///a", text="words", mime_type="text/csv")
    blob = mcp_types.BlobResourceContents(uri="file:///b", blob="aGk=")
    parts = result(
        mcp_types.EmbeddedResource(type="resource", resource=text),
        mcp_types.EmbeddedResource(type="resource", resource=blob),
    ).content
    assert (parts[0].text, parts[0].media_type) == ("words", "text/csv")
    assert [part.filename for part in parts] == ["a", "b"]
    assert (parts[1].raw, parts[1].media_type) == (b"hi", "application/octet-stream")


@pytest.mark.parametrize("value", [[1, 2.0], [], {}, "", False, 0, {"a": None}])
def test_any_structured_result_is_one_and_what_is_no_object_is_wrapped(value: Any) -> None:
    answer = mcp_types.CallToolResult(content=[])
    answer.structured_content = value
    converted = to_result(answer, tool="s/t")
    expected = json.dumps(value if isinstance(value, dict) else {"result": value})
    assert converted.HasField("structured_content")
    assert converted.content[0].text == expected
    assert json.dumps(struct_json(converted.structured_content)) == expected


def test_invalid_base64_content_is_reported_as_a_failure() -> None:
    image = mcp_types.ImageContent(type="image", data="no base64!", mime_type="image/png")
    answer = result(image)
    assert answer.is_error
    assert answer.content[0].text == "s/t answered with content that is not base64."


@pytest.mark.parametrize(
    ("annotations", "overlay", "is_needed"),
    [
        (None, {}, True),
        ({}, {}, True),
        ({"title": "T"}, {}, True),
        ({"idempotentHint": True}, {}, True),
        ({"openWorldHint": False}, {}, True),
        ({"readOnlyHint": True}, {}, False),
        ({"readOnlyHint": True, "destructiveHint": True}, {}, False),
        (None, {"approval": "never"}, False),
        (None, {"tools": {"t": {"approval": False}}}, False),
        ({"readOnlyHint": False}, {}, True),
        ({"destructiveHint": False}, {}, True),
        ({"readOnlyHint": True}, {"approval": "always"}, True),
        ({"readOnlyHint": False}, {"approval": "never"}, False),
        ({"readOnlyHint": False}, {"tools": {"t": {"approval": False}}}, False),
        (None, {"approval": "never", "tools": {"t": {"approval": True}}}, True),
        (None, {"approval": "always", "tools": {"other": {"approval": False}}}, True),
    ],
)
def test_approval_follows_the_configuration_or_else_the_annotations(
    annotations: object, overlay: object, is_needed: bool
) -> None:
    tool = to_tool(
        "s", declare_tool(annotations=annotations), ServerOverlay.model_validate(overlay)
    )
    assert tool.needs_approval == is_needed
