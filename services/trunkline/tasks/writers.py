"""The objects by which an agent writes artifacts, plans and tool calls."""

import hashlib
from collections.abc import Awaitable, Callable, Sequence

from trunkline.errors import InvalidAgentResponseError
from trunkline.tasks.content import PIECE_TYPES, Piece, invalid_content, to_part
from trunkline.tasks.emitter import Emitter
from trunkline.tasks.files import FileSource, TaskFiles
from trunkline.tasks.rewind import build_rewound
from trunkline.v1 import artifact_pb2, event_pb2, part_pb2

# Creates the task if needed, enters `working`, and returns the emitter.
Begin = Callable[[], Awaitable[Emitter]]


class ArtifactWriter:
    """One artifact: created by its first append, closed once; only `replace` opens it again."""

    def __init__(
        self,
        begin: Begin,
        files: TaskFiles,
        agent: str,
        artifact_id: str,
        start: event_pb2.ArtifactStart,
        *,
        is_closed: bool | None,
    ) -> None:
        """`is_closed` is None for an artifact that does not exist yet; only it needs `start`."""
        self.id = artifact_id
        self._begin = begin
        self._files = files
        self._agent = agent
        self._start = start if is_closed is None else None
        self._is_closed = bool(is_closed)
        # Of the whole text, unless the artifact has other content or text that was written before.
        self._digest = _start_digest() if is_closed is None else None

    def has_text(self, text: str) -> bool:
        """Return whether the artifact is this text, all of it written by this object."""
        if self._digest is None:
            return False
        expected = _start_digest()
        expected.update(_encode(text))
        return self._digest.digest() == expected.digest()

    async def append(self, content: Piece, *, last: bool = False) -> None:
        """Add text, which continues the text before it, or a separate part, or a JSON object.

        `last` closes the artifact. Returns before the content is in the journal, unless too many
        bytes are pending. Bytes over 64 KiB are stored as a file, and the part refers to it.

        Raises:
            InvalidAgentResponseError: the content is of another type, the artifact is closed, or
                the turn is over.
            InvalidArgumentError: the object is no JSON.
            JournalUnavailableError: the disk has no room for the bytes.
        """
        if not isinstance(content, PIECE_TYPES):
            raise invalid_content(self._agent, "it appended", content, PIECE_TYPES)
        if not isinstance(content, str):
            content = await self._files.store(to_part(content))
        await self._write(content, last=last)

    async def attach(
        self, source: FileSource, *, media_type: str = "", filename: str = "", last: bool = False
    ) -> part_pb2.Part:
        """Add a file of any size: its path, its bytes, or an iterator of chunks.

        The file is stored as long as the task. It is read in chunks, one at a time. The media type
        defaults to the type of the filename. Returns the part, which refers to the content and has
        its size and checksum.

        Raises:
            InvalidAgentResponseError: the artifact is closed, or the turn is over.
            InvalidArgumentError: it is larger than 4 GiB.
            JournalUnavailableError: the disk is full, or can't be written.
            OSError: the file can't be read.
        """
        part = await self._files.attach(source, media_type=media_type, filename=filename)
        await self._write(part, last=last)
        return part

    async def replace(self, artifact: artifact_pb2.Artifact, *, last: bool = False) -> None:
        """Replace the content and the name of the artifact; its id stays.

        A closed artifact is open again afterwards, unless `last` is set.

        Raises:
            InvalidAgentResponseError: the turn is over.
        """
        emitter = await self._begin()
        start, self._start = self._start, None
        self._digest = None
        if start is not None:
            emitter.start_artifact(self.id, start, None, last=False)
        remains = artifact_pb2.Artifact()
        remains.CopyFrom(await self._files.store_artifact(artifact))
        remains.artifact_id = self.id
        emitter.put(event_pb2.Event(rewound=build_rewound(remains)))
        self._is_closed = False
        if last:
            await self.close()
        await emitter.make_room()

    async def close(self) -> None:
        """Mark the artifact as complete. Closing again does nothing."""
        if not self._is_closed:
            await self._write(None, last=True)

    async def _write(self, content: str | part_pb2.Part | None, *, last: bool) -> None:
        if self._is_closed:
            raise InvalidAgentResponseError(self._agent, f"artifact {self.id!r} is closed")
        emitter = await self._begin()
        start, self._start = self._start, None
        self._is_closed = last
        if isinstance(content, part_pb2.Part):
            self._digest = None
        elif content and self._digest is not None:
            self._digest.update(_encode(content))
        if start is not None:
            emitter.start_artifact(self.id, start, content, last=last)
        else:
            emitter.add_content(self.id, content, last=last)
        if emitter.is_full:
            await emitter.make_room()


def _start_digest() -> "hashlib.blake2b":
    return hashlib.blake2b(digest_size=16)


def _encode(text: str) -> bytes:
    # An author's text may have half of a surrogate pair.
    return text.encode("utf-8", "surrogatepass")


class PlanWriter:
    """One plan: streamed text, then its steps. Revisions share the id."""

    def __init__(self, begin: Begin, agent: str, plan_id: str, *, revision: int) -> None:
        self.id = plan_id
        self._begin = begin
        self._agent = agent
        self._revision = revision

    @property
    def revision(self) -> int:
        """The revision that is being written."""
        return self._revision

    def start_revision(self) -> None:
        """Begin a new revision, without steps for the current one."""
        self._revision += 1

    async def append(self, text: str) -> None:
        """Add text of the plan that is being written.

        Raises:
            InvalidAgentResponseError: it is not text, or the turn is over.
        """
        if not isinstance(text, str):
            raise invalid_content(self._agent, "it appended", text, (str,))
        emitter = await self._begin()
        emitter.add_plan_text(self.id, self._revision, text)
        await emitter.make_room()

    async def finish(self, steps: Sequence[event_pb2.PlanStep]) -> None:
        """Write the steps of the plan. Later writes begin a new revision."""
        emitter = await self._begin()
        plan = event_pb2.PlanChanged(plan_id=self.id, revision=self._revision, steps=steps)
        emitter.put(event_pb2.Event(plan=plan))
        self._revision += 1


class ToolCall:
    """One running tool call; set `summary` and `is_error` before it ends."""

    def __init__(self, call_id: str, tool: str) -> None:
        self.id = call_id
        self.tool = tool
        self.summary = ""
        """One line for people."""
        self.is_error = False
        """True if the tool failed."""

    def finished_event(self) -> event_pb2.Event:
        """Return the event that records the end of the call."""
        finished = event_pb2.ToolFinished(
            call_id=self.id, tool=self.tool, is_error=self.is_error, summary=self.summary
        )
        return event_pb2.Event(tool_finished=finished)
