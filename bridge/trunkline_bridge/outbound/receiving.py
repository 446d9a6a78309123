"""Files that a remote agent keeps itself: fetched with our credentials, and kept with our task."""

import hashlib
import logging
from collections.abc import AsyncGenerator, Iterable
from typing import Final
from urllib.parse import urlsplit

from trunkline import TaskContext
from trunkline.errors import PeerProtocolError, TrunklineError
from trunkline.v1 import part_pb2
from trunkline_bridge.outbound.peer import Peer

logger = logging.getLogger(__name__)

LIMIT_BYTES: Final = 1024 * 1024 * 1024


class Receiving:
    """Takes over the parts of one turn.

    What is at the peer's own address is for those who have its credentials, and may go with its
    task: it becomes ours. URLs that lead elsewhere stay as they are.
    """

    def __init__(self, task: TaskContext, peer: Peer) -> None:
        self._task = task
        self._peer = peer
        # Where our credentials go anyway.
        self._origins = {urlsplit(url)[:2] for url in (peer.settings.url, peer.card.interface.url)}

    async def taken(self, parts: Iterable[part_pb2.Part]) -> list[part_pb2.Part]:
        """Return the parts as they are ours; what can't be fetched keeps its URL."""
        return [await self._taken(part) if part.url else part for part in parts]

    async def _taken(self, part: part_pb2.Part) -> part_pb2.Part:
        if urlsplit(part.url)[:2] not in self._origins:
            return part
        try:
            kept = await self._task.keep(
                self._pieces(part.url),
                media_type=part.media_type,
                filename=part.filename,
                # Told again, it isn't fetched again.
                key=hashlib.sha256(part.url.encode()).hexdigest(),
            )
        except TrunklineError as error:
            if self._task.is_over or self._task.is_lost:
                raise
            logger.info("remote.file_left", extra={"peer": self._peer.name, "reason": str(error)})
            return part
        for name, value in part.metadata.fields.items():
            if name not in kept.metadata.fields:
                kept.metadata.fields[name].CopyFrom(value)
        return kept

    async def _pieces(self, url: str) -> AsyncGenerator[bytes]:
        left = LIMIT_BYTES
        async with self._peer.download(url) as pieces:
            async for piece in pieces:
                left -= len(piece)
                if left < 0:
                    problem = f"its file is over {LIMIT_BYTES // 1024**3} GiB"
                    raise PeerProtocolError(self._peer.name, problem)
                yield piece
