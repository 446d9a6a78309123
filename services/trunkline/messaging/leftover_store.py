"""Messages that an earlier run accepted in the local mode, once the mesh is in the distributed one.

They stay in their file until they are handled. Their replies, and everything new, go to Redis.
"""

import logging
from collections.abc import AsyncIterator, Collection, Sequence, Set
from contextlib import asynccontextmanager
from pathlib import Path

from trunkline.client.backoff import Backoff
from trunkline.database import open_read_only
from trunkline.encryption import Keyring
from trunkline.errors import JournalUnavailableError, PeerUnavailableError, QueueFullError
from trunkline.messaging.sqlite_store import SqliteMessageStore
from trunkline.messaging.store import (
    DeliveryState,
    MessageStore,
    NewMessage,
    QueuedDelivery,
    Room,
    StoredEnvelope,
)

logger = logging.getLogger(__name__)


class LeftoverStore(SqliteMessageStore):
    """The local store of an earlier run. A second dispatcher delivers what is in it."""

    def __init__(self, primary: MessageStore, path: Path, *, keyring: Keyring | None) -> None:
        """`primary` is the store of new messages. Raises as SqliteMessageStore."""
        super().__init__(path, keyring=keyring)
        self._primary = primary

    async def end(
        self,
        delivery: QueuedDelivery,
        state: DeliveryState,
        *,
        problem: str = "",
        replies: Sequence[NewMessage] = (),
    ) -> list[StoredEnvelope]:
        """Accept the replies in the other store, then end the delivery.

        If the process dies in between, the same replies come again, and are known by their ids.
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
        """Return a room of the other store: replies go to those who are in it now."""
        return await self._primary.get_room(account, room)

    async def add_agents(self, names: Collection[str]) -> None:
        """Note agents in the other store."""
        await self._primary.add_agents(names)

    async def list_agents(self) -> Set[str]:
        """Return the agents of the other store."""
        return await self._primary.list_agents()


@asynccontextmanager
async def open_leftover(
    primary: MessageStore, *, path: Path, keyring: Keyring | None
) -> AsyncIterator[LeftoverStore | None]:
    """Open the local store if the mode is another one, and messages in it wait; else yield None."""
    if primary.mode == "local" or not (count := _count_waiting(path)):
        yield None
        return
    try:
        store = LeftoverStore(primary, path, keyring=keyring)
    except JournalUnavailableError as error:
        logger.warning("messages.local_not_delivered", extra={"problem": str(error)})
        yield None
        return
    logger.info("messages.local_waiting", extra={"file": str(path), "deliveries": count})
    async with store:
        yield store


def _count_waiting(path: Path) -> int:
    """Return the number of deliveries in a file that have not ended. 0: there is no file."""
    if not path.is_file():
        return 0
    try:
        with open_read_only(path) as database:
            query = "SELECT count(*) FROM deliveries WHERE state IN (1, 2)"
            return int(database.execute(query).fetchone()[0])
    except JournalUnavailableError as error:
        logger.warning("messages.local_not_read", extra={"problem": error.problem})
        return 0
