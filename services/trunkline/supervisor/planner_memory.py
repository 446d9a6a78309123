"""The conversation memory of a supervisor that plans with a model.

Stored like the conversations of reasoning agents. Imports LangGraph, so load it lazily.
"""

from typing import Self

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from trunkline.agents.reasoning.conversation import ConversationHistory
from trunkline.tasks.content import message_text
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import message_pb2


class PlannerMemory:
    """The conversation before a turn of a task. `add_turn` stores the turn in it."""

    def __init__(self, task: TurnRuntime, conversation: ConversationHistory) -> None:
        """`load` reads the conversation."""
        self._task = task
        self._conversation = conversation

    @classmethod
    async def load(cls, task: TurnRuntime) -> Self:
        """Read the conversation of a task.

        Raises:
            JournalUnavailableError: it can't be read.
        """
        return cls(task, await ConversationHistory.load(task))

    def earlier_messages(self) -> list[BaseMessage]:
        """Return the messages of the conversation before this turn, oldest first."""
        messages = self._conversation.earlier_messages()
        if self._conversation.has_own_turns():
            return messages
        return [*messages, *self._task_messages()]

    async def add_turn(self, answer: str) -> None:
        """Store the turn: its message, and the answer or question."""
        if self._task.text and answer:
            await self._conversation.append([HumanMessage(self._task.text), AIMessage(answer)])

    def _task_messages(self) -> list[BaseMessage]:
        return [
            HumanMessage(text) if message.role == message_pb2.ROLE_USER else AIMessage(text)
            for message in self._task.history[:-1]
            if (text := message_text(message))
        ]
