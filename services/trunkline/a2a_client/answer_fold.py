"""Collects the events of a remote task's turn in its answer, and emits the events of a stream.

It accepts what breaks A2A's rules as far as its meaning is clear: a person or a program reads the
result, and nothing is stored.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_client.answers import (
    ArtifactChange,
    ClientAnswer,
    ClientEvent,
    StatusChange,
    TextChunk,
    answer_artifacts,
    artifact_role,
    artifact_step,
    is_progress_role,
    read_answer,
    reply_answer,
)
from trunkline.a2a_client.artifact_content import ArtifactContent, TurnLimits
from trunkline.a2a_client.streamed_text import ShownChunk, StreamedText
from trunkline.a2a_wire.roles import ArtifactRole
from trunkline.core.json_values import merge_struct
from trunkline.core.parts import is_plain_text, join_texts
from trunkline.core.task_states import INTERRUPTED, TERMINAL, TaskState
from trunkline.errors import PeerProtocolError
from trunkline.v1 import artifact_pb2, json_pb2, message_pb2, task_pb2

EmitEvent: TypeAlias = Callable[[ClientEvent], Awaitable[None]]

SNAPSHOT_CURSOR: Final = "snapshot"
"""The cursor while text waits for its place: resuming there begins with a snapshot."""


@dataclass(slots=True)
class _FoldedArtifact:
    """An artifact of the turn."""

    header: artifact_pb2.Artifact
    """The artifact without its parts."""
    role: str
    content: ArtifactContent = field(default_factory=ArtifactContent)
    is_partial: bool = False
    """It began before the cursor of a resumed stream, so the content lacks its beginning."""
    is_complete: bool = False
    """The agent said that this is all of it; only known of a partial one."""

    def build(self) -> artifact_pb2.Artifact:
        """Return the artifact with its parts."""
        artifact = artifact_pb2.Artifact()
        artifact.CopyFrom(self.header)
        artifact.parts.extend(self.content.parts())
        return artifact


class AnswerFold:
    """The task of one turn, built from its events; each change is emitted once."""

    def __init__(
        self,
        emit: EmitEvent,
        *,
        peer: str,
        content_bytes: int,
        before: task_pb2.Task | None = None,
        is_resumed: bool = False,
    ) -> None:
        """Start a turn.

        Args:
            emit: Receives the events of the stream.
            peer: The agent's name in errors.
            content_bytes: Limit of the content of the turn.
            before: The task that the turn continues, as it was before the turn's message.
            is_resumed: An earlier stream may have emitted the beginning of the turn.
        """
        self.task_id: str = "" if before is None else before.id
        """See `RemoteTaskView`."""
        self.is_known: bool = False
        """See `RemoteTaskView`."""
        self.is_over: bool = False
        """See `RemoteTaskView`."""
        self.change_count: int = 0
        """See `RemoteTaskView`."""
        self.trace_id = ""
        """The trace of the request; empty until known."""
        self.is_resumed: bool = is_resumed
        """The beginning of the turn is not among the collected events."""
        self._emit = emit
        self._peer = peer
        self._limits = TurnLimits(peer, content_bytes)
        self._pending: list[TextChunk | StatusChange | ArtifactChange] = []
        self._task = task_pb2.Task(id=self.task_id)
        self._reply: message_pb2.Message | None = None
        self._artifacts: dict[str, _FoldedArtifact] = {}
        self._text = StreamedText(self._read_texts, is_resumed=is_resumed)
        # Artifacts of earlier turns, which are in snapshots but do not belong to this turn.
        self._earlier: dict[str, artifact_pb2.Artifact] = {}
        self._earlier_messages: set[str] = set()
        if before is not None:
            self._task.context_id = before.context_id
            self._earlier = {each.artifact_id: each for each in before.artifacts}
            self._earlier_messages = {before.status.message.message_id} - {""}
        self._continues = before is not None
        # Of artifacts that began before the cursor. Only their first events have roles.
        self._headers: dict[str, artifact_pb2.Artifact] = {}
        self._is_working = False

    def follow_task(self, task_id: str, artifacts: Iterable[artifact_pb2.Artifact] = ()) -> None:
        """Follow a known task.

        `artifacts` may have begun before the first event that is collected.
        """
        self._task.id = self.task_id = task_id
        self.is_known = True
        self._headers = {each.artifact_id: _copy_header(each) for each in artifacts}

    async def apply(
        self, response: a2a_pb2.StreamResponse, *, cursor: str = "", is_first: bool = False
    ) -> None:
        """Apply an event. With `is_first`, it may have the state before the turn's message.

        The last event that is emitted for it has the cursor, which is the event's id.

        Raises:
            PeerProtocolError: The event has no meaning in A2A, or is of another task.
        """
        match response.WhichOneof("payload"):
            case "task":
                self._apply_snapshot(response.task, is_first=is_first)
            case "message":
                self._reply = response.message
                self.is_over = True
            case "status_update":
                update = response.status_update
                self._remember_task(update.task_id, update.context_id)
                self._merge_metadata(update.metadata if update.HasField("metadata") else None)
                self._enter(update.status)
            case "artifact_update":
                self._update_artifact(response.artifact_update)
            case _:
                raise PeerProtocolError(self._peer, "it sent an event that A2A doesn't have")
        await self._emit_pending(cursor)

    async def finish(self, task: task_pb2.Task | None = None) -> ClientAnswer:
        """Return the answer, and emit what could not be shown before. `task` is the whole task."""
        answer = self._answer(task)
        for artifact in answer.artifacts:
            folded = self._artifacts.get(artifact.artifact_id)
            if folded is not None and folded.is_partial:
                self._pending.append(ArtifactChange(artifact, folded.is_complete))
        self._add_text("", self._text.finish(answer.text))
        await self._emit_pending("")
        return answer

    def _answer(self, task: task_pb2.Task | None) -> ClientAnswer:
        if self._reply is not None:
            return reply_answer(self._reply, self.trace_id)
        if task is None:
            task = self._task
            del task.artifacts[:]
            task.artifacts.extend(each.build() for each in self._artifacts.values())
        return read_answer(task, peer=self._peer, trace_id=self.trace_id)

    def _apply_snapshot(self, task: task_pb2.Task, *, is_first: bool) -> None:
        self._remember_task(task.id, task.context_id)
        self._merge_metadata(task.metadata if task.HasField("metadata") else None)
        self.is_resumed = False
        for artifact in task.artifacts:
            if self._earlier.get(artifact.artifact_id) == artifact:
                continue
            folded = self._artifacts.get(artifact.artifact_id)
            content = ArtifactContent(artifact.parts)
            if folded is None or folded.content.items() != content.items():
                self._replace_artifact(artifact, content, is_complete=False)
        if not (is_first and self._is_previous(task.status)):
            self._enter(task.status)

    def _is_previous(self, status: task_pb2.TaskStatus) -> bool:
        """Return whether a status is the question that the turn's message answers."""
        if not self._continues or status.state not in INTERRUPTED:
            return False
        if status.message.message_id:
            return status.message.message_id in self._earlier_messages
        return not self._is_working

    def _remember_task(self, task_id: str, context_id: str) -> None:
        if task_id and self.task_id and task_id != self.task_id:
            raise PeerProtocolError(
                self._peer, f"it sent an event of task {task_id[:100]!r} in the stream of another"
            )
        if not (task_id or self.task_id):
            raise PeerProtocolError(self._peer, "it sent an event of a task without its id")
        self.is_known = True
        self._task.id = self.task_id = self.task_id or task_id
        self._task.context_id = self._task.context_id or context_id

    def _merge_metadata(self, metadata: json_pb2.Struct | None) -> None:
        if metadata is not None:
            merge_struct(self._task.metadata, metadata)

    def _enter(self, status: task_pb2.TaskStatus) -> None:
        if status.state == task_pb2.TASK_STATE_UNSPECIFIED:
            raise PeerProtocolError(self._peer, "its task is in a state that A2A doesn't have")
        self._is_working = self._is_working or status.state == task_pb2.TASK_STATE_WORKING
        before, self.is_over = self._task.status, status.state in TERMINAL | INTERRUPTED
        is_new = status.state != before.state or (
            status.HasField("message") and status.message != before.message
        )
        self._task.status.CopyFrom(status)
        if is_new:
            self.change_count += 1
            text = join_texts(status.message.parts)
            state = TaskState.from_proto(status.state)
            self._pending.append(StatusChange(state, text, self.task_id, self._task.context_id))

    def _update_artifact(self, update: a2a_pb2.TaskArtifactUpdateEvent) -> None:
        artifact, is_last = update.artifact, update.last_chunk
        self._remember_task(update.task_id, update.context_id)
        if not update.append:
            content = ArtifactContent(artifact.parts)
            self._replace_artifact(artifact, content, is_complete=is_last)
            return
        artifact_id, text = artifact.artifact_id, join_texts(artifact.parts)
        folded = self._artifacts.get(artifact_id)
        has_earlier_text = folded is None and artifact_id in self._earlier
        if folded is None:
            folded = self._start_artifact(artifact)
            folded.is_partial = self.is_resumed
        self._limits.count_parts(artifact.parts)
        self.change_count += 1
        for part in artifact.parts:
            folded.content.add(part)
        if folded.is_partial:
            # Shown at the end of the turn, with its beginning.
            folded.is_complete = folded.is_complete or is_last
        elif is_last or not all(map(is_plain_text, artifact.parts)):
            self._pending.append(ArtifactChange(folded.build(), is_last))
        if has_earlier_text:
            text = join_texts(folded.content.parts())
        self._show(folded, text, replaces=has_earlier_text, is_complete=is_last)

    def _replace_artifact(
        self, artifact: artifact_pb2.Artifact, content: ArtifactContent, *, is_complete: bool
    ) -> None:
        self._limits.count_parts(artifact.parts)
        self.change_count += 1
        folded = self._start_artifact(artifact)
        folded.content, folded.is_partial = content, False
        self._pending.append(ArtifactChange(folded.build(), is_complete))
        text = join_texts(artifact.parts)
        self._show(folded, text, replaces=True, is_complete=is_complete)

    def _show(
        self, artifact: _FoldedArtifact, text: str, *, replaces: bool, is_complete: bool
    ) -> None:
        """Add the chunk for new text of an artifact, or for its text, which `replaces` another."""
        if is_progress_role(artifact.role):
            return
        artifact_id = artifact.header.artifact_id
        change = self._text.replace if replaces else self._text.append
        step = artifact_step(artifact.header) if artifact.role == ArtifactRole.STREAM else None
        chunk = change(artifact_id, text, step=step)
        rest = self._text.complete(artifact_id) if is_complete else None
        if chunk is not None and rest is not None:
            # In one event, so that its cursor covers both.
            chunk, rest = chunk._replace(text=chunk.text + rest.text), None
        self._add_text(artifact_id, chunk or rest)

    def _start_artifact(self, artifact: artifact_pb2.Artifact) -> _FoldedArtifact:
        """Return the collected artifact with the header of an event. Its place and role stay."""
        earlier = self._earlier.pop(artifact.artifact_id, None)
        known = self._artifacts.get(artifact.artifact_id)
        before = known.header if known is not None else earlier
        before = before or self._headers.get(artifact.artifact_id) or artifact_pb2.Artifact()
        header = _copy_header(before)
        if artifact.extensions:
            # Merging would add the event's parts to the known parts.
            del header.extensions[:]
        header.MergeFrom(_copy_header(artifact))
        role = artifact_role(header)
        if known is not None:
            known.header, known.role = header, role
        else:
            self._limits.count_artifact(artifact)
            known = self._artifacts[artifact.artifact_id] = _FoldedArtifact(header, role)
            if earlier is not None:
                known.content = ArtifactContent(earlier.parts)
        if role == ArtifactRole.ANSWER:
            self._text.choose_answer(artifact.artifact_id)
        return known

    def _read_texts(self) -> dict[str, str]:
        """Return the texts of the answer's artifacts."""
        artifacts = answer_artifacts(each.build() for each in self._artifacts.values())
        return {each.artifact_id: join_texts(each.parts) for each in artifacts}

    def _add_text(self, artifact_id: str, chunk: ShownChunk | None) -> None:
        if chunk is not None:
            self._pending.append(TextChunk(chunk.text, artifact_id, chunk.replaces))

    async def _emit_pending(self, cursor: str) -> None:
        pending, self._pending = self._pending, []
        if cursor and self._text.has_waiting:
            cursor = SNAPSHOT_CURSOR
        if pending and cursor:
            pending[-1] = replace(pending[-1], cursor=cursor)
        for event in pending:
            await self._emit(event)


def _copy_header(artifact: artifact_pb2.Artifact) -> artifact_pb2.Artifact:
    """Return an artifact without its parts."""
    header = artifact_pb2.Artifact()
    header.CopyFrom(artifact)
    del header.parts[:]
    return header
