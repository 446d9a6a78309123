"""Wakes the readers of messages in other processes, by LISTEN and NOTIFY.

NOTIFY in a transaction would hold a lock of the whole server until the transaction is on the disk.
So it is a statement of its own after the transaction, and writes nothing. Notifications that wait
are one.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from trunkline.core.backoff import Backoff
from trunkline.core.postgres import ERRORS, Connection, PostgresDatabase
from trunkline.errors import JournalUnavailableError

logger = logging.getLogger(__name__)

_CHANNEL: Final = "trunkline_messages"
_SHARE: Final = "share"
_CLOSE_TIMEOUT_S: Final = 1.0


class ChangeListener:
    """Notifies other processes of changes, and calls functions when they do.

    A notification may be lost, for example with a connection or at a pooler in transaction mode.
    So a store looks for changes at times, too.
    """

    def __init__(
        self,
        database: PostgresDatabase,
        process: str,
        *,
        on_change: Callable[[], None],
        on_share: Callable[[], None],
    ) -> None:
        """`on_change` is called for new changes, `on_share` when partitions change their owners."""
        self._database = database
        self._process = process
        self._on_change = on_change
        self._on_share = on_share
        self._has_news = asyncio.Event()
        self._is_share = False

    def notify(self, *, is_share: bool = False) -> None:
        """Notify others soon."""
        self._is_share |= is_share
        self._has_news.set()

    async def notify_now(self, *, is_share: bool) -> None:
        """Notify others. Raises JournalUnavailableError."""
        kind = _SHARE if is_share else ""
        await self._database.fetch("SELECT pg_notify($1, $2)", _CHANNEL, f"{self._process} {kind}")

    async def notify_others(self) -> None:
        """Send the notifications until canceled."""
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            is_share, self._is_share = self._is_share, False
            # Without it, others find the change when they look.
            with contextlib.suppress(JournalUnavailableError):
                await self.notify_now(is_share=is_share)

    async def listen(self) -> None:
        """Receive notifications until canceled. An outage of the database only interrupts this."""
        backoff = Backoff()
        while True:
            try:
                connection = await self._database.connect()
            except JournalUnavailableError as error:
                logger.debug("messages.not_listening", extra={"problem": error.problem})
                await backoff.pause()
                continue
            try:
                ended = asyncio.Event()
                connection.add_termination_listener(lambda _, ended=ended: ended.set())
                await connection.add_listener(_CHANNEL, self._receive)
                backoff.reset()
                # Changes may have been missed before.
                self._on_change()
                await ended.wait()
            except ERRORS as error:
                logger.debug("messages.not_listening", extra={"problem": str(error)})
            finally:
                connection.terminate()
            await backoff.pause()

    def _receive(self, _connection: Connection, _pid: int, _channel: str, payload: object) -> None:
        process, _, kind = str(payload).partition(" ")
        if process == self._process:
            return
        if kind == _SHARE:
            self._on_share()
        self._on_change()
