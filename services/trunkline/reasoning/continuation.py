"""The saved state of a question whose tool calls wait for approval, or for an answer to a tool.

The status that ends the turn carries the state. Any host that takes over the task finds it in the
journal. Imports LangChain, so load it lazily.
"""

import json
import logging
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ToolMessage,
    messages_from_dict,
    messages_to_dict,
)
from langchain_core.messages.tool import ToolCall

from trunkline.calls.tool_questions import PendingQuestion
from trunkline.v1 import snapshot_pb2

logger = logging.getLogger(__name__)

# The size limit of an event, minus room for the question text.
_LIMIT_BYTES: Final = 48 * 1024
# Limits for each tool result, tried in this order until the continuation fits.
_CLIPPED_CHARS: Final = (32_768, 8_192, 2_048, 512)


@dataclass(frozen=True, slots=True)
class TurnContinuation:
    """A question whose tool calls wait for approval, or for an answer to a tool."""

    messages: Sequence[BaseMessage]
    """All messages since the question. The model's last reply has calls without a result."""
    approvals: Mapping[str, str]
    """Approval ids, keyed by the model's call ids."""
    earlier_count: int
    """The number of messages in the task's history before the question."""
    questions: Mapping[str, PendingQuestion] = field(default_factory=dict)
    """The questions of tools, keyed by the model's call ids."""


def encode_continuation(continuation: TurnContinuation) -> bytes:
    """Encode a continuation for the status. Tool results are clipped if they don't fit."""
    messages = list(continuation.messages)
    data = _encode(messages, continuation)
    for chars in _CLIPPED_CHARS:
        if len(data) <= _LIMIT_BYTES:
            break
        messages = [_clip(message, chars) for message in messages]
        data = _encode(messages, continuation)
    return data


def decode_continuation(snapshot: snapshot_pb2.TaskSnapshot) -> TurnContinuation | None:
    """Return the question that a turn continues, or None if its message is a new question.

    `snapshot` is the task at the start of the turn.
    """
    data = snapshot.continuation
    if not data:
        return None
    try:
        fields = json.loads(zlib.decompress(data))
        messages = messages_from_dict(fields["messages"])
        questions = fields.get("questions", {})
        return TurnContinuation(messages, fields["approvals"], fields["history"], questions)
    except (zlib.error, ValueError, KeyError, TypeError) as error:
        # Written by another version: the model answers the question again and requests new
        # approvals.
        extra = {"task_id": snapshot.task.id, "problem": type(error).__name__}
        logger.warning("waiting.not_read", extra=extra)
        return None


def find_open_calls(messages: Sequence[BaseMessage]) -> Sequence[ToolCall]:
    """Return the calls in the model's last reply that have no result yet."""
    result_ids: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            result_ids.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            return [call for call in message.tool_calls if (call["id"] or "") not in result_ids]
        else:
            break
    return ()


def _encode(messages: Sequence[BaseMessage], continuation: TurnContinuation) -> bytes:
    fields = {
        "messages": messages_to_dict(messages),
        "approvals": dict(continuation.approvals),
        "history": continuation.earlier_count,
        "questions": dict(continuation.questions),
    }
    return zlib.compress(json.dumps(fields, default=str).encode())


def _clip(message: BaseMessage, chars: int) -> BaseMessage:
    if not isinstance(message, ToolMessage) or len(message.text) <= chars:
        return message
    text = f"{message.text[:chars]}\n[The rest was left out while this waited for approval.]"
    return message.model_copy(update={"content": text, "artifact": None})
