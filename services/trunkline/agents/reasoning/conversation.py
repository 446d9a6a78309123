"""The stored messages of the conversation of an agent with an account in a context.

A turn reads them at the start. It stores its own messages before it publishes its end, so a killed
process loses nothing that was published. The messages suit models of any provider: texts, tool
calls and tool results. Imports LangGraph, so load it lazily.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import ToolCall

from trunkline.agents.reasoning.conversation_state import ConversationState
from trunkline.agents.reasoning.message_repair import is_feedback, repair_messages
from trunkline.agents.reasoning.tool_results import get_citations
from trunkline.agents.reasoning.turn_result import STATUS_KEY
from trunkline.tasks.turn_runtime import TurnRuntime

logger = logging.getLogger(__name__)

MAX_MESSAGES: Final = 20
MAX_CHARS: Final = 32_000
"""The size limit of a conversation, about 8000 tokens."""
_TEXT_CHARS: Final = 8_000
_TOOL_CHARS: Final = 4_000
_MAX_TRIES: Final = 20


@dataclass(frozen=True, slots=True)
class Exchange:
    """The messages of one turn of a task, from its question to its end."""

    task_id: str
    turn: int
    messages: tuple[BaseMessage, ...]

    def count_chars(self) -> int:
        """Return the approximate length of the messages as a model reads them."""
        return sum(
            len(message.text) + len(str(get_tool_calls(message))) for message in self.messages
        )


class ConversationHistory:
    """The exchanges of an agent with one account in one context, oldest first."""

    def __init__(self, task: TurnRuntime, state: ConversationState) -> None:
        """`load` reads the exchanges."""
        self._task = task
        self._state = state
        self._exchanges: list[Exchange] = []

    @classmethod
    async def load(cls, task: TurnRuntime) -> Self:
        """Read the conversation of a task.

        Raises:
            JournalUnavailableError: it can't be read.
        """
        conversation = cls(task, ConversationState(task))
        await conversation._read()
        return conversation

    def earlier_messages(self) -> list[BaseMessage]:
        """Return the messages of other tasks, then the messages of earlier turns of this task.

        A resumed task's own messages come last, even if other tasks have added messages since.
        """
        own = [exchange for exchange in self._exchanges if exchange.task_id == self._task.id]
        others = [exchange for exchange in self._exchanges if exchange.task_id != self._task.id]
        return [message for exchange in (*others, *own) for message in exchange.messages]

    def has_own_turns(self) -> bool:
        """Return whether it has earlier turns of this task."""
        return any(exchange.task_id == self._task.id for exchange in self._exchanges)

    async def append(self, messages: Sequence[BaseMessage]) -> None:
        """Add the messages of this turn in place of the messages of an earlier attempt.

        Drops the oldest exchanges until the rest fits MAX_MESSAGES and MAX_CHARS. The newest
        exchange is always kept.
        """
        newest = Exchange(self._task.id, self._task.turn, tuple(_make_portable(messages)))
        for _ in range(_MAX_TRIES):
            if await self._replace(newest):
                return
            # Children of one parent run at the same time, so another turn has added messages.
            await self._read()
        logger.warning("conversation.not_saved", extra={"problem": "its state changes too often"})

    async def _replace(self, newest: Exchange) -> bool:
        key = (newest.task_id, newest.turn)
        exchanges = [
            exchange for exchange in self._exchanges if (exchange.task_id, exchange.turn) != key
        ]
        retained = _limit_exchanges([*exchanges, newest])
        values = {
            "messages": [message for exchange in retained for message in exchange.messages],
            "exchanges": [
                [exchange.task_id, exchange.turn, len(exchange.messages)] for exchange in retained
            ],
        }
        if not await self._state.replace(values):
            return False
        self._exchanges = retained
        return True

    async def _read(self) -> None:
        self._exchanges = list(_decode_exchanges(await self._state.read()))


def get_tool_calls(message: BaseMessage) -> Sequence[ToolCall]:
    """Return the tool calls of a message."""
    return message.tool_calls if isinstance(message, AIMessage) else ()


def _decode_exchanges(values: dict[str, Any]) -> Iterator[Exchange]:
    messages, start = values.get("messages", []), 0
    for task_id, turn, count in values.get("exchanges", []):
        yield Exchange(task_id, turn, tuple(messages[start : start + count]))
        start += count


def _limit_exchanges(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Return the newest exchanges that fit. Never cuts one, so each call keeps its result."""
    newest: list[Exchange] = []
    count = chars = 0
    for exchange in reversed(exchanges):
        count += len(exchange.messages)
        chars += exchange.count_chars()
        if newest and (count > MAX_MESSAGES or chars > MAX_CHARS):
            break
        newest.insert(0, exchange)
    return newest


def _make_portable(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return messages without content that only one provider understands."""
    portable: list[BaseMessage] = []
    for message in messages:
        match message:
            case HumanMessage() if is_feedback(message):
                # A rejected answer is dropped together with the feedback on it.
                if portable and isinstance(portable[-1], AIMessage) and not portable[-1].tool_calls:
                    portable.pop()
            case HumanMessage():
                portable.append(HumanMessage(_clip(message.text, _TEXT_CHARS)))
            case ToolMessage():
                portable.append(
                    ToolMessage(
                        _clip(message.text, _TOOL_CHARS),
                        tool_call_id=message.tool_call_id,
                        status=message.status,
                        artifact=get_citations(message),
                    )
                )
            case AIMessage():
                portable.append(_make_reply_portable(message))
    return repair_messages(portable)


def _make_reply_portable(reply: AIMessage) -> AIMessage:
    status = reply.response_metadata.get(STATUS_KEY)
    calls = [
        ToolCall(
            name=call["name"],
            args={
                name: _clip(value, _TOOL_CHARS) if isinstance(value, str) else value
                for name, value in call["args"].items()
            },
            id=call["id"],
        )
        for call in reply.tool_calls
    ]
    return AIMessage(
        _clip(reply.text, _TEXT_CHARS),
        tool_calls=calls,
        response_metadata={STATUS_KEY: status} if status else {},
    )


def _clip(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]} […]"
