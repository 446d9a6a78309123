"""Replies of a required form: a call of one tool whose arguments fit."""

from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from langchain_core.messages import AIMessage, BaseMessage

_T = TypeVar("_T")
_TRIES: Final = 2


class UnusableReplyError(ValueError):
    """A reply that can't be used. The text tells the model why."""


async def ask_for_form(
    ask: "Callable[[Sequence[BaseMessage]], Awaitable[AIMessage]]",
    messages: "Sequence[BaseMessage]",
    read: "Callable[[AIMessage], _T]",
    *,
    tool: str,
    complaint: str,
) -> _T:
    """Ask a model, read its reply, and ask once more if the reply can't be used.

    `read` raises UnusableReplyError for such a reply. The model then gets the `complaint` with the
    reason and the request to call `tool` again.

    Raises:
        UnusableReplyError: no reply could be used.
        TrunklineError: as `ask` raises.
    """
    from langchain_core.messages import HumanMessage, ToolMessage

    said = list(messages)
    problem = ""
    for _ in range(_TRIES):
        reply = await ask(said)
        try:
            return read(reply)
        except UnusableReplyError as error:
            problem = str(error)
        feedback = f"{complaint}: {problem}. Call {tool} again, mended."
        calls = (*reply.tool_calls, *reply.invalid_tool_calls)
        said.append(reply)
        said += [ToolMessage(feedback, tool_call_id=call["id"] or "") for call in calls]
        if not calls:
            said.append(HumanMessage(feedback))
    raise UnusableReplyError(problem)
