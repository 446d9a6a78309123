"""Results that no tool gave: why there is none. Loads nothing of MCP, so that hosts needn't."""

import json
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from google.protobuf import json_format

from trunkline.artifacts.references import INLINE_LIMIT_BYTES
from trunkline.errors import TrunklineError
from trunkline.v1 import part_pb2, tool_service_pb2


def failed_result(text: str) -> tool_service_pb2.ToolResult:
    """Return the result of a tool that failed for a reason of its own."""
    return tool_service_pb2.ToolResult(is_error=True, content=[part_pb2.Part(text=text)])


ContentUploader: TypeAlias = Callable[[bytes, part_pb2.Part], Awaitable[part_pb2.Part]]
"""Keeps content with the task of a call; returns the part that refers to it. The part it is given
says what the content is."""

# So much of a text that goes by reference is shown to whoever asked.
_SHOWN_CHARS = 4000


async def limit_result_size(
    result: tool_service_pb2.ToolResult,
    *,
    tool: str,
    limit_bytes: int,
    upload: ContentUploader | None,
) -> tool_service_pb2.ToolResult:
    """Return a result that takes no more than a limit; without `keep`, a larger one is a failure.

    Bytes that must not ride in events go by reference however much the rest is; then what is
    structured gives way to the text that says the same, and the longest texts to their beginnings.
    """
    size_bytes = result.ByteSize()
    if upload is not None:
        try:
            await _bytes_away(result, upload)
            if result.ByteSize() > limit_bytes:
                await _texts_away(result, upload, limit_bytes)
        except TrunklineError as error:
            return failed_result(
                f"{tool} answered with {size_bytes} bytes that can't be kept: {error}."
            )
    if result.ByteSize() <= limit_bytes:
        return result
    return failed_result(
        f"{tool} answered with {size_bytes} bytes, and at most {limit_bytes} are taken; "
        "ask for less."
    )


async def _bytes_away(result: tool_service_pb2.ToolResult, keep: ContentUploader) -> None:
    for part in result.content:
        if len(part.raw) > INLINE_LIMIT_BYTES:
            part.CopyFrom(await keep(part.raw, part))


async def _texts_away(
    result: tool_service_pb2.ToolResult, keep: ContentUploader, limit_bytes: int
) -> None:
    if result.structured_content.ByteSize() > limit_bytes // 2:
        if not any(part.text for part in result.content):
            text = json.dumps(json_format.MessageToDict(result.structured_content))
            result.content.add(text=text, media_type="application/json")
        result.ClearField("structured_content")
    while result.ByteSize() > limit_bytes:
        at, longest = max(enumerate(result.content), key=lambda one: len(one[1].text))
        if len(longest.text) <= _SHOWN_CHARS:
            return
        kept = await keep(longest.text.encode(), longest)
        shown = longest.text[:_SHOWN_CHARS]
        note = f"\n[{len(longest.text)} characters in all; the whole text is attached.]"
        longest.Clear()
        longest.text = f"{shown}{note}"
        longest.media_type = "text/plain"
        result.content.insert(at + 1, kept)
