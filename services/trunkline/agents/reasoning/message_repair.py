"""Repairs message lists so that every provider accepts them: each tool call has one result.

A turn that was canceled, killed or failed leaves calls without results, and providers reject all
later requests with such calls. Imports LangChain, so load it lazily.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final
from uuid import uuid4

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

CALL_INTERRUPTED: Final = "The call was interrupted: it is unknown whether it took effect."
CALL_MALFORMED: Final = (
    "The arguments of the call are not a valid JSON object; the tool was not called."
)
_FEEDBACK_KEY: Final = "trunkline/feedback"


def build_feedback(text: str) -> HumanMessage:
    """Build a user message with feedback: some providers allow system messages only first."""
    return HumanMessage(text, additional_kwargs={_FEEDBACK_KEY: True})


def is_feedback(message: BaseMessage) -> bool:
    """Return whether a message is from the loop and not from the user."""
    return bool(message.additional_kwargs.get(_FEEDBACK_KEY))


def repair_messages(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return messages in which one result follows each call, and no result lacks its call."""
    repaired: list[BaseMessage] = []
    open_calls: dict[str, str] = {}
    for message in messages:
        if isinstance(message, ToolMessage):
            if open_calls.pop(message.tool_call_id, None) is not None:
                repaired.append(message)
            continue
        repaired += _build_results(open_calls)
        open_calls = _build_default_results(message)
        repaired.append(message)
    repaired += _build_results(open_calls)
    return repaired


def assign_unique_ids(reply: AIMessage, messages: Sequence[BaseMessage]) -> AIMessage:
    """Return a reply whose call ids are unique in the turn.

    Results and approvals refer to call ids. Some providers restart numbering in each reply, or send
    no ids.
    """
    used_ids = {
        call["id"]
        for message in messages
        if isinstance(message, AIMessage)
        for call in (*message.tool_calls, *message.invalid_tool_calls)
    }
    ids: list[str] = []
    calls = (*reply.tool_calls, *reply.invalid_tool_calls)
    for call in calls:
        is_unique = bool(call["id"]) and call["id"] not in used_ids
        ids.append(call["id"] if is_unique and call["id"] else f"call_{uuid4().hex}")
        used_ids.add(ids[-1])
    if ids == [call["id"] for call in calls]:
        return reply
    valid = len(reply.tool_calls)
    update: dict[str, Any] = {
        "tool_calls": [
            {**call, "id": call_id}
            for call, call_id in zip(reply.tool_calls, ids[:valid], strict=True)
        ],
        "invalid_tool_calls": [
            {**call, "id": call_id}
            for call, call_id in zip(reply.invalid_tool_calls, ids[valid:], strict=True)
        ],
    }
    return reply.model_copy(update=update)


def _build_default_results(message: BaseMessage) -> dict[str, str]:
    """Return the results to use for a message's calls if there are none, keyed by call id."""
    if not isinstance(message, AIMessage):
        return {}
    calls = {call["id"] or "": CALL_INTERRUPTED for call in message.tool_calls}
    # Invalid calls stay in the message as the provider sent them.
    return calls | {call["id"] or "": CALL_MALFORMED for call in message.invalid_tool_calls}


def _build_results(open_calls: dict[str, str]) -> Iterator[ToolMessage]:
    for call_id, text in open_calls.items():
        yield ToolMessage(text, tool_call_id=call_id, status="error")
