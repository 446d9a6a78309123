"""The content of parts: in the part, beside the journal, on another host, or on the web."""

import hashlib
import json
import mimetypes
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from typing import Final, TypeAlias

from google.protobuf import json_format

from trunkline.artifacts import BlobStore, Reference, blob_folder, parse_reference
from trunkline.artifacts.content import Content, iter_chunks
from trunkline.artifacts.references import exceeds_inline_limit
from trunkline.errors import InvalidArgumentError, UnsupportedOperationError
from trunkline.journal.journal import Journal
from trunkline.tasks.accounts import find_row, own_row
from trunkline.v1 import artifact_pb2, message_pb2, part_pb2

# Opens what a URL leads to, for an account: references of other hosts, and the web.
OpenRemote: TypeAlias = Callable[[str, str], AbstractAsyncContextManager[AsyncIterator[bytes]]]
Source: TypeAlias = str | Content
"""Content to attach: bytes, the path of a file, or pieces as they come."""

READ_LIMIT_BYTES: Final = 64 * 1024 * 1024


class JournalFiles:
    """The files of a journal's tasks, and the way to all others."""

    def __init__(self, journal: Journal, elsewhere: OpenRemote | None = None) -> None:
        self._journal = journal
        self._elsewhere = elsewhere
        self.blobs = None if journal.path is None else BlobStore(blob_folder(journal.path))
        """None: the journal keeps no files, and parts stay as they are."""

    @property
    def local(self) -> BlobStore:
        """The store beside the journal. UnsupportedOperationError: the journal stores no files."""
        if self.blobs is None:
            raise UnsupportedOperationError("a file", "this journal is not in a file itself")
        return self.blobs

    def has_task(self, task_id: str) -> bool:
        """Return True if the journal has the task. JournalUnavailableError."""
        return find_row(self._journal, task_id) is not None

    async def store(self, task_id: str, part: part_pb2.Part) -> part_pb2.Part:
        """Return a part that may ride in an event: of big content, a reference."""
        if not exceeds_inline_limit(part) or self.blobs is None:
            return part
        # By its content: a turn that runs again, or a message that comes again, adds nothing.
        blob_id = hashlib.sha256(part.raw).hexdigest()[:40]
        blob = await self.blobs.put(
            Reference.create(task_id, blob_id),
            part.raw,
            media_type=part.media_type,
            filename=part.filename,
        )
        kept = blob.to_part()
        kept.metadata.MergeFrom(part.metadata)
        # The author's file name stays.
        kept.filename = part.filename
        return kept

    async def store_message(
        self, task_id: str, message: message_pb2.Message
    ) -> message_pb2.Message:
        """Return a message whose parts may ride in an event."""
        if not any(exceeds_inline_limit(part) for part in message.parts):
            return message
        kept = message_pb2.Message()
        kept.CopyFrom(message)
        del kept.parts[:]
        for part in message.parts:
            kept.parts.append(await self.store(task_id, part))
        return kept

    @asynccontextmanager
    async def open(
        self, part: part_pb2.Part, *, account: str, task_id: str
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Open a part's content, wherever it is, as the account may see it, for a task of its own.

        Raises:
            InvalidArgumentError, ArtifactNotFoundError, TaskNotFoundError: there is nothing.
            TrunklineError: it can't be read.
        """
        if not part.HasField("url"):
            yield _inline(part)
            return
        reference = parse_reference(part.url)
        if reference is not None and reference.task_id.startswith(f"{self._journal.id}-"):
            # Its own task may not be in the journal yet, while it may still be answered directly.
            if reference.task_id != task_id:
                own_row(self._journal, reference.task_id, account)
            # That it is there is known before the first byte.
            blob = await self.local.get(reference)
            async with aclosing(self.local.read(blob.reference)) as chunks:
                yield chunks
            return
        if self._elsewhere is None:
            raise UnsupportedOperationError("this file", "nothing here can fetch it")
        async with self._elsewhere(part.url, account) as chunks:
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
        """Return a part that may ride in an event: of big content, a reference."""
        return await self._files.store(self._task_id, part)

    async def store_message(self, message: message_pb2.Message) -> message_pb2.Message:
        """Return a message whose parts may ride in an event."""
        return await self._files.store_message(self._task_id, message)

    async def store_artifact(self, artifact: artifact_pb2.Artifact) -> artifact_pb2.Artifact:
        """Return an artifact whose parts may ride in an event."""
        if not any(exceeds_inline_limit(part) for part in artifact.parts):
            return artifact
        kept = artifact_pb2.Artifact()
        kept.CopyFrom(artifact)
        del kept.parts[:]
        for part in artifact.parts:
            kept.parts.append(await self.store(part))
        return kept

    async def attach(
        self, source: Source, *, media_type: str, filename: str, key: str = ""
    ) -> part_pb2.Part:
        """Keep content and return the part that refers to it; see `ArtifactWriter.attach`."""
        if isinstance(source, str | Path):
            source = Path(source)
            filename = filename or source.name
        media_type = media_type or mimetypes.guess_type(filename)[0] or "application/octet-stream"
        reference = Reference.new(self._task_id)
        if key:
            reference = Reference.create(
                self._task_id, hashlib.sha256(key.encode()).hexdigest()[:40]
            )
        blob = await self._files.local.put(
            reference, source, media_type=media_type, filename=filename
        )
        return blob.to_part()


def _inline(part: part_pb2.Part) -> AsyncGenerator[bytes]:
    match part.WhichOneof("content"):
        case "raw":
            content = part.raw
        case "data":
            content = json.dumps(json_format.MessageToDict(part.data)).encode()
        case _:
            content = part.text.encode()
    return iter_chunks(content)
