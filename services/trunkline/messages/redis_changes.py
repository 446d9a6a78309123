"""Follows the changes of the distributed store by one blocking read, and wakes their readers."""

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from trunkline.core.backoff import Backoff
from trunkline.errors import PeerUnavailableError
from trunkline.messages.redis_connection import BLOCK_MS, translate_errors

if TYPE_CHECKING:
    from redis.asyncio import Redis

logger = logging.getLogger(__name__)

_READ_LIMIT: Final = 1_000
_ENDED: Final = b"e"
# The number of changes that are read again after a loss, whose size is not known.
_STEP_BACK: Final = 10_000


class ChangeFollower:
    """Wakes those who wait for a message or the end of a delivery, in all processes.

    A reader waits for its account or for one conversation. It gets the number of the first change
    of that account or conversation, so it need not read the earlier changes.
    """

    def __init__(
        self,
        client: "Redis",
        prefix: str,
        on_delivery: Callable[[], None],
        *,
        on_return: Callable[[], None],
    ) -> None:
        """`on_delivery` is called for new deliveries, `on_return` when the server is back."""
        self._client = client
        self._prefix = prefix
        self._on_delivery = on_delivery
        self._on_return = on_return
        self._waiting: defaultdict[tuple[str, str], set[asyncio.Future[int]]] = defaultdict(set)
        self.last = 0
        """The number of the last change that was seen."""
        self.losses = 0
        """How often the server lost changes since the store was opened."""
        self.resumes_after = 0
        """The change after which all readers read again after the latest loss."""
        self._last_fields: dict[bytes, bytes] = {}

    async def start(self) -> None:
        """Begin after the present changes. Raises PeerUnavailableError."""
        async with translate_errors():
            self.last = await self._read_newest()
            self._last_fields = await self._read_entry(self.last)

    @contextlib.contextmanager
    def waiting(self, account: str, correlation_id: str = "") -> Iterator["asyncio.Future[int]"]:
        """Within the block, the first change that concerns an account resolves the future.

        With a correlation id, only changes of its messages count. After a loss of changes, the
        result is 0.
        """
        key = (account, correlation_id)
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[key].add(future)
        try:
            yield future
        finally:
            self._waiting[key].discard(future)
            if not self._waiting[key]:
                del self._waiting[key]

    async def follow(self) -> None:
        """Read changes until canceled. An outage of the server only interrupts this."""
        backoff = Backoff()
        is_connected = True
        while True:
            try:
                async with translate_errors():
                    if not is_connected:
                        await self._continue()
                        logger.info("messages.store_available")
                        is_connected = True
                    read: Any = await self._client.xread(
                        {f"{self._prefix}:changes": f"{self.last}-0"},
                        count=_READ_LIMIT,
                        block=BLOCK_MS,
                    )
            except PeerUnavailableError as error:
                if is_connected:
                    logger.warning("messages.store_unavailable", extra={"problem": error.problem})
                is_connected = False
                await backoff.pause()
                continue
            backoff.reset()
            for _, entries in _streams(read):
                self._note(entries)

    def _note(self, entries: list[tuple[bytes, dict[bytes, bytes]]]) -> None:
        has_deliveries = False
        for entry, fields in entries:
            self.last, self._last_fields = change_number(entry), fields
            has_deliveries |= fields[b"k"] != _ENDED
            if self._waiting:
                account, correlation_id = fields[b"a"].decode(), fields[b"c"].decode()
                self._resolve((account, ""), self.last)
                self._resolve((account, correlation_id), self.last)
        if has_deliveries:
            self._on_delivery()

    def _resolve(self, key: tuple[str, str], change: int) -> None:
        for future in self._waiting.get(key, ()):
            if not future.done():
                future.set_result(change)

    async def _continue(self) -> None:
        """Step back if the server lost changes. After a failover, numbers are used again."""
        if self.last and await self._read_entry(self.last) != self._last_fields:
            newest = await self._read_newest()
            self.last = self.resumes_after = max(0, min(self.last, newest) - _STEP_BACK)
            self.losses += 1
            logger.warning("messages.changes_lost", extra={"continues_after": self.last})
            for key in list(self._waiting):
                self._resolve(key, 0)
        self._on_return()

    async def _read_newest(self) -> int:
        newest: Any = self._client.hget(f"{self._prefix}:counters", "change")
        return int(await newest or 0)

    async def _read_entry(self, change: int) -> dict[bytes, bytes]:
        """Return the fields of a change. The result is empty if there is no such change."""
        entry = f"{change}-0"
        found: Any = await self._client.xrange(f"{self._prefix}:changes", min=entry, max=entry)
        return found[0][1] if found else {}


def change_number(entry: bytes) -> int:
    """Return the number of a change from the id of its entry."""
    return int(entry.partition(b"-")[0])


def _streams(read: Any) -> Any:  # noqa: ANN401  the two protocols answer differently
    """Return the streams of an answer of XREAD with their entries."""
    if not read:
        return ()
    if isinstance(read, dict):
        # Protocol 3 has a list of lists of entries.
        return [(name, [entry for page in pages for entry in page]) for name, pages in read.items()]
    return read
