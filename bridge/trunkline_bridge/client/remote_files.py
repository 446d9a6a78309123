"""Files as a remote agent gets them: what the mesh keeps goes along as bytes, URLs as they are."""

import hashlib
import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Final
from urllib.parse import urlsplit

from trunkline import TurnRuntime
from trunkline.client.artifacts import parse_reference
from trunkline.errors import InvalidArgumentError, PeerProtocolError, TrunklineError
from trunkline.v1 import part_pb2
from trunkline_bridge.client.a2a_client import A2AClient

# In base64 that is what servers take at the most without being asked to, ours among them.
INLINE_LIMIT_BYTES: Final = 3_000_000
# What parts say of content that is kept, and what makes no sense beside the content itself.
_STORED_FILE_KEYS: Final = ("size_bytes", "sha256")


async def inline_files(
    task: TurnRuntime, parts: Iterable[part_pb2.Part], *, peer: str
) -> list[part_pb2.Part]:
    """Return the parts of a message as somebody outside the mesh can read them.

    Raises:
        InvalidArgumentError: what the mesh keeps is more than a message can bring there.
        TrunklineError: it can't be read.
    """
    sent: list[part_pb2.Part] = []
    left = INLINE_LIMIT_BYTES
    for part in parts:
        if parse_reference(part.url) is None:
            sent.append(part)
            continue
        try:
            content = await task.read(part, limit_bytes=left)
        except InvalidArgumentError:
            problem = (
                f"is too large to be sent to {peer} "
                f"(at most {INLINE_LIMIT_BYTES / 1e6:g} MB in all); "
                "send a URL where it can be fetched from"
            )
            raise InvalidArgumentError(part.filename or "the file", problem) from None
        left -= len(content)
        inline = part_pb2.Part(raw=content, filename=part.filename, media_type=part.media_type)
        if part.HasField("metadata"):
            inline.metadata.CopyFrom(part.metadata)
            for name in _STORED_FILE_KEYS:
                inline.metadata.fields.pop(name, None)
            if not inline.metadata.fields:
                inline.ClearField("metadata")
        sent.append(inline)
    return sent


logger = logging.getLogger(__name__)

DOWNLOAD_LIMIT_BYTES: Final = 1024 * 1024 * 1024


class FileReceiver:
    """Takes over the parts of one turn.

    What is at the peer's own address is for those who have its credentials, and may go with its
    task: it becomes ours. URLs that lead elsewhere stay as they are.
    """

    def __init__(self, task: TurnRuntime, peer: A2AClient) -> None:
        self._task = task
        self._peer = peer
        # Where our credentials go anyway.
        self._origins = {urlsplit(url)[:2] for url in (peer.settings.url, peer.card.interface.url)}

    async def receive(self, parts: Iterable[part_pb2.Part]) -> list[part_pb2.Part]:
        """Return the parts as they are ours; what can't be fetched keeps its URL."""
        return [await self._receive_part(part) if part.url else part for part in parts]

    async def _receive_part(self, part: part_pb2.Part) -> part_pb2.Part:
        if urlsplit(part.url)[:2] not in self._origins:
            return part
        try:
            kept = await self._task.store(
                self._download(part.url),
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

    async def _download(self, url: str) -> AsyncGenerator[bytes]:
        left = DOWNLOAD_LIMIT_BYTES
        async with aclosing(self._peer.download(url)) as pieces:
            async for piece in pieces:
                left -= len(piece)
                if left < 0:
                    problem = f"its file is over {DOWNLOAD_LIMIT_BYTES // 1024**3} GiB"
                    raise PeerProtocolError(self._peer.name, problem)
                yield piece
