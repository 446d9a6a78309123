"""Converts MCP tool declarations and results to the messages of trunkline.v1."""

import base64
import binascii
import json
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urlsplit

import mcp_types

from trunkline.core.json_values import build_struct, update_struct
from trunkline.tools.config import ServerOverlay, ToolOverlay
from trunkline.tools.json_limits import DEPTH_LIMIT
from trunkline.tools.results import URI_KEY, failed_result
from trunkline.v1 import json_pb2, part_pb2, tool_service_pb2

MATCH_KEY = "trunkline/match"
TAGS_KEY = "trunkline/tags"
MENDABLE_KEY = "trunkline/mendable"
_PARTS_LIMIT = 10_000


def to_tool(
    server: str, tool: mcp_types.Tool, overlay: ServerOverlay | None = None
) -> tool_service_pb2.Tool:
    """Convert a tool's declaration, and add what the configuration says."""
    overlay = overlay or ServerOverlay()
    added = overlay.tools.get(tool.name)
    hints = tool.annotations or mcp_types.ToolAnnotations()
    is_read_only = bool(hints.read_only_hint)
    return tool_service_pb2.Tool(
        server=server,
        name=tool.name,
        title=tool.title or hints.title or "",
        description=tool.description or "",
        input_schema=_struct(tool.input_schema),
        output_schema=_struct(tool.output_schema),
        read_only=is_read_only,
        # MCP's default: a tool without the hint may be destructive.
        destructive=not is_read_only and hints.destructive_hint is not False,
        idempotent=bool(hints.idempotent_hint),
        metadata=_struct(_metadata(dict(tool.meta or {}), added)),
        needs_approval=_needs_approval(hints, overlay, added),
    )


def to_result(result: mcp_types.CallToolResult, *, tool: str) -> tool_service_pb2.ToolResult:
    """Convert a tool's result. Structured content without text is added as JSON text.

    `find_json_problem` accepts the structured content.

    Raises:
        ValueError: a URI is invalid.
    """
    structured = result.structured_content
    if structured is not None and not isinstance(structured, dict):
        structured = {"result": structured}
    if len(result.content) > _PARTS_LIMIT:
        return failed_result(f"{tool} answered with more than {_PARTS_LIMIT} parts.")
    try:
        parts = [_part(block) for block in result.content]
    except binascii.Error:
        return failed_result(f"{tool} answered with content that is not base64.")
    if structured is not None and not parts:
        text = json.dumps(structured, ensure_ascii=False)
        parts = [part_pb2.Part(text=text, media_type="application/json")]
    return tool_service_pb2.ToolResult(
        is_error=bool(result.is_error),
        is_mendable=bool((result.meta or {}).get(MENDABLE_KEY)),
        content=parts,
        structured_content=_struct(structured),
    )


def _needs_approval(
    hints: mcp_types.ToolAnnotations, overlay: ServerOverlay, added: ToolOverlay | None
) -> bool:
    if added is not None and added.approval is not None:
        return added.approval
    if overlay.approval != "declared":
        return overlay.approval == "always"
    # MCP's default: a tool without the hint is not read-only.
    return not hints.read_only_hint


def _metadata(declared: dict[str, Any], overlay: ToolOverlay | None) -> dict[str, Any]:
    if overlay is None:
        return declared
    for key, added in ((MATCH_KEY, overlay.dump_match()), (TAGS_KEY, overlay.tags)):
        own = declared.get(key)
        merged = [*added, *(own if isinstance(own, list) else [])]
        if merged:
            declared[key] = merged
    return declared


def _part(block: mcp_types.ContentBlock) -> part_pb2.Part:
    match block:
        case mcp_types.TextContent():
            return part_pb2.Part(text=block.text, media_type="text/plain")
        case mcp_types.ImageContent() | mcp_types.AudioContent():
            raw = base64.b64decode(block.data, validate=True)
            return part_pb2.Part(raw=raw, media_type=block.mime_type)
        case mcp_types.ResourceLink():
            media_type = block.mime_type or ""
            return part_pb2.Part(url=block.uri, media_type=media_type, filename=block.name)
        case mcp_types.EmbeddedResource():
            return _resource(block.resource)


def _resource(
    resource: mcp_types.TextResourceContents | mcp_types.BlobResourceContents,
) -> part_pb2.Part:
    """Convert a resource to a part with a filename, which distinguishes it from a tool's text."""
    name = PurePosixPath(urlsplit(resource.uri).path or resource.uri).name or "resource"
    part = part_pb2.Part(filename=name)
    update_struct(part.metadata, {URI_KEY: resource.uri})
    if isinstance(resource, mcp_types.TextResourceContents):
        part.text, part.media_type = resource.text, resource.mime_type or "text/plain"
    else:
        part.raw = base64.b64decode(resource.blob, validate=True)
        part.media_type = resource.mime_type or "application/octet-stream"
    return part


def _struct(value: dict[str, Any] | None) -> json_pb2.Struct | None:
    return None if value is None else build_struct(value, max_depth=DEPTH_LIMIT)
