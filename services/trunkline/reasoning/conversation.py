"""The stored messages of a conversation, in the LangGraph thread `<agent>/<context id>`.

A turn reads it at the start, from the checkpoint files of all hosts in the data directory. It
writes its own messages in one transaction before it publishes its end, so a killed process loses
nothing that was published. The checkpoint namespace is the account, which isolates accounts. The
messages suit models of any provider: texts, tool calls and tool results. Imports LangGraph, so load
it lazily.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.messages.tool import ToolCall

from trunkline.reasoning.checkpoint_files import CheckpointFile
from trunkline.reasoning.message_repair import is_feedback, repair_messages
from trunkline.reasoning.tool_results import get_citations
from trunkline.reasoning.turn_result import STATUS_KEY
from trunkline.tasks.turn_runtime import TurnRuntime

MESSAGES_KEPT: Final = 20
CHARS_KEPT: Final = 32_000
"""About 8000 tokens."""
_TEXT_CHARS: Final = 8_000
_TOOL_CHARS: Final = 4_000


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

    def __init__(self, file: CheckpointFile, task: TurnRuntime) -> None:
        self._file = file
        self._task = task
        self._thread_id = f"{task.agent}/{task.context_id}"
        self._step = 0
        self._exchanges: list[Exchange] = []
        self._read()

    def earlier_messages(self) -> list[BaseMessage]:
        """Return the messages of other tasks, then those of earlier turns of this task.

        The own messages of a resumed task stay last even if other tasks added messages meanwhile.
        """
        own = [one for one in self._exchanges if one.task_id == self._task.id]
        others = [one for one in self._exchanges if one.task_id != self._task.id]
        return [message for one in (*others, *own) for message in one.messages]

    def has_own_turns(self) -> bool:
        """Return whether it has earlier turns of this task."""
        return any(one.task_id == self._task.id for one in self._exchanges)

    def append(self, messages: Sequence[BaseMessage]) -> None:
        """Add this turn's messages, replacing those of an earlier attempt.

        Drops the oldest exchanges until the rest fits MESSAGES_KEPT and CHARS_KEPT. The newest
        exchange is always kept.
        """
        # Children of one parent run at the same time, so another turn may have written meanwhile.
        self._read()
        new = Exchange(self._task.id, self._task.turn, tuple(_portable_messages(messages)))
        key = (new.task_id, new.turn)
        exchanges = [one for one in self._exchanges if (one.task_id, one.turn) != key]
        kept = _limit_exchanges([*exchanges, new])
        values = {
            "messages": [message for one in kept for message in one.messages],
            "exchanges": [[one.task_id, one.turn, len(one.messages)] for one in kept],
        }
        self._step, self._exchanges = self._step + 1, kept
        self._file.saver.replace_state(self._thread_id, self._task.account, values, self._step)

    def _read(self) -> None:
        """Read the stored exchanges if they are newer than the known ones."""
        saver = self._file.saver
        connections = (saver.conn, *self._file.open_other_files())
        found = saver.find_newest_state(
            connections, self._thread_id, self._task.account, known_step=self._step
        )
        if found is not None:
            self._step, self._exchanges = found[0], list(_exchanges(found[1]))


def get_tool_calls(message: BaseMessage) -> Sequence[ToolCall]:
    """Return the tool calls of a message."""
    return message.tool_calls if isinstance(message, AIMessage) else ()


def _exchanges(values: dict[str, Any]) -> Iterator[Exchange]:
    messages, begin = values.get("messages", []), 0
    for task_id, turn, count in values.get("exchanges", []):
        yield Exchange(task_id, turn, tuple(messages[begin : begin + count]))
        begin += count


def _limit_exchanges(exchanges: Sequence[Exchange]) -> list[Exchange]:
    """Return the newest exchanges that fit, never a part of one, so calls keep their results."""
    kept: list[Exchange] = []
    count = chars = 0
    for one in reversed(exchanges):
        count += len(one.messages)
        chars += one.count_chars()
        if kept and (count > MESSAGES_KEPT or chars > CHARS_KEPT):
            break
        kept.insert(0, one)
    return kept


def _portable_messages(messages: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return messages without content that only one provider understands."""
    kept: list[BaseMessage] = []
    for message in messages:
        match message:
            case HumanMessage() if is_feedback(message):
                # A rejected answer is dropped together with the feedback on it.
                if kept and isinstance(kept[-1], AIMessage) and not kept[-1].tool_calls:
                    kept.pop()
            case HumanMessage():
                kept.append(HumanMessage(_clip(message.text, _TEXT_CHARS)))
            case ToolMessage():
                kept.append(
                    ToolMessage(
                        _clip(message.text, _TOOL_CHARS),
                        tool_call_id=message.tool_call_id,
                        status=message.status,
                        artifact=get_citations(message),
                    )
                )
            case AIMessage():
                kept.append(_portable_reply(message))
    return repair_messages(kept)


def _portable_reply(reply: AIMessage) -> AIMessage:
    said = reply.response_metadata.get(STATUS_KEY)
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
        response_metadata={STATUS_KEY: said} if said else {},
    )


def _clip(text: str, chars: int) -> str:
    return text if len(text) <= chars else f"{text[:chars]} […]"
