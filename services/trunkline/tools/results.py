"""Results of failed calls, and the size limit of results. Does not load the mcp library."""

import json
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from trunkline.core.json_values import struct_json
from trunkline.errors import TrunklineError
from trunkline.journal.artifacts.references import INLINE_LIMIT_BYTES
from trunkline.v1 import part_pb2, tool_service_pb2

URI_KEY: Final = "trunkline/uri"
"""The key in the metadata of a part for the URI of the MCP resource that it came from."""


def failed_result(text: str) -> tool_service_pb2.ToolResult:
    """Return the result of a failed tool call."""
    return tool_service_pb2.ToolResult(is_error=True, content=[part_pb2.Part(text=text)])


ContentUploader: TypeAlias = Callable[[bytes, part_pb2.Part], Awaitable[part_pb2.Part]]
"""Stores content with the task of a call, and returns a part that refers to the content. The given
part describes the content by media type, filename and metadata."""

# Characters of a stored text that stay in the result.
_EXCERPT_CHARS = 4000


async def limit_result_size(
    result: tool_service_pb2.ToolResult,
    *,
    tool: str,
    limit_bytes: int,
    upload: ContentUploader | None,
) -> tool_service_pb2.ToolResult:
    """Reduce a result to a size limit by uploading content. Without `upload`, a large result fails.

    Large binary parts are always uploaded, since events can't carry them. If the result is still
    too large, structured content is replaced by its text, and the longest texts by an excerpt and a
    reference.
    """
    size_bytes = result.ByteSize()
    if upload is not None:
        try:
            await _upload_bytes(result, upload)
            if result.ByteSize() > limit_bytes:
                await _upload_texts(result, upload, limit_bytes)
        except TrunklineError as error:
            return failed_result(
                f"{tool} answered with {size_bytes} bytes that can't be stored: {error}."
            )
    if result.ByteSize() <= limit_bytes:
        return result
    return failed_result(
        f"{tool} answered with {size_bytes} bytes, and the limit is {limit_bytes}; ask for less."
    )


async def _upload_bytes(result: tool_service_pb2.ToolResult, upload: ContentUploader) -> None:
    for part in result.content:
        if len(part.raw) > INLINE_LIMIT_BYTES:
            part.CopyFrom(await upload(part.raw, part))


async def _upload_texts(
    result: tool_service_pb2.ToolResult, upload: ContentUploader, limit_bytes: int
) -> None:
    if result.structured_content.ByteSize() > limit_bytes // 2:
        if not any(part.text for part in result.content):
            text = json.dumps(struct_json(result.structured_content), ensure_ascii=False)
            result.content.add(text=text, media_type="application/json")
        result.ClearField("structured_content")
    while result.ByteSize() > limit_bytes:
        index, longest = max(enumerate(result.content), key=lambda item: len(item[1].text))
        if len(longest.text) <= _EXCERPT_CHARS:
            return
        reference = await upload(longest.text.encode(), longest)
        excerpt = longest.text[:_EXCERPT_CHARS]
        note = f"\n[{len(longest.text)} characters in all; the whole text is attached.]"
        longest.Clear()
        longest.text = f"{excerpt}{note}"
        longest.media_type = "text/plain"
        result.content.insert(index + 1, reference)
