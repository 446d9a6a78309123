"""What the agents of one journal remember."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Final

from trunkline.conversations.store import CheckpointStore, ConversationStore
from trunkline.conversations.turn_order import TurnOrder
from trunkline.errors import FencedError, JournalUnavailableError

logger = logging.getLogger(__name__)

# The turns that a host takes over begin first.
_FIRST_CLEANING_S: Final = 60.0
_CLEANING_INTERVAL_S: Final = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class AgentMemory:
    """The stores that the turns of one journal use."""

    checkpoints: CheckpointStore
    conversations: ConversationStore
    order: TurnOrder
    clean: Callable[[], Coroutine[Any, Any, None]]
    """Deletes checkpoints and conversations whose retention time is over. It raises
    JournalUnavailableError if the stores can't be written."""
    close: Callable[[], Coroutine[Any, Any, None]]
    """Closes the stores. Later calls of their methods raise JournalUnavailableError."""


async def clean_daily(memory: AgentMemory) -> None:
    """Clean a memory after a minute and then once a day, until this call is canceled."""
    pause_s = _FIRST_CLEANING_S
    while True:
        await asyncio.sleep(pause_s)
        try:
            await memory.clean()
        except (JournalUnavailableError, FencedError) as error:
            logger.warning("memory.not_cleaned", extra={"reason": error.reason})
        pause_s = _CLEANING_INTERVAL_S
