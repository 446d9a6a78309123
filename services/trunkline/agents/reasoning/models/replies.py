"""Reads and checks model replies: finish reason, tool calls, tokens."""

import json
import math
from typing import TYPE_CHECKING, Any, Final

from trunkline.agents.reasoning.models.model_errors import ModelCallError
from trunkline.core.json_values import build_struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

# Providers use different keys and values for the finish reason.
_REASONS: Final = ("finish_reason", "stop_reason", "done_reason")
_USUAL: Final = frozenset({"stop", "end_turn", "STOP", "tool_calls", "tool_use"})
# LangChain's values of `model_provider` in a reply.
_PROVIDERS: Final = {
    "openai": "openai",
    "anthropic": "anthropic",
    "google": "google_genai",
    "ollama": "ollama",
}
_LENGTHS: Final = frozenset({"length", "max_tokens", "MAX_TOKENS", "model_context_window_exceeded"})
_FILTERS: Final = frozenset(
    {
        *("content_filter", "refusal"),
        *("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
    }
)


def finish_reason(reply: "AIMessage") -> str:
    """Return the finish reason in the words of the provider, or "" if it gave no reason."""
    reasons = (reply.response_metadata.get(name) for name in _REASONS)
    return next((str(reason) for reason in reasons if reason), "")


def join_chunks(chunks: "Sequence[AIMessageChunk]") -> "AIMessage":
    """Join the pieces of a reply. A call whose arguments are incomplete becomes an invalid call."""
    from langchain_core.messages import AIMessage
    from langchain_core.messages.tool import invalid_tool_call, tool_call

    if not chunks:
        return AIMessage("")
    # Joined in one step: pairwise addition would copy the text each time.
    joined = chunks[0] + list(chunks[1:])
    calls, invalid = list(joined.tool_calls), list(joined.invalid_tool_calls)
    if len(joined.tool_call_chunks) == len(calls) + len(invalid):
        # LangChain completes truncated JSON, so a call with half its arguments would look valid.
        calls, invalid = [], []
        for chunk in joined.tool_call_chunks:
            arguments = _parse_arguments(chunk["args"])
            if arguments is None or not chunk["name"]:
                invalid_call = invalid_tool_call(
                    name=chunk["name"], args=chunk["args"], id=chunk["id"], error="no JSON object"
                )
                invalid.append(invalid_call)
            else:
                calls.append(tool_call(name=chunk["name"], args=arguments, id=chunk["id"]))
    return AIMessage(
        content=joined.content,
        additional_kwargs=joined.additional_kwargs,
        response_metadata=joined.response_metadata,
        usage_metadata=joined.usage_metadata,
        id=joined.id,
        tool_calls=calls,
        invalid_tool_calls=invalid,
    )


def _parse_arguments(text: str | None) -> dict[str, Any] | None:
    try:
        arguments = json.loads(text or "{}")
        if not isinstance(arguments, dict):
            return None
        # Arguments that no message can hold can't be sent to the tool.
        build_struct(arguments)
        return arguments
    except (ValueError, RecursionError):
        return None


def is_truncated(reply: "AIMessage") -> bool:
    """Return whether a reply reached its length limit."""
    return finish_reason(reply) in _LENGTHS


def is_filtered(reply: "AIMessage") -> bool:
    """Return whether the provider's content filter ended the reply."""
    return finish_reason(reply) in _FILTERS


def truncation_note(reply: "AIMessage") -> str:
    """Return a note to append to a truncated answer, or "" for a complete answer."""
    if is_truncated(reply):
        return "\n\n(The answer was cut off at its length limit.)"
    if is_filtered(reply):
        return "\n\n(The provider's content filter cut off the answer.)"
    return ""


def count_tokens(messages: "Sequence[BaseMessage]") -> int:
    """Return the number of tokens, input and output, used for the replies among messages."""
    usages = (getattr(message, "usage_metadata", None) for message in messages)
    return sum(usage["total_tokens"] for usage in usages if usage)


# A usual estimate for English text.
_CHARS_PER_TOKEN: Final = 4


def measure_tokens(
    messages: "Sequence[BaseMessage]", chunks: "Sequence[AIMessage]"
) -> tuple[int, int]:
    """Return the tokens that a reply, whole or in pieces, read and wrote.

    A provider reports them at the end of a reply, if at all. Without a report they are estimated
    from the text.
    """
    usages = [chunk.usage_metadata for chunk in chunks if chunk.usage_metadata]
    read = sum(usage["input_tokens"] for usage in usages)
    written = sum(usage["output_tokens"] for usage in usages)
    return (
        read or sum(len(message.text) for message in messages) // _CHARS_PER_TOKEN,
        written or math.ceil(sum(map(_count_chars, chunks)) / _CHARS_PER_TOKEN),
    )


def _count_chars(reply: "AIMessage") -> int:
    # A piece of a reply has pieces of its tool calls, a whole reply the calls.
    calls = getattr(reply, "tool_call_chunks", reply.tool_calls)
    return len(reply.text) + sum(len(str(call["args"] or "")) for call in calls)


def check_reply(reply: "AIMessage", *, max_tokens: int | None) -> None:
    """Reject a reply that another round with the model would not improve.

    Raises:
        ModelCallError: it is incomplete, or the provider filtered it.
    """
    reason = finish_reason(reply)
    if not reason:
        raise ModelCallError("cut", "its reply was cut off; try again later", is_transient=True)
    if is_truncated(reply) and (reply.tool_calls or reply.invalid_tool_calls):
        raise ModelCallError("length", f"{max_tokens} tokens are too few; raise max_tokens")
    if is_filtered(reply) and (reply.tool_calls or reply.invalid_tool_calls):
        raise ModelCallError("refused", f"its reply was filtered ({reason}); rephrase the question")
    is_empty = not (reply.text.strip() or reply.tool_calls or reply.invalid_tool_calls)
    if is_empty and reason not in _USUAL:
        raise ModelCallError(
            "refused", f"it answered with nothing ({reason}); rephrase the question"
        )


def adapt_messages(messages: "Sequence[BaseMessage]", model: str) -> "list[BaseMessage]":
    """Return messages for `model`, without the fields that other providers added.

    A provider's own messages keep their fields, because it may need them. Calls with invalid JSON
    get empty arguments, because many servers parse them.
    """
    from langchain_core.messages import AIMessage
    from langchain_core.messages.tool import tool_call

    own = _PROVIDERS.get(model.partition(":")[0], "")
    adapted: list[BaseMessage] = []
    for message in messages:
        if isinstance(message, AIMessage) and message.invalid_tool_calls:
            empty_calls = [
                tool_call(name=call["name"] or "", args={}, id=call["id"])
                for call in message.invalid_tool_calls
            ]
            calls = [*message.tool_calls, *empty_calls]
            message = message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": []})
        provider = message.response_metadata.get("model_provider", own)
        if isinstance(message, AIMessage) and provider != own:
            message = AIMessage(message.text, tool_calls=message.tool_calls)
        adapted.append(message)
    return adapted
