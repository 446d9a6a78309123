"""What the agents of one journal remember."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from trunkline.conversations.store import CheckpointStore, ConversationStore
from trunkline.conversations.turn_order import TurnOrder


@dataclass(frozen=True, slots=True)
class AgentMemory:
    """The stores that the turns of one journal use."""

    checkpoints: CheckpointStore
    conversations: ConversationStore
    order: TurnOrder
    close: Callable[[], Awaitable[None]]
    """Closes the stores. Later calls of their methods raise JournalUnavailableError."""
