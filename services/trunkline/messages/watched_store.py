"""Watches of messages, which the stores in a file and in PostgreSQL share."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from trunkline.messages.store import EnvelopeFilter, StoredEnvelope

logger = logging.getLogger(__name__)

READ_LIMIT: Final = 500
"""The number of messages that are read at once."""
# A database that has failed over to a standby, or a file from a backup, may lack this many changes
# that were seen.
_STEP_BACK: Final = 10_000

Column: TypeAlias = Literal["position", "change"]
"""The column by which messages are read: each once, or again when a delivery has ended."""


class Matches(NamedTuple):
    """The first messages after a number that match a filter."""

    messages: Sequence[StoredEnvelope]
    numbers: Sequence[int]
    """Their positions or changes, in this order, also of messages that were deleted meanwhile."""
    newest: int
    """The store's last number, which was read first, so that all numbers up to it are visible."""


class WatchedStore(ABC):
    """A store whose messages have positions, and numbers of their last changes, in SQL."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    async def watch(
        self,
        account: str,
        query: EnvelopeFilter,
        *,
        after_position: int | None = None,
        with_deliveries: bool = False,
    ) -> AsyncGenerator[tuple[Sequence[StoredEnvelope], int], None]:
        """Yield messages that match; see `MessageStore.watch`."""
        column: Column = "change" if with_deliveries else "position"
        if after_position is None:
            position = await self._read_newest("position")
            cursor = await self._read_newest(column) if with_deliveries else position
        else:
            position = cursor = after_position
            if with_deliveries:
                cursor = await self._find_change_before(after_position)
        is_first = True
        while True:
            event = self._changed
            messages, numbers, newest = await self._read_after(account, query, column, cursor)
            if newest < cursor:
                cursor = max(0, newest - _STEP_BACK)
                logger.warning("messages.changes_lost", extra={"continues_after": cursor})
                continue
            is_end = len(numbers) < READ_LIMIT
            cursor = max([newest, *numbers]) if is_end else numbers[-1]
            if with_deliveries:
                position = max([position, *(stored.position for stored in messages)])
            else:
                position = cursor
            if messages or is_first:
                is_first = False
                yield messages, position
            if is_end:
                await event.wait()

    @abstractmethod
    async def _read_newest(self, column: Column) -> int:
        """Return the last number that is committed."""

    @abstractmethod
    async def _find_change_before(self, position: int) -> int:
        """Return the change before the first change of the messages after a position."""

    @abstractmethod
    async def _read_after(
        self, account: str, query: EnvelopeFilter, column: Column, after: int
    ) -> Matches:
        """Return at most `READ_LIMIT` messages after a number, in its order."""

    def _wake(self) -> None:
        """Wake all readers of this process."""
        event, self._changed = self._changed, asyncio.Event()
        event.set()
