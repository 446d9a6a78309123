"""What a model's reply says besides its text."""

from typing import TYPE_CHECKING, Final

from trunkline.reasoning.models.trouble import ModelTrouble

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import AIMessage, BaseMessage

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


def finish_reason(reply: "AIMessage") -> str:
    """Return why a reply ended, in its provider's words; empty: it doesn't say."""
    said = (reply.response_metadata.get(name) for name in _REASONS)
    return next((str(reason) for reason in said if reason), "")


def is_cut_short(reply: "AIMessage") -> bool:
    """Whether a reply ended because it may not be longer."""
    return finish_reason(reply) in _LENGTHS


def tokens_of(messages: "Sequence[BaseMessage]") -> int:
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
        raise ModelTrouble("cut", "its reply broke off; try again later", is_passing=True)
    if reply.invalid_tool_calls and is_cut_short(reply):
        raise ModelTrouble("length", f"{max_tokens} tokens are too few; raise max_tokens")
    is_empty = not (reply.text.strip() or reply.tool_calls or reply.invalid_tool_calls)
    if is_empty and reason not in _USUAL:
        raise ModelTrouble("refused", f"it answered with nothing ({reason}); ask otherwise")


def of_any_provider(messages: "Sequence[BaseMessage]", model: str) -> "list[BaseMessage]":
    """Return messages as `model` is given them: what another provider added to them is left out.

    A provider's own are left as they are: it may want back what it put into them.
    """
    from langchain_core.messages import AIMessage

    own = _PROVIDERS.get(model.partition(":")[0], "")
    shown: list[BaseMessage] = []
    for message in messages:
        by = message.response_metadata.get("model_provider", own)
        if isinstance(message, AIMessage) and by != own:
            message = AIMessage(message.text, tool_calls=message.tool_calls)
        shown.append(message)
    return shown
