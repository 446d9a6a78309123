"""Converts messages of the mesh to LangChain's, and back."""

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from trunkline.core.json_types import JsonValue
from trunkline.core.json_values import value_json
from trunkline.tasks.content import data_part
from trunkline.tasks.context import TaskContext
from trunkline.v1 import part_pb2

_KINDS: Final = {"image": "image", "audio": "audio", "video": "video"}


async def build_human_message(task: TaskContext[Any]) -> HumanMessage:
    """Convert a turn's message: to text if it is only text, else to standard content blocks.

    Raises:
        InvalidArgumentError: a file is too large to be read at once.
    """
    parts = task.message.parts
    if all(part.HasField("text") for part in parts):
        return HumanMessage(task.text)
    return HumanMessage([await _build_block(task, part) for part in parts])


def get_data(task: TaskContext[Any]) -> JsonValue:
    """Return the value of the first data part of the turn, or else its text."""
    for part in task.message.parts:
        if part.HasField("data"):
            return value_json(part.data)
    return task.text


def build_data_part(value: object) -> part_pb2.Part:
    """Build a data part from a value. Values that JSON can't represent are written as text."""
    return data_part(json.loads(json.dumps(value, default=str)))


def last_answer_text(state: object) -> str:
    """Return the text of the last message in a state, unless the user sent it."""
    messages = (
        state.get("messages") if isinstance(state, Mapping) else getattr(state, "messages", ())
    )
    last = messages[-1] if messages else None
    return str(last.text) if isinstance(last, AIMessage | ToolMessage) else ""


def find_messages(update: object) -> list[BaseMessage]:
    """Return all messages in a node's update of the state."""
    if isinstance(update, BaseMessage):
        return [update]
    if isinstance(update, Mapping):
        update = list(update.values())
    if isinstance(update, list | tuple):
        return [message for item in update for message in find_messages(item)]
    return []


async def _build_block(task: TaskContext[Any], part: part_pb2.Part) -> dict[str, Any]:
    if part.HasField("text"):
        return {"type": "text", "text": part.text}
    if part.HasField("data"):
        return {"type": "text", "text": json.dumps(value_json(part.data), ensure_ascii=False)}
    block: dict[str, Any] = {
        "type": _KINDS.get(part.media_type.partition("/")[0], "file"),
        "mime_type": part.media_type or "application/octet-stream",
    }
    if part.filename:
        block["extras"] = {"filename": part.filename}
    if part.url.startswith(("https:", "http:")):
        return block | {"url": part.url}
    return block | {"base64": base64.b64encode(await task.read(part)).decode()}
