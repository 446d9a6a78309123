"""Downloads and uploads of content that is too large for events, on the host that has it."""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Final

from trunkline.core.backoff import RetryWindow
from trunkline.core.json_values import update_struct
from trunkline.errors import (
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnavailableError,
    TaskNotFoundError,
)
from trunkline.journal.artifacts.content import FileContent, iter_chunks
from trunkline.journal.artifacts.references import Reference, parse_reference, sanitize_filename
from trunkline.mesh.client.channels import MeshChannel
from trunkline.mesh.client.directory import Directory
from trunkline.mesh.client.methods import canceling
from trunkline.mesh.client.resuming_stream import CUT_ERRORS, PATIENCE_S
from trunkline.v1 import artifact_service_pb2, artifact_service_pb2_grpc, part_pb2

__all__ = ["ArtifactClient", "Download", "Reference", "parse_reference", "sanitize_filename"]

# The size of one download call. With flow control alone, megabytes would wait for a slow reader.
_PIECE_BYTES: Final = 512 * 1024
# A host that sends nothing for this long is gone or frozen.
_IDLE_TIMEOUT_S: Final = 20.0


class Download:
    """Content that is being read: its attributes, and its bytes, which can be read once."""

    def __init__(
        self,
        first_response: artifact_service_pb2.DownloadArtifactResponse,
        chunks: AsyncGenerator[bytes],
    ) -> None:
        self.size_bytes: int = first_response.size_bytes
        """The size of the whole content, even if only a range was requested."""
        self.sha256: str = first_response.sha256
        """The checksum of the whole content, in hexadecimal."""
        self.media_type: str = first_response.media_type
        self.filename: str = first_response.filename
        self._chunks = chunks

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._chunks


class ArtifactClient:
    """Reads and writes the content stored with tasks. Raises TrunklineErrors only.

    A call that is cut continues where it stopped, on the host that then serves the task. It fails
    once nothing has arrived for `patience_s` seconds.
    """

    def __init__(self, directory: Directory, *, patience_s: float = PATIENCE_S) -> None:
        self._directory = directory
        self._patience_s = patience_s

    @asynccontextmanager
    async def open(
        self, reference: Reference, *, account: str, offset: int = 0, length: int = 0
    ) -> AsyncIterator[Download]:
        """Read content from an offset; a length of 0 reads to the end.

        The checksum is verified if all of the content is read.

        Raises:
            TaskNotFoundError, ArtifactNotFoundError: the account has no such content.
            InvalidArgumentError: the offset is after the end.
            PeerUnavailableError, PeerTimeoutError, JournalUnavailableError: it can't be read now.
            PeerProtocolError: the content does not match its checksum.
        """
        stream = self._read(reference, account, offset, length)
        async with aclosing(stream) as responses:
            first_response = await anext(responses)
            async with aclosing(_iter_data(responses)) as chunks:
                yield Download(first_response, chunks)

    async def upload(
        self,
        task_id: str,
        account: str,
        content: FileContent,
        *,
        media_type: str = "",
        filename: str = "",
    ) -> part_pb2.Part:
        """Store content with a task; return the part that refers to it.

        An upload of bytes or a file continues after a cut. An iterator can be read only once, so
        a cut ends its upload.

        Raises:
            TaskNotFoundError: the account has no such task.
            InvalidArgumentError: the content is too large.
            PeerUnavailableError, PeerTimeoutError, JournalUnavailableError: it can't be stored now.
            OSError: the file can't be read.
        """
        start_request = artifact_service_pb2.UploadArtifactRequest(
            task_id=task_id,
            account=account,
            artifact_id=Reference.new(task_id).blob_id,
            media_type=media_type,
            filename=filename,
        )
        retries = RetryWindow(self._patience_s)
        while True:
            upload = _Upload(start_request, content)
            try:
                response = await upload.run(self._channel(task_id), retries)
                break
            except CUT_ERRORS as error:
                if not isinstance(content, bytes | Path):
                    raise
                await asyncio.sleep(retries.next_pause_s(error))
            except TaskNotFoundError as error:
                if not retries.is_retrying:
                    raise
                await asyncio.sleep(retries.next_pause_s(error))
        part = part_pb2.Part(url=response.url, media_type=media_type, filename=filename)
        metadata = {"size_bytes": response.size_bytes, "sha256": response.sha256}
        update_struct(part.metadata, metadata)
        return part

    async def _read(
        self, reference: Reference, account: str, offset: int, length: int
    ) -> AsyncGenerator[artifact_service_pb2.DownloadArtifactResponse]:
        """Yield the first response, then the responses with data. Each byte is yielded once.

        Requests one piece at a time, so at most one piece waits for a slow reader.
        """
        retries = RetryWindow(self._patience_s)
        sha256 = hashlib.sha256()
        first_response: artifact_service_pb2.DownloadArtifactResponse | None = None
        position, end = offset, offset + (length or _PIECE_BYTES)
        while first_response is None or position < end:
            request = artifact_service_pb2.DownloadArtifactRequest(
                task_id=reference.task_id,
                account=account,
                artifact_id=reference.blob_id,
                offset=position,
                length=min(_PIECE_BYTES, end - position),
            )
            piece_end = position + request.length
            try:
                async with aclosing(
                    _iter_responses(self._channel(reference.task_id), request)
                ) as responses:
                    async for response in responses:
                        retries.reset()
                        if first_response is None:
                            first_response = response
                            size_bytes = response.size_bytes
                            end = min(end, size_bytes) if length else size_bytes
                            yield first_response
                        if response.data:
                            position += len(response.data)
                            sha256.update(response.data)
                            yield response
                if first_response is None or position < min(piece_end, end):
                    raise PeerUnavailableError("the file's host", "it ended the file early")
            except (*CUT_ERRORS, TaskNotFoundError) as error:
                if isinstance(error, TaskNotFoundError) and not retries.is_retrying:
                    raise
                await asyncio.sleep(retries.next_pause_s(error))
        is_complete = offset == 0 and position == first_response.size_bytes
        if is_complete and sha256.hexdigest() != first_response.sha256:
            raise PeerProtocolError("the file's host", "the file does not match its checksum")

    def _channel(self, task_id: str) -> MeshChannel:
        return self._directory.channel_for_task(task_id)


class _Upload:
    """One try at an upload: asks the host how many bytes it has stored, and sends the rest."""

    def __init__(
        self,
        start_request: artifact_service_pb2.UploadArtifactRequest,
        content: FileContent,
    ) -> None:
        self._start_request = start_request
        self._content = content

    async def run(
        self, channel: MeshChannel, retries: RetryWindow
    ) -> artifact_service_pb2.UploadArtifactResponse:
        stub = artifact_service_pb2_grpc.ArtifactServiceStub(channel)
        state = artifact_service_pb2.UploadArtifactResponse()
        if isinstance(self._content, bytes | Path):
            state = await stub.UploadArtifact(
                _iter_single(self._start_request), timeout=_IDLE_TIMEOUT_S
            )
        retries.reset()
        if state.url:
            return state
        # No deadline: keepalive pings detect a host that is gone or frozen.
        response = await stub.UploadArtifact(self._iter_requests(state.size_bytes))
        if not response.url:
            raise PeerUnavailableError(channel.address, "it ended the upload early")
        return response

    async def _iter_requests(
        self, stored_bytes: int
    ) -> AsyncGenerator[artifact_service_pb2.UploadArtifactRequest]:
        yield self._start_request
        sha256 = hashlib.sha256()
        position = 0
        async with aclosing(iter_chunks(self._content)) as pieces:
            async for piece in pieces:
                sha256.update(piece)
                missing = piece[max(0, stored_bytes - position) :]
                if missing:
                    yield artifact_service_pb2.UploadArtifactRequest(
                        offset=position + len(piece) - len(missing), data=missing
                    )
                position += len(piece)
        yield artifact_service_pb2.UploadArtifactRequest(offset=position, sha256=sha256.hexdigest())


async def _iter_single(
    request: artifact_service_pb2.UploadArtifactRequest,
) -> AsyncGenerator[artifact_service_pb2.UploadArtifactRequest]:
    yield request


async def _iter_responses(
    channel: MeshChannel, request: artifact_service_pb2.DownloadArtifactRequest
) -> AsyncGenerator[artifact_service_pb2.DownloadArtifactResponse]:
    stub = artifact_service_pb2_grpc.ArtifactServiceStub(channel)
    with canceling(stub.DownloadArtifact(request)) as call:
        responses = aiter(call)
        while True:
            try:
                async with asyncio.timeout(_IDLE_TIMEOUT_S):
                    response = await anext(responses, None)
            except TimeoutError:
                problem = f"nothing came for {_IDLE_TIMEOUT_S:g} s"
                raise PeerTimeoutError(channel.address, problem) from None
            if response is None:
                return
            yield response


async def _iter_data(
    responses: AsyncGenerator[artifact_service_pb2.DownloadArtifactResponse],
) -> AsyncGenerator[bytes]:
    async for response in responses:
        yield response.data
