"""Reads and stores the content of parts: in the part, in a store, on a host, on the web."""

import asyncio
import hashlib
import json
import logging
import mimetypes
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from typing import Final, TypeAlias

from trunkline.core.json_values import value_json
from trunkline.errors import (
    FencedError,
    InvalidArgumentError,
    JournalUnavailableError,
    UnsupportedOperationError,
)
from trunkline.journal.artifacts import BlobStore, Reference, parse_reference
from trunkline.journal.artifacts.content import FileContent, iter_chunks
from trunkline.journal.artifacts.references import exceeds_inline_limit
from trunkline.journal.journal import Journal
from trunkline.tasks.task_rows import get_account_row
from trunkline.v1 import artifact_pb2, message_pb2, part_pb2

logger = logging.getLogger(__name__)

OpenRemote: TypeAlias = Callable[[str, str], AbstractAsyncContextManager[AsyncIterator[bytes]]]
"""Opens a URL for an account: a file on another host of the mesh, or on the web."""
FileSource: TypeAlias = str | FileContent
"""Content to attach: bytes, the path of a file, or an iterator of chunks."""

READ_LIMIT_BYTES: Final = 64 * 1024 * 1024
_SWEEP_INTERVAL_S: Final = 600.0


class JournalFiles:
    """The files of a journal's tasks; opens files of other hosts through `open_remote`."""

    def __init__(self, journal: Journal, open_remote: OpenRemote | None = None) -> None:
        self._journal = journal
        self._open_remote = open_remote
        self.blobs: BlobStore | None = journal.blobs
        """None if the journal stores no files; parts then stay inline."""

    @property
    def local(self) -> BlobStore:
        """The store of the journal's files.

        Raises:
            UnsupportedOperationError: the journal stores no files.
        """
        if self.blobs is None:
            raise UnsupportedOperationError("a file", "this journal stores none")
        return self.blobs

    async def has_task(self, task_id: str) -> bool:
        """Return True if the journal has the task.

        Raises:
            JournalUnavailableError: the journal can't be read.
        """
        return await self._journal.find(task_id) is not None

    async def store(self, task_id: str, part: part_pb2.Part) -> part_pb2.Part:
        """Return a part that fits in an event: large content is replaced by a reference."""
        if not exceeds_inline_limit(part) or self.blobs is None:
            return part
        # A hash of the content, so that a repeated turn or message does not store it twice.
        blob_id = hashlib.sha256(part.raw).hexdigest()[:40]
        blob = await self.blobs.put(
            Reference.create(task_id, blob_id),
            part.raw,
            media_type=part.media_type,
            filename=part.filename,
        )
        stored = blob.to_part()
        stored.metadata.MergeFrom(part.metadata)
        # Without a filename the store generates one, which callers should not see.
        stored.filename = part.filename
        return stored

    async def store_message(
        self, task_id: str, message: message_pb2.Message
    ) -> message_pb2.Message:
        """Return a message whose parts fit in an event."""
        if not any(exceeds_inline_limit(part) for part in message.parts):
            return message
        stored = message_pb2.Message()
        stored.CopyFrom(message)
        del stored.parts[:]
        for part in message.parts:
            stored.parts.append(await self.store(task_id, part))
        return stored

    @asynccontextmanager
    async def open(
        self, part: part_pb2.Part, *, account: str, task_id: str
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a part's content on behalf of `task_id`, with the rights of its account.

        Raises:
            InvalidArgumentError, ArtifactNotFoundError, TaskNotFoundError: no such content.
            TrunklineError: the content can't be read.
        """
        if not part.HasField("url"):
            yield _inline(part)
            return
        reference = parse_reference(part.url)
        if reference is not None and reference.task_id.startswith(f"{self._journal.id}-"):
            # The caller's own task needs no check, and may not be in the journal yet.
            if reference.task_id != task_id:
                await get_account_row(self._journal, reference.task_id, account)
            # Raises before the block begins if the file is missing.
            blob = await self.local.get(reference)
            async with aclosing(self.local.read(blob.reference)) as chunks:
                yield chunks
            return
        if self._open_remote is None:
            raise UnsupportedOperationError("this file", "nothing here can fetch it")
        async with self._open_remote(part.url, account) as chunks:
            yield chunks


class TaskFiles:
    """The files of one task, for its agent."""

    def __init__(self, files: JournalFiles, task_id: str, account: str) -> None:
        self._files = files
        self._task_id = task_id
        self._account = account

    def open(self, part: part_pb2.Part) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open a part's content; see `TurnRuntime.open`."""
        return self._files.open(part, account=self._account, task_id=self._task_id)

    async def read(self, part: part_pb2.Part, limit_bytes: int) -> bytes:
        """Return a part's content; see `TurnRuntime.read`."""
        content = bytearray()
        async with self.open(part) as chunks:
            async for chunk in chunks:
                content += chunk
                if len(content) > limit_bytes:
                    name = part.filename or "the file"
                    problem = f"is larger than {limit_bytes} bytes; send a smaller one"
                    raise InvalidArgumentError(name, problem)
        return bytes(content)

    async def store(self, part: part_pb2.Part) -> part_pb2.Part:
        """Return a part that fits in an event: large content is replaced by a reference."""
        return await self._files.store(self._task_id, part)

    async def store_message(self, message: message_pb2.Message) -> message_pb2.Message:
        """Return a message whose parts fit in an event."""
        return await self._files.store_message(self._task_id, message)

    async def store_artifact(self, artifact: artifact_pb2.Artifact) -> artifact_pb2.Artifact:
        """Return an artifact whose parts fit in an event."""
        if not any(exceeds_inline_limit(part) for part in artifact.parts):
            return artifact
        stored = artifact_pb2.Artifact()
        stored.CopyFrom(artifact)
        del stored.parts[:]
        for part in artifact.parts:
            stored.parts.append(await self.store(part))
        return stored

    async def attach(
        self, source: FileSource, *, media_type: str, filename: str, key: str = ""
    ) -> part_pb2.Part:
        """Store content and return the part that refers to it; see `ArtifactWriter.attach`."""
        if isinstance(source, str | Path):
            source = Path(source)
            filename = filename or source.name
        media_type = media_type or mimetypes.guess_type(filename)[0] or "application/octet-stream"
        reference = keyed_reference(self._task_id, key) if key else Reference.new(self._task_id)
        blob = await self._files.local.put(
            reference, source, media_type=media_type, filename=filename
        )
        return blob.to_part()


def keyed_reference(task_id: str, key: str) -> Reference:
    """Return the reference to the content that a task stores under a key."""
    return Reference.create(task_id, hashlib.sha256(key.encode()).hexdigest()[:40])


def _inline(part: part_pb2.Part) -> AsyncGenerator[bytes]:
    match part.WhichOneof("content"):
        case "raw":
            content = part.raw
        case "data":
            content = json.dumps(value_json(part.data), ensure_ascii=False).encode()
        case _:
            content = part.text.encode()
    return iter_chunks(content)


async def sweep(files: JournalFiles, has_slot: Callable[[str], bool]) -> None:
    """Remove the files of deleted tasks, every ten minutes, until this call is canceled."""
    suspects: set[str] = set()
    while True:
        await asyncio.sleep(_SWEEP_INTERVAL_S)
        try:
            suspects = await sweep_once(files, has_slot, suspects)
        except (JournalUnavailableError, FencedError) as error:
            logger.warning("artifacts.not_swept", extra={"reason": error.reason})


async def sweep_once(
    files: JournalFiles, has_slot: Callable[[str], bool], suspects: set[str]
) -> set[str]:
    """Remove the files of missing tasks that are in `suspects`; return the other missing tasks.

    The result is the `suspects` of the next call. Files may be stored shortly before their task
    exists, so they are removed only if it is missing twice. `has_slot` returns True for a task
    that is being created, run or ended.
    """
    if files.blobs is None:
        return set()
    missing: set[str] = set()
    for task_id in await files.blobs.list_task_ids():
        if not has_slot(task_id) and not await files.has_task(task_id):
            missing.add(task_id)
        await asyncio.sleep(0)
    removed = missing & suspects
    await files.blobs.remove(removed)
    await files.blobs.remove_abandoned()
    if removed:
        logger.info("artifacts.swept", extra={"tasks": len(removed)})
    return missing - removed
