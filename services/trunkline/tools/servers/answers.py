"""How our MCP servers answer: text that stands on its own, data beside it, mendable errors."""

from collections.abc import Awaitable
from typing import Any, Protocol

from mcp_types import CallToolResult, TextContent, ToolAnnotations

from trunkline.errors import InvalidArgumentError, TrunklineError

MATCH_KEY = "trunkline/match"
"""In a tool's `_meta`: which questions it answers, and how its arguments are taken from them."""
MENDABLE_KEY = "trunkline/mendable"
"""In an error result's `_meta`: true when another question could be answered."""

LOOKS_ONLY = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)


class Answer(Protocol):
    """What a tool found out."""

    @property
    def text(self) -> str:
        """The answer, for people."""
        ...

    @property
    def data(self) -> dict[str, Any]:
        """The answer by the tool's output schema."""
        ...


async def answered(work: Awaitable[Answer]) -> CallToolResult:
    """Wait for the answer; a deliberate error becomes an error result with its text."""
    try:
        answer = await work
    except TrunklineError as error:
        return refused(error)
    return CallToolResult(
        content=[TextContent(type="text", text=answer.text)], structured_content=answer.data
    )


def refused(error: TrunklineError) -> CallToolResult:
    """The error result; `_meta` says whether the asker can mend it by asking differently."""
    is_mendable = isinstance(error, InvalidArgumentError)
    text = error.problem if isinstance(error, InvalidArgumentError) else str(error)
    return CallToolResult(
        content=[TextContent(type="text", text=text)],
        is_error=True,
        _meta={MENDABLE_KEY: is_mendable},
    )
