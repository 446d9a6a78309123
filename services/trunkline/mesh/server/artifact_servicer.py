"""The servicer of trunkline.v1.ArtifactService: content that is too large for events, in chunks."""

import hashlib
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, suppress
from typing import Any, Final, TypeAlias

import grpc

from trunkline.errors import ArtifactNotFoundError, InvalidArgumentError
from trunkline.journal.artifacts import Blob, Reference, parse_reference
from trunkline.journal.artifacts.content import CHUNK_BYTES
from trunkline.observe.audit import Action, AuditLog, process_actor, recording
from trunkline.tasks.content import part_content
from trunkline.tasks.host import TaskHost
from trunkline.v1 import artifact_pb2, artifact_service_pb2, artifact_service_pb2_grpc, part_pb2

_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

SERVICE: Final = artifact_service_pb2.DESCRIPTOR.services_by_name["ArtifactService"].full_name

_PAGE_SIZE: Final = 50
_MAX_PAGE_SIZE: Final = 100
_TOKEN_DIGITS: Final = 9


class ArtifactServicer(artifact_service_pb2_grpc.ArtifactServiceServicer):
    """Serves the content of a host's tasks to the tasks' accounts."""

    def __init__(self, host: TaskHost, audit: AuditLog | None = None) -> None:
        """Without an audit log, nothing is recorded."""
        self._host = host
        self._audit = audit

    async def DownloadArtifact(
        self, request: artifact_service_pb2.DownloadArtifactRequest, _context: _Context
    ) -> AsyncIterator[artifact_service_pb2.DownloadArtifactResponse]:
        blob, inline = await self._find(request)
        if request.offset > blob.size_bytes:
            problem = f"is behind the end: the content has {blob.size_bytes} bytes"
            raise InvalidArgumentError("offset", problem)
        response = artifact_service_pb2.DownloadArtifactResponse(
            offset=request.offset,
            size_bytes=blob.size_bytes,
            sha256=blob.sha256,
            media_type=blob.media_type,
            filename=blob.filename,
        )
        # The size comes before the data.
        yield response
        offset = request.offset
        async with aclosing(self._read_chunks(request, blob, inline)) as chunks:
            async for chunk in chunks:
                yield artifact_service_pb2.DownloadArtifactResponse(offset=offset, data=chunk)
                offset += len(chunk)

    async def UploadArtifact(
        self,
        requests: AsyncIterator[artifact_service_pb2.UploadArtifactRequest],
        context: _Context,
    ) -> artifact_service_pb2.UploadArtifactResponse:
        first_request = await anext(requests, None)
        if first_request is None:
            raise InvalidArgumentError(
                "request", "is missing: the first request must name the task"
            )
        await self._host.journals.acquire(
            first_request.task_id, first_request.account, may_have_ended=True
        )
        blobs = await self._host.blobs(first_request.task_id, account=first_request.account)
        reference = Reference.create(first_request.task_id, first_request.artifact_id)
        with suppress(ArtifactNotFoundError):
            return _build_stored_response(await blobs.get(reference))
        async with blobs.open_writer(
            reference, media_type=first_request.media_type, filename=first_request.filename
        ) as writer:
            request = first_request
            while True:
                if len(request.data) > CHUNK_BYTES:
                    raise InvalidArgumentError("data", f"is larger than {CHUNK_BYTES} bytes")
                if request.data:
                    await writer.write(request.data, at=request.offset)
                if request.sha256:
                    with recording(
                        self._audit,
                        Action.FILE_CREATE,
                        lambda: process_actor(context.peer(), account=first_request.account),
                        task=first_request.task_id,
                        file=first_request.artifact_id,
                    ):
                        await writer.finish(request.sha256)
                    return _build_stored_response(await blobs.get(reference))
                next_request = await anext(requests, None)
                if next_request is None:
                    await writer.flush()
                    return artifact_service_pb2.UploadArtifactResponse(
                        size_bytes=writer.offset, sha256=writer.sha256
                    )
                request = next_request

    async def ListArtifacts(
        self, request: artifact_service_pb2.ListArtifactsRequest, _context: _Context
    ) -> artifact_service_pb2.ListArtifactsResponse:
        snapshot = await self._host.snapshot(request.task_id, account=request.account)
        start = _parse_page_token(request.page_token)
        if request.page_size < 0:
            raise InvalidArgumentError("page_size", f"must be 1 to {_MAX_PAGE_SIZE}, or left out")
        end = start + (
            min(request.page_size, _MAX_PAGE_SIZE) if request.page_size > 0 else _PAGE_SIZE
        )
        artifacts = snapshot.task.artifacts
        response = artifact_service_pb2.ListArtifactsResponse(
            artifacts=[_strip_content(artifact) for artifact in artifacts[start:end]]
        )
        if end < len(artifacts):
            response.next_page_token = str(end)
        return response

    async def _find(
        self, request: artifact_service_pb2.DownloadArtifactRequest
    ) -> tuple[Blob, bytes | None]:
        """Return a blob by its reference, or an artifact's part and its inline content."""
        blobs = await self._host.blobs(request.task_id, account=request.account)
        reference = Reference.create(request.task_id, request.artifact_id)
        with suppress(ArtifactNotFoundError):
            return await blobs.get(reference), None
        snapshot = await self._host.snapshot(request.task_id, account=request.account)
        for artifact in snapshot.task.artifacts:
            if artifact.artifact_id == request.artifact_id and request.part < len(artifact.parts):
                return await self._open_part(request, artifact.parts[request.part])
        raise ArtifactNotFoundError(request.task_id, request.artifact_id)

    async def _open_part(
        self, request: artifact_service_pb2.DownloadArtifactRequest, part: part_pb2.Part
    ) -> tuple[Blob, bytes | None]:
        if part.HasField("url"):
            target = parse_reference(part.url)
            if target is None or target.task_id != request.task_id:
                raise InvalidArgumentError("part", f"is not here; fetch it from {part.url}")
            blobs = await self._host.blobs(request.task_id, account=request.account)
            return await blobs.get(target), None
        content = part_content(part)
        media_type = part.media_type or ("application/json" if part.HasField("data") else "")
        sha256 = hashlib.sha256(content).hexdigest()
        reference = Reference.create(request.task_id, request.artifact_id)
        blob = Blob(reference, len(content), sha256, media_type, part.filename)
        return blob, content

    async def _read_chunks(
        self,
        request: artifact_service_pb2.DownloadArtifactRequest,
        blob: Blob,
        inline: bytes | None,
    ) -> AsyncGenerator[bytes]:
        if inline is None:
            blobs = await self._host.blobs(request.task_id, account=request.account)
            stream = blobs.read(blob.reference, offset=request.offset, length=request.length)
            async with aclosing(stream) as chunks:
                async for chunk in chunks:
                    yield chunk
            return
        end = request.offset + request.length if request.length else len(inline)
        for offset in range(request.offset, min(end, len(inline)), CHUNK_BYTES):
            yield inline[offset : min(offset + CHUNK_BYTES, end)]


def _parse_page_token(page_token: str) -> int:
    if not page_token:
        return 0
    # A short number: Python refuses to read thousands of digits.
    if not page_token.isascii() or not page_token.isdecimal() or len(page_token) > _TOKEN_DIGITS:
        problem = "is not a page token; send the one of the previous page, or none"
        raise InvalidArgumentError("page_token", problem)
    return int(page_token)


def _build_stored_response(blob: Blob) -> artifact_service_pb2.UploadArtifactResponse:
    return artifact_service_pb2.UploadArtifactResponse(
        size_bytes=blob.size_bytes, sha256=blob.sha256, url=blob.reference.url
    )


def _strip_content(artifact: artifact_pb2.Artifact) -> artifact_pb2.Artifact:
    stripped = artifact_pb2.Artifact()
    stripped.CopyFrom(artifact)
    for part in stripped.parts:
        for content in ("text", "raw", "data"):
            part.ClearField(content)
    return stripped
