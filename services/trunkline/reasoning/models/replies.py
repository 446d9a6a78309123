"""What a model's reply says besides its text."""

import json
from typing import TYPE_CHECKING, Any, Final

from trunkline.reasoning.models.model_errors import ModelCallError
from trunkline.tasks.content import to_struct

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

# Each provider has a name of its own for why a reply ended, and for its end by length.
_REASONS: Final = ("finish_reason", "stop_reason", "done_reason")
_USUAL: Final = frozenset({"stop", "end_turn", "STOP", "tool_calls", "tool_use"})
# What LangChain says in `model_provider` of a reply.
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
    """Return why a reply ended, in its provider's words; empty: it doesn't say."""
    said = (reply.response_metadata.get(name) for name in _REASONS)
    return next((str(reason) for reason in said if reason), "")


def join_chunks(chunks: "Sequence[AIMessageChunk]") -> "AIMessage":
    """Return the reply that pieces are of; a call with half its arguments is no valid one."""
    from langchain_core.messages import AIMessage
    from langchain_core.messages.tool import invalid_tool_call, tool_call

    if not chunks:
        return AIMessage("")
    # All at once: one after the other would copy the text each time.
    whole = chunks[0] + list(chunks[1:])
    calls, invalid = list(whole.tool_calls), list(whole.invalid_tool_calls)
    if len(whole.tool_call_chunks) == len(calls) + len(invalid):
        # LangChain completes what breaks off, so that half an answer would be called.
        calls, invalid = [], []
        for one in whole.tool_call_chunks:
            given = _arguments(one["args"])
            if given is None or not one["name"]:
                made = invalid_tool_call(
                    name=one["name"], args=one["args"], id=one["id"], error="no JSON object"
                )
                invalid.append(made)
            else:
                calls.append(tool_call(name=one["name"], args=given, id=one["id"]))
    return AIMessage(
        content=whole.content,
        additional_kwargs=whole.additional_kwargs,
        response_metadata=whole.response_metadata,
        usage_metadata=whole.usage_metadata,
        id=whole.id,
        tool_calls=calls,
        invalid_tool_calls=invalid,
    )


def _arguments(text: str | None) -> dict[str, Any] | None:
    try:
        given = json.loads(text or "{}")
        # What no message can carry to the tool is no arguments either.
        return given if isinstance(given, dict) and to_struct(given) is not None else None
    except (ValueError, RecursionError):
        return None


def is_truncated(reply: "AIMessage") -> bool:
    """Whether a reply ended because it may not be longer."""
    return finish_reason(reply) in _LENGTHS


def is_filtered(reply: "AIMessage") -> bool:
    """Whether a reply ended because its provider lets no more of it pass."""
    return finish_reason(reply) in _FILTERS


def truncation_note(reply: "AIMessage") -> str:
    """Return what readers are told behind an answer whose end is missing; empty: it is whole."""
    if is_truncated(reply):
        return "\n\n(The answer ends here: it may not be longer.)"
    if is_filtered(reply):
        return "\n\n(The answer ends here: the model's provider holds back the rest.)"
    return ""


def count_tokens(messages: "Sequence[BaseMessage]") -> int:
    """Return how many tokens were read and written for the replies among messages."""
    usages = (getattr(message, "usage_metadata", None) for message in messages)
    return sum(usage["total_tokens"] for usage in usages if usage)


def check_reply(reply: "AIMessage", *, max_tokens: int | None) -> None:
    """Refuse a provider's reply that asking it on would not mend.

    Raises:
        ModelTrouble: it is not whole, or its provider holds it back.
    """
    reason = finish_reason(reply)
    if not reason:
        raise ModelCallError("cut", "its reply broke off; try again later", is_transient=True)
    if is_truncated(reply) and (reply.tool_calls or reply.invalid_tool_calls):
        raise ModelCallError("length", f"{max_tokens} tokens are too few; raise max_tokens")
    if is_filtered(reply) and (reply.tool_calls or reply.invalid_tool_calls):
        raise ModelCallError("refused", f"its reply was held back ({reason}); ask otherwise")
    is_empty = not (reply.text.strip() or reply.tool_calls or reply.invalid_tool_calls)
    if is_empty and reason not in _USUAL:
        raise ModelCallError("refused", f"it answered with nothing ({reason}); ask otherwise")


def adapt_messages(messages: "Sequence[BaseMessage]", model: str) -> "list[BaseMessage]":
    """Return messages as `model` is given them: what another provider added to them is left out.

    A provider's own are left as they are: it may want back what it put into them. Only calls whose
    arguments are no JSON have none: many servers read what they are given.
    """
    from langchain_core.messages import AIMessage
    from langchain_core.messages.tool import tool_call

    own = _PROVIDERS.get(model.partition(":")[0], "")
    shown: list[BaseMessage] = []
    for message in messages:
        if isinstance(message, AIMessage) and message.invalid_tool_calls:
            bare = [
                tool_call(name=call["name"] or "", args={}, id=call["id"])
                for call in message.invalid_tool_calls
            ]
            calls = [*message.tool_calls, *bare]
            message = message.model_copy(update={"tool_calls": calls, "invalid_tool_calls": []})
        by = message.response_metadata.get("model_provider", own)
        if isinstance(message, AIMessage) and by != own:
            message = AIMessage(message.text, tool_calls=message.tool_calls)
        shown.append(message)
    return shown
