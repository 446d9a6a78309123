"""Reads and watches the messages of the distributed store."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from trunkline.core.backoff import Backoff
from trunkline.errors import EnvelopeNotFoundError, PeerUnavailableError
from trunkline.messages.envelope_filter import matches
from trunkline.messages.redis_changes import ChangeFollower, change_number
from trunkline.messages.redis_connection import translate_errors
from trunkline.messages.redis_records import RedisCodec, best_index
from trunkline.messages.store import EnvelopeFilter, StoredEnvelope

if TYPE_CHECKING:
    from redis.asyncio import Redis

_READ_LIMIT: Final = 500
_LEAST_READ: Final = 50
_Changes: TypeAlias = Sequence[tuple[bytes, dict[bytes, bytes]]]


class MessageReader:
    """Reads messages, by one client."""

    def __init__(
        self, client: "Redis", prefix: str, codec: RedisCodec, changes: ChangeFollower
    ) -> None:
        # The library's types have the answers of all its clients and protocols.
        self._client: Any = client
        self._prefix = prefix
        self._codec = codec
        self._changes = changes

    async def get(self, account: str, envelope_id: str) -> StoredEnvelope:
        """Return a message; see `MessageStore.get`."""
        async with translate_errors():
            position = await self._client.get(f"{self._prefix}:id:{account}\0{envelope_id}")
        found = await self.load([int(position)]) if position else []
        if not found:
            raise EnvelopeNotFoundError(envelope_id)
        return found[0]

    async def watch(
        self,
        account: str,
        query: EnvelopeFilter,
        *,
        after_position: int | None = None,
        with_deliveries: bool = False,
    ) -> AsyncGenerator[tuple[Sequence[StoredEnvelope], int], None]:
        """Yield messages that match; see `MessageStore.watch`."""
        losses = self._changes.losses
        cursor, position = await self._find_start(account, after_position)
        is_first = True
        backoff = Backoff()
        while True:
            with self._changes.waiting(account, query.correlation_id) as change:
                if losses != self._changes.losses:
                    # The loss may have happened while the reader of this watch was busy.
                    losses = self._changes.losses
                    cursor, position = min(cursor, self._changes.resumes_after), 0
                try:
                    entries = await self._read_changes(cursor)
                    positions = _select_changes(
                        entries, account, query.correlation_id, with_ends=with_deliveries
                    )
                    rows = [row for row in await self.load(positions) if matches(row, query)]
                except PeerUnavailableError:
                    if is_first:
                        raise
                    await backoff.pause()
                    continue
                backoff.reset()
                if entries:
                    cursor = change_number(entries[-1][0])
                    position = max([position, *positions])
                if not rows and not is_first:
                    if len(entries) < _READ_LIMIT:
                        # Nothing before the first change that concerns this reader.
                        cursor = max(cursor, await change - 1)
                    continue
            is_first = False
            yield rows, position

    async def _find_start(self, account: str, after_position: int | None) -> tuple[int, int]:
        """Return the change after which a watch begins, and its position."""
        async with translate_errors():
            change, position = await self._client.hmget(
                f"{self._prefix}:counters", ["change", "position"]
            )
            start = (int(change or 0), int(position or 0))
            if after_position is None:
                return start
            following = await self.select_positions(
                f"x:a{account}", f"({after_position}", "+inf", limit=1
            )
            if not following:
                return start[0], after_position
            numbers = await self._client.hget(f"{self._prefix}:m:{following[0]}", "n")
        first = int(numbers.split()[0]) - 1 if numbers else start[0]
        return first, after_position

    async def _read_changes(self, after: int) -> _Changes:
        async with translate_errors():
            entries: _Changes = await self._client.xrange(
                f"{self._prefix}:changes", min=f"({after}-0", count=_READ_LIMIT
            )
        return entries

    async def search(
        self, account: str, query: EnvelopeFilter, *, before: int = 0, wanted: int = _READ_LIMIT
    ) -> AsyncIterator[list[StoredEnvelope]]:
        """Yield the messages that match, newest first, in batches.

        With `before`, only messages before this position are found. `wanted` is the number that the
        caller needs.
        """
        if query.envelope_id:
            with contextlib.suppress(EnvelopeNotFoundError):
                stored = await self.get(account, query.envelope_id)
                if matches(stored, query) and (not before or stored.position < before):
                    yield [stored]
            return
        limit = min(_READ_LIMIT, max(wanted + 1, _LEAST_READ))
        index = f"x:{best_index(account, query)}"
        start = f"({before}" if before else "+inf"
        while True:
            positions = await self.select_positions(index, start, "-inf", limit=limit)
            rows = await self.load(positions)
            yield [row for row in rows if matches(row, query)]
            if len(positions) < limit:
                return
            start = f"({positions[-1]}"

    async def load(self, positions: Iterable[int]) -> list[StoredEnvelope]:
        """Return the messages at positions. Deleted messages are left out."""
        wanted = list(positions)
        if not wanted:
            return []
        async with translate_errors():
            pipeline = self._client.pipeline(transaction=False)
            for position in wanted:
                pipeline.hgetall(f"{self._prefix}:m:{position}")
            rows: list[dict[bytes, bytes]] = await pipeline.execute()
        pairs = zip(wanted, rows, strict=True)
        return [
            self._codec.decode_message(position, fields) for position, fields in pairs if fields
        ]

    async def select_positions(
        self, key: str, start: str, end: str, *, skip: int = 0, limit: int = _READ_LIMIT
    ) -> list[int]:
        """Return positions of a sorted set between two scores; newest first if `end` is lower."""
        async with translate_errors():
            positions = await self._client.zrange(
                f"{self._prefix}:{key}",
                start,
                end,
                desc=end == "-inf",
                byscore=True,
                offset=skip,
                num=limit,
            )
        return list(map(int, positions))


def _select_changes(
    entries: _Changes,
    account: str,
    correlation_id: str,
    *,
    with_ends: bool,
) -> list[int]:
    """Return the positions of the messages that changes concern, each once."""
    positions = [
        int(fields[b"p"])
        for _, fields in entries
        if fields[b"a"].decode() == account
        and correlation_id in ("", fields[b"c"].decode())
        and (with_ends or fields[b"k"] == b"a")
    ]
    return list(dict.fromkeys(positions))
