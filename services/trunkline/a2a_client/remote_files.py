"""Files between a local task and a remote agent: sent inline, and downloaded into our storage."""

import hashlib
import logging
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from typing import Final
from urllib.parse import urlsplit

from trunkline.a2a_client.a2a_client import A2AClient
from trunkline.core.json_values import has_member, remove_member
from trunkline.errors import InvalidArgumentError, PeerProtocolError, TrunklineError
from trunkline.mesh.client.artifacts import parse_reference
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import part_pb2

logger = logging.getLogger(__name__)

INLINE_LIMIT_BYTES: Final = 3_000_000
"""Limit of the files in one message: in base64, the default body limit of common servers."""
DOWNLOAD_LIMIT_BYTES: Final = 1024 * 1024 * 1024
# Metadata of stored files, which a part with inline content does not need.
_STORED_FILE_KEYS: Final = ("size_bytes", "sha256")


async def inline_files(
    task: TurnRuntime, parts: Iterable[part_pb2.Part], *, peer: str
) -> list[part_pb2.Part]:
    """Return a message's parts with the mesh's stored files replaced by their bytes.

    Raises:
        InvalidArgumentError: The files are larger than one message may be.
        TrunklineError: A file can't be read.
    """
    outgoing: list[part_pb2.Part] = []
    remaining_bytes = INLINE_LIMIT_BYTES
    for part in parts:
        if parse_reference(part.url) is None:
            outgoing.append(part)
            continue
        try:
            content = await task.read(part, limit_bytes=remaining_bytes)
        except InvalidArgumentError:
            problem = (
                f"is too large to be sent to {peer} "
                f"(at most {INLINE_LIMIT_BYTES / 1e6:g} MB in all); "
                "send a URL where it can be fetched from"
            )
            raise InvalidArgumentError(part.filename or "the file", problem) from None
        remaining_bytes -= len(content)
        inline = part_pb2.Part(raw=content, filename=part.filename, media_type=part.media_type)
        if part.HasField("metadata"):
            inline.metadata.CopyFrom(part.metadata)
            for name in _STORED_FILE_KEYS:
                remove_member(inline.metadata, name)
            if not inline.metadata.members:
                inline.ClearField("metadata")
        outgoing.append(inline)
    return outgoing


class FileReceiver:
    """Stores the files that a remote task refers to.

    A file at the peer's own address needs the peer's credentials and may be deleted with the remote
    task, so it is downloaded and stored with the local task. Other URLs stay unchanged.
    """

    def __init__(self, task: TurnRuntime, peer: A2AClient) -> None:
        self._task = task
        self._peer = peer
        # The addresses that get our credentials anyway.
        self._origins = {urlsplit(url)[:2] for url in (peer.settings.url, peer.card.interface.url)}

    async def receive(self, parts: Iterable[part_pb2.Part]) -> list[part_pb2.Part]:
        """Store the peer's files and return the parts. An unreadable file stays a URL."""
        return [await self._receive_part(part) if part.url else part for part in parts]

    async def _receive_part(self, part: part_pb2.Part) -> part_pb2.Part:
        if urlsplit(part.url)[:2] not in self._origins:
            return part
        try:
            stored = await self._task.store(
                self._download(part.url),
                media_type=part.media_type,
                filename=part.filename,
                # The same URL is downloaded once.
                key=hashlib.sha256(part.url.encode()).hexdigest(),
            )
        except TrunklineError as error:
            if self._task.is_over or self._task.is_lost:
                raise
            logger.info("remote.file_left", extra={"peer": self._peer.name, "reason": str(error)})
            return part
        for member in part.metadata.members:
            if not has_member(stored.metadata, member.key):
                stored.metadata.members.append(member)
        return stored

    async def _download(self, url: str) -> AsyncGenerator[bytes]:
        remaining_bytes = DOWNLOAD_LIMIT_BYTES
        async with aclosing(self._peer.download(url)) as pieces:
            async for piece in pieces:
                remaining_bytes -= len(piece)
                if remaining_bytes < 0:
                    problem = f"its file is over {DOWNLOAD_LIMIT_BYTES // 1024**3} GiB"
                    raise PeerProtocolError(self._peer.name, problem)
                yield piece
