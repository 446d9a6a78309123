"""Agents as tools: their definitions, and how arguments and answers are converted."""

import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Self
from urllib.parse import quote

import mcp_types as types
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from trunkline.a2a_client.answers import ClientAnswer
from trunkline.core.json_values import read_text, value_json
from trunkline.core.task_states import TaskState
from trunkline.errors import InvalidArgumentError
from trunkline.v1 import agent_card_pb2, part_pb2

# The metadata key of the URI of an MCP resource, as the tool adapter sets it.
_URI_KEY: Final = "trunkline/uri"
_MAX_EXAMPLES: Final = 5
_WAITING: Final = (TaskState.INPUT_REQUIRED, TaskState.AUTH_REQUIRED)
_FAILED: Final = (TaskState.FAILED, TaskState.REJECTED, TaskState.CANCELED)


class AgentArguments(BaseModel):
    """The arguments of each tool."""

    model_config = ConfigDict(extra="forbid")

    message: str = Field(description="The request, in plain words.")
    task_id: str = Field("", description="Answers the question of this task.")
    context_id: str = Field("", description="Continues this conversation with a new task.")

    @classmethod
    def parse(cls, arguments: Mapping[str, Any] | None) -> Self:
        """Parse the arguments of a call.

        Raises:
            InvalidArgumentError: they don't fit the schema.
        """
        try:
            return cls.model_validate(arguments or {})
        except ValidationError as error:
            (first, *_) = error.errors(include_url=False, include_input=False)
            where = ".".join(map(str, first["loc"])) or "arguments"
            raise InvalidArgumentError(where, first["msg"]) from None


class StructuredAnswer(BaseModel):
    """The structured content of each result."""

    text: str = Field(description="The answer, or the question of the agent.")
    state: str = Field(description="The state of the task, as in A2A: completed, failed, …")
    outcome: str = Field("", description="complete, partial or failed; empty before the end.")
    task_id: str = ""
    context_id: str = ""


# The same for all agents. Building a schema takes as long as a call.
_INPUT_SCHEMA: Final = AgentArguments.model_json_schema()
_OUTPUT_SCHEMA: Final = StructuredAnswer.model_json_schema()


def find_input_schema(_name: str) -> Mapping[str, Any]:
    """Return the schema of the arguments of a tool."""
    return _INPUT_SCHEMA


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """An agent that is offered as a tool."""

    name: str
    card: agent_card_pb2.AgentCard

    def to_tool(self) -> types.Tool:
        """Return the tool's definition."""
        lines = [self.card.description]
        examples = [example for skill in self.card.skills for example in skill.examples]
        if examples:
            lines += ["Examples:", *(f"- {example}" for example in examples[:_MAX_EXAMPLES])]
        return types.Tool(
            name=self.name,
            title=self.name,
            description="\n".join(lines),
            input_schema=_INPUT_SCHEMA,
            output_schema=_OUTPUT_SCHEMA,
        )


def is_waiting(answer: ClientAnswer) -> bool:
    """Return True if the task waits for its caller."""
    return answer.state in _WAITING


def to_tool_result(answer: ClientAnswer) -> types.CallToolResult:
    """Return the result of a call from the answer of the agent's turn."""
    text = answer.text
    if is_waiting(answer):
        text = (
            f"{text}\nThe agent waits for an answer. Call this tool again with task_id "
            f"{answer.task_id!r} and the answer as the message."
        )
    content: list[types.ContentBlock] = [types.TextContent(text=text)]
    content += [block for part in answer.parts if (block := _to_block(part)) is not None]
    outcome = answer.outcome
    structured = StructuredAnswer(
        text=answer.text,
        state=answer.state.value,
        outcome="" if outcome is None else outcome.value,
        task_id=answer.task_id,
        context_id=answer.context_id,
    )
    return types.CallToolResult(
        content=content,
        structured_content=structured.model_dump(),
        is_error=answer.state in _FAILED,
    )


def _to_block(part: part_pb2.Part) -> types.ContentBlock | None:
    """Convert a part that is not text: JSON becomes text, a file a link or its content."""
    if part.HasField("data"):
        return types.TextContent(text=json.dumps(value_json(part.data), ensure_ascii=False))
    if part.HasField("url"):
        return types.ResourceLink(
            name=part.filename or "file", uri=part.url, mime_type=part.media_type or None
        )
    return _embed(part) if part.HasField("raw") else None


def _embed(part: part_pb2.Part) -> types.ContentBlock:
    """Return the content of a file: images and sounds as such, which clients show.

    A resource of an MCP server stays a resource with its URI.
    """
    media_type = part.media_type
    data = base64.b64encode(part.raw).decode()
    uri = read_text(part.metadata, _URI_KEY)
    if not uri and media_type.startswith("image/"):
        return types.ImageContent(data=data, mime_type=media_type)
    if not uri and media_type.startswith("audio/"):
        return types.AudioContent(data=data, mime_type=media_type)
    uri = uri or f"attachment:{quote(part.filename or 'file')}"
    contents: types.TextResourceContents | types.BlobResourceContents
    contents = types.BlobResourceContents(uri=uri, mime_type=media_type or None, blob=data)
    if media_type.startswith("text/"):
        with suppress(UnicodeDecodeError):
            contents = types.TextResourceContents(
                uri=uri, mime_type=media_type, text=part.raw.decode()
            )
    return types.EmbeddedResource(resource=contents)
