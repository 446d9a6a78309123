"""Content that is too big for events, wherever on the mesh it lies: read, and written."""

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import grpc

from trunkline.artifacts.content import Content, iter_chunks
from trunkline.artifacts.references import Reference, parse_reference, sanitize_filename
from trunkline.client.backoff import Backoff
from trunkline.client.channels import peer_address
from trunkline.client.status import translate_errors
from trunkline.client.task_stream import PATIENCE_S
from trunkline.errors import (
    FencedError,
    JournalUnavailableError,
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnavailableError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.v1 import artifact_service_pb2, artifact_service_pb2_grpc, part_pb2

if TYPE_CHECKING:
    from trunkline.client.directory import Directory

__all__ = ["ArtifactClient", "Download", "Reference", "parse_reference", "sanitize_filename"]

# What one call brings: with flow control alone, a slow reader would have megabytes waiting.
_PIECE_BYTES: Final = 512 * 1024
# A host that sends nothing for so long is gone, or frozen.
_SILENCE_S: Final = 20.0
# The content is well, or will be on another host.
_CUTS: Final = (PeerUnavailableError, PeerTimeoutError, JournalUnavailableError, FencedError)


class Download:
    """Content that is being read: what is known of it, and its bytes, once."""

    def __init__(
        self, first: artifact_service_pb2.DownloadArtifactResponse, chunks: AsyncGenerator[bytes]
    ) -> None:
        self.size_bytes = first.size_bytes
        """Of the whole content, whatever was asked for."""
        self.sha256 = first.sha256
        """Of the whole content, hexadecimal."""
        self.media_type = first.media_type
        self.filename = first.filename
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks


class ArtifactClient:
    """Reads and writes content beside the journals of tasks. Raises TrunklineErrors only.

    A call that is cut goes on where it was, on whatever host serves the task then, as long as
    something comes within `patience_s`.
    """

    def __init__(self, directory: "Directory", *, patience_s: float = PATIENCE_S) -> None:
        self._directory = directory
        self._patience_s = patience_s

    @asynccontextmanager
    async def open(
        self, reference: Reference, *, account: str, offset: int = 0, length: int = 0
    ) -> AsyncIterator[Download]:
        """Read content from an offset on; a length of 0 is to the end.

        What is read whole is held against its checksum.

        Raises:
            TaskNotFoundError, ArtifactNotFoundError: there is none that the account may see.
            InvalidArgumentError: the offset is behind the end.
            PeerUnavailableError, PeerTimeoutError, JournalUnavailableError: it can't be read now.
            PeerProtocolError: it is not what its checksum says.
        """
        reading = self._read(reference, account, offset, length)
        async with aclosing(reading) as responses:
            first = await anext(responses)
            async with aclosing(_data(responses)) as chunks:
                yield Download(first, chunks)

    async def upload(
        self,
        task_id: str,
        account: str,
        content: Content,
        *,
        media_type: str = "",
        filename: str = "",
    ) -> part_pb2.Part:
        """Keep content with a task; return the part that refers to it.

        Bytes and files are gone on with after a cut; of pieces that come once, a cut is the end.

        Raises:
            TaskNotFoundError: no such task of the account.
            InvalidArgumentError: it is too large.
            PeerUnavailableError, PeerTimeoutError, JournalUnavailableError: it can't be kept now.
            OSError: the file can't be read.
        """
        begin = artifact_service_pb2.UploadArtifactRequest(
            task_id=task_id,
            account=account,
            artifact_id=Reference.new(task_id).blob_id,
            media_type=media_type,
            filename=filename,
        )
        trouble = _Trouble(self._patience_s)
        while True:
            upload = _Upload(begin, content)
            try:
                held = await upload.run(self._channel(task_id), trouble)
                break
            except _CUTS as error:
                if not isinstance(content, bytes | Path):
                    raise
                await trouble.rest(error)
            except TaskNotFoundError as error:
                if not trouble.is_on:
                    raise
                await trouble.rest(error)
        part = part_pb2.Part(url=held.url, media_type=media_type, filename=filename)
        part.metadata.update({"size_bytes": held.size_bytes, "sha256": held.sha256})
        return part

    async def _read(
        self, reference: Reference, account: str, offset: int, length: int
    ) -> AsyncGenerator[artifact_service_pb2.DownloadArtifactResponse]:
        """Yield the first response, and then those with data, each byte once.

        A piece at a time is asked for: however slow a reader is, no more than one is under way.
        """
        trouble = _Trouble(self._patience_s)
        sha256 = hashlib.sha256()
        first: artifact_service_pb2.DownloadArtifactResponse | None = None
        at, end = offset, offset + (length or _PIECE_BYTES)
        while first is None or at < end:
            request = artifact_service_pb2.DownloadArtifactRequest(
                task_id=reference.task_id,
                account=account,
                artifact_id=reference.blob_id,
                offset=at,
                length=min(_PIECE_BYTES, end - at),
            )
            until = at + request.length
            try:
                async with aclosing(_responses(self._channel(reference.task_id), request)) as got:
                    async for response in got:
                        trouble.over()
                        if first is None:
                            first = response
                            end = min(end, first.size_bytes) if length else first.size_bytes
                            yield first
                        if response.data:
                            at += len(response.data)
                            sha256.update(response.data)
                            yield response
                if first is None or at < min(until, end):
                    raise PeerUnavailableError("the file's host", "it ended the file early")
            except (*_CUTS, TaskNotFoundError) as error:
                if isinstance(error, TaskNotFoundError) and not trouble.is_on:
                    raise
                await trouble.rest(error)
        if offset == 0 and at == first.size_bytes and sha256.hexdigest() != first.sha256:
            raise PeerProtocolError("the file's host", "the file is not what its checksum says")

    def _channel(self, task_id: str) -> grpc.aio.Channel:
        return self._directory.channel_for_task(task_id)


class _Trouble:
    """How long it has been going on, and how long that is put up with."""

    def __init__(self, patience_s: float) -> None:
        self._patience_s = patience_s
        self._since_s: float | None = None
        self._backoff = Backoff()

    @property
    def is_on(self) -> bool:
        """Whether something failed since something came."""
        return self._since_s is not None

    def over(self) -> None:
        """Something came."""
        if self._since_s is not None:
            self._since_s = None
            self._backoff.reset()

    async def rest(self, error: TrunklineError) -> None:
        """Wait before the next try, or raise the error when that is no use any more."""
        now_s = time.monotonic()
        self._since_s = now_s if self._since_s is None else self._since_s
        if now_s - self._since_s > self._patience_s:
            raise error
        await self._backoff.pause()


class _Upload:
    """One try at an upload: asks how much is held already, and sends the rest."""

    def __init__(
        self,
        begin: artifact_service_pb2.UploadArtifactRequest,
        content: Content,
    ) -> None:
        self._begin = begin
        self._content = content

    async def run(
        self, channel: grpc.aio.Channel, trouble: _Trouble
    ) -> artifact_service_pb2.UploadArtifactResponse:
        stub = artifact_service_pb2_grpc.ArtifactServiceStub(channel)
        with translate_errors(peer_address(channel)):
            held = artifact_service_pb2.UploadArtifactResponse()
            if isinstance(self._content, bytes | Path):
                held = await stub.UploadArtifact(_one(self._begin), timeout=_SILENCE_S)
            trouble.over()
            if held.url:
                return held
            # Without a deadline: pings find a host that is gone or frozen.
            answer = await stub.UploadArtifact(self._requests(held.size_bytes))
        if not answer.url:
            raise PeerUnavailableError(peer_address(channel), "it ended the upload early")
        return answer

    async def _requests(
        self, held_bytes: int
    ) -> AsyncGenerator[artifact_service_pb2.UploadArtifactRequest]:
        yield self._begin
        sha256 = hashlib.sha256()
        at = 0
        async with aclosing(iter_chunks(self._content)) as pieces:
            async for piece in pieces:
                sha256.update(piece)
                unheld = piece[max(0, held_bytes - at) :]
                if unheld:
                    yield artifact_service_pb2.UploadArtifactRequest(
                        offset=at + len(piece) - len(unheld), data=unheld
                    )
                at += len(piece)
        yield artifact_service_pb2.UploadArtifactRequest(offset=at, sha256=sha256.hexdigest())


async def _one(
    request: artifact_service_pb2.UploadArtifactRequest,
) -> AsyncGenerator[artifact_service_pb2.UploadArtifactRequest]:
    yield request


async def _responses(
    channel: grpc.aio.Channel, request: artifact_service_pb2.DownloadArtifactRequest
) -> AsyncGenerator[artifact_service_pb2.DownloadArtifactResponse]:
    peer = peer_address(channel)
    with translate_errors(peer):
        call = artifact_service_pb2_grpc.ArtifactServiceStub(channel).DownloadArtifact(request)
    responses = aiter(call)
    try:
        while True:
            try:
                with translate_errors(peer):
                    async with asyncio.timeout(_SILENCE_S):
                        response = await anext(responses, None)
            except TimeoutError:
                raise PeerTimeoutError(peer, f"nothing came for {_SILENCE_S:g} s") from None
            if response is None:
                return
            yield response
    finally:
        call.cancel()


async def _data(
    responses: AsyncGenerator[artifact_service_pb2.DownloadArtifactResponse],
) -> AsyncGenerator[bytes]:
    async for response in responses:
        yield response.data
