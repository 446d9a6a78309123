"""The conversation memory of a supervisor that plans with a model.

Stored like the conversations of reasoning agents. Imports LangGraph, so load it lazily.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage

from trunkline.agents.reasoning.checkpoint_files import open_checkpoint_file
from trunkline.agents.reasoning.conversation import ConversationHistory
from trunkline.tasks.content import message_text
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import message_pb2


class PlannerMemory:
    """The conversation before a turn of a task. `add_turn` stores the turn in it."""

    def __init__(self, task: TurnRuntime, conversation: ConversationHistory | None) -> None:
        self._task = task
        self._conversation = conversation

    def earlier_messages(self) -> list[BaseMessage]:
        """Return the messages of the conversation before this turn, oldest first."""
        conversation = self._conversation
        if conversation is None:
            return self._task_messages()
        messages = conversation.earlier_messages()
        return messages if conversation.has_own_turns() else [*messages, *self._task_messages()]

    def add_turn(self, answer: str) -> None:
        """Store the turn: its message, and the answer or question."""
        if self._conversation is not None and self._task.text and answer:
            self._conversation.append([HumanMessage(self._task.text), AIMessage(answer)])

    def _task_messages(self) -> list[BaseMessage]:
        return [
            HumanMessage(text) if message.role == message_pb2.ROLE_USER else AIMessage(text)
            for message in self._task.history[:-1]
            if (text := message_text(message))
        ]


@contextmanager
def open_planner_memory(task: TurnRuntime) -> Iterator[PlannerMemory]:
    """Open the memory for a turn. Without a data directory it has only the task's history."""
    path = task.checkpoint_path
    if path is None:
        yield PlannerMemory(task, None)
        return
    with open_checkpoint_file(path, task.keyring) as file:
        yield PlannerMemory(task, ConversationHistory(file, task))
