"""What a question that waits for approvals is gone on with: all that was said since it was asked.

The status that ends the turn carries it: it lies in the task's journal, for as long as the task
waits, and wherever that is taken up. Imports LangChain, so load it lazily.
"""

import json
import logging
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    ToolMessage,
    messages_from_dict,
    messages_to_dict,
)
from langchain_core.messages.tool import ToolCall

from trunkline.tasks.context import TaskContext

logger = logging.getLogger(__name__)

# What an event may hold, with room for the question itself.
_LIMIT_BYTES: Final = 48 * 1024
# What is left of each answer of a tool when all of them are too long.
_CLIPPED_CHARS: Final = (32_768, 8_192, 2_048, 512)


@dataclass(frozen=True, slots=True)
class TurnContinuation:
    """A question whose calls wait for approval."""

    messages: Sequence[BaseMessage]
    """From the question on; the last one of the model's has calls without an answer."""
    approvals: Mapping[str, str]
    """The ids of the approvals by the model's ids of the calls."""
    earlier_count: int
    """How many messages of the task's history were there before the question."""


def encode_continuation(waiting: TurnContinuation) -> bytes:
    """Return what the status carries; answers of tools are clipped when they are too long."""
    messages = list(waiting.messages)
    kept = _dumped(messages, waiting)
    for chars in _CLIPPED_CHARS:
        if len(kept) <= _LIMIT_BYTES:
            break
        messages = [_clipped(message, chars) for message in messages]
        kept = _dumped(messages, waiting)
    return kept


def decode_continuation(task: TaskContext) -> TurnContinuation | None:
    """Return the question that a turn of a task goes on with; None: its message is a new one."""
    kept = task.snapshot.continuation
    if not kept:
        return None
    try:
        found = json.loads(zlib.decompress(kept))
        messages = messages_from_dict(found["messages"])
        return TurnContinuation(messages, found["approvals"], found["history"])
    except (zlib.error, ValueError, KeyError, TypeError) as error:
        # Of another version: the question is thought through anew, and asks for approval anew.
        extra = {"task_id": task.id, "problem": type(error).__name__}
        logger.warning("waiting.not_read", extra=extra)
        return None


def find_open_calls(messages: Sequence[BaseMessage]) -> Sequence[ToolCall]:
    """Return the calls that the model asked for last and that have no answer yet."""
    answered: set[str] = set()
    for message in reversed(messages):
        if isinstance(message, ToolMessage):
            answered.add(message.tool_call_id)
        elif isinstance(message, AIMessage):
            return [call for call in message.tool_calls if (call["id"] or "") not in answered]
        else:
            break
    return ()


def _dumped(messages: Sequence[BaseMessage], waiting: TurnContinuation) -> bytes:
    said = {
        "messages": messages_to_dict(messages),
        "approvals": dict(waiting.approvals),
        "history": waiting.earlier_count,
    }
    return zlib.compress(json.dumps(said, default=str).encode())


def _clipped(message: BaseMessage, chars: int) -> BaseMessage:
    if not isinstance(message, ToolMessage) or len(message.text) <= chars:
        return message
    text = f"{message.text[:chars]}\n[The rest was left out while this waited for approval.]"
    return message.model_copy(update={"content": text, "artifact": None})
