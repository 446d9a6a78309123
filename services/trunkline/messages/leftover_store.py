"""Messages of an earlier run in the local mode, once the mesh is in the distributed mode.

These messages stay in their file until they are handled. Their replies and all new messages go to
Redis.
"""

import logging
from collections.abc import AsyncIterator, Collection, Sequence, Set
from contextlib import asynccontextmanager
from pathlib import Path

from trunkline.core.backoff import Backoff
from trunkline.core.database import open_read_only
from trunkline.core.encryption import Keyring
from trunkline.errors import JournalUnavailableError, PeerUnavailableError, QueueFullError
from trunkline.messages.sqlite_store import SqliteMessageStore
from trunkline.messages.store import (
    DeliveryState,
    MessageStore,
    NewMessage,
    QueuedDelivery,
    Room,
    StoredEnvelope,
)

logger = logging.getLogger(__name__)


class LeftoverStore(SqliteMessageStore):
    """The local store of an earlier run. A second dispatcher delivers its messages."""

    def __init__(
        self, primary: MessageStore, path: Path, *, queue_limit: int, keyring: Keyring | None
    ) -> None:
        """`primary` is the store of new messages. Raises as SqliteMessageStore."""
        super().__init__(path, queue_limit=queue_limit, keyring=keyring)
        self._primary = primary

    async def end(
        self,
        delivery: QueuedDelivery,
        state: DeliveryState,
        *,
        problem: str = "",
        replies: Sequence[NewMessage] = (),
    ) -> list[StoredEnvelope]:
        """Accept the replies in the primary store, then end the delivery.

        If the process dies in between, the delivery ends again with the same replies, and the
        primary store finds them by their ids.
        """
        backoff = Backoff()
        stored: list[StoredEnvelope] = []
        while replies and not stored:
            try:
                stored = await self._primary.accept(replies)
            except (PeerUnavailableError, QueueFullError) as error:
                logger.warning("messages.store_unavailable", extra={"problem": str(error)})
                await backoff.pause()
        await super().end(delivery, state, problem=problem)
        return stored

    async def get_room(self, account: str, room: str) -> Room:
        """Return a room of the primary store: replies go to its present members."""
        return await self._primary.get_room(account, room)

    async def add_agents(self, names: Collection[str]) -> None:
        """Note agents in the primary store."""
        await self._primary.add_agents(names)

    async def list_agents(self) -> Set[str]:
        """Return the agents of the primary store."""
        return await self._primary.list_agents()


@asynccontextmanager
async def open_leftover(
    primary: MessageStore, *, path: Path, queue_limit: int, keyring: Keyring | None
) -> AsyncIterator[LeftoverStore | None]:
    """Yield the local store if the mode is distributed and messages in the file wait, or None."""
    if primary.mode == "local" or not (count := _count_waiting(path)):
        yield None
        return
    try:
        store = LeftoverStore(primary, path, queue_limit=queue_limit, keyring=keyring)
    except JournalUnavailableError as error:
        logger.warning("messages.local_not_delivered", extra={"problem": str(error)})
        yield None
        return
    logger.info("messages.local_waiting", extra={"file": str(path), "deliveries": count})
    async with store:
        yield store


def _count_waiting(path: Path) -> int:
    """Return the number of deliveries in a file that have not ended, or 0 without a file."""
    if not path.is_file():
        return 0
    try:
        with open_read_only(path) as database:
            query = "SELECT count(*) FROM deliveries WHERE state IN (1, 2)"
            return int(database.execute(query).fetchone()[0])
    except JournalUnavailableError as error:
        logger.warning("messages.local_not_read", extra={"problem": error.problem})
        return 0
