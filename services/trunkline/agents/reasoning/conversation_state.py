"""The state of a conversation as values of Python. Imports LangGraph, so load it lazily."""

import logging
from collections.abc import Iterable
from typing import Any, Final

from langgraph.checkpoint.base import empty_checkpoint

from trunkline.agents.reasoning.checkpoint_types import CheckpointSerializer
from trunkline.conversations.store import ConversationKey, StoredState
from trunkline.errors import JournalUnavailableError
from trunkline.tasks.turn_runtime import TurnRuntime

logger = logging.getLogger(__name__)

_VALUES: Final = "channel_values"


class ConversationState:
    """The stored state of the conversation of a task: its values, after a number of steps."""

    def __init__(self, task: TurnRuntime, types: Iterable[type] = ()) -> None:
        """Objects are restored if LangGraph or `types` has their type."""
        self.step: int = 0
        """The number of steps of the state that was read or written last."""
        self._store = task.memory.conversations
        self._key = ConversationKey(task.agent, task.context_id, task.account)
        self._serializer = CheckpointSerializer.for_types(types)

    async def read(self) -> dict[str, Any]:
        """Return the stored values. There are none if the conversation is new or unreadable.

        Raises:
            JournalUnavailableError: the store can't be read.
        """
        stored = await self._store.find(self._key)
        self.step = 0 if stored is None else stored.step
        if stored is None:
            return {}
        try:
            values: dict[str, Any] = self._serializer.loads_typed(stored[1:])[_VALUES]
        except (ValueError, TypeError, KeyError) as error:
            # It is torn after a power failure, or of another version.
            logger.warning("conversation.not_read", extra={"problem": type(error).__name__})
            return {}
        return values

    async def replace(self, values: dict[str, Any], *, step: int = 0) -> bool:
        """Store values in place of the state that was read or written last.

        The state has one more step then, or `step` steps if these are more. Return False if another
        turn has changed the state meanwhile. A failed write is logged and counts as done: the turn
        has its answer.
        """
        step = max(step, self.step + 1)
        checkpoint = empty_checkpoint()
        checkpoint[_VALUES] = values
        state = StoredState(step, *self._serializer.dumps_typed(checkpoint))
        try:
            is_stored = await self._store.replace(self._key, state, known_step=self.step)
        except JournalUnavailableError as error:
            logger.warning("conversation.not_saved", extra={"problem": error.problem})
            return True
        if is_stored:
            self.step = step
        return is_stored
