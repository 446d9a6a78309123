"""Applies a remote task's events and snapshots to a local task: artifacts, states, messages.

An event that breaks A2A's rules raises PeerProtocolError before any of it is written.
"""

from collections.abc import Awaitable, Callable, Iterable, MutableSequence, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_client.artifact_content import ArtifactContent, TurnLimits
from trunkline.a2a_client.lenient_reader import LeftOutLog
from trunkline.a2a_wire.roles import artifact_kind
from trunkline.core.json_values import find_member, read_text, struct_json
from trunkline.core.parts import is_plain_text
from trunkline.core.task_states import INTERRUPTED, OUTCOME_KEY, TERMINAL, TaskOutcome, find_outcome
from trunkline.errors import PeerProtocolError
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.tasks.writers import ArtifactWriter
from trunkline.v1 import artifact_pb2, event_pb2, json_pb2, message_pb2, part_pb2, task_pb2

# The key of the task's metadata that holds the remote task's ids, for the next turn and for a
# takeover.
REMOTE_TASK_KEY: Final = "trunkline/remote"
_RESERVED_PREFIX: Final = "trunkline/"
_MAX_ID_LENGTH: Final = 1024
_ACTIVE_STATES: Final = frozenset({task_pb2.TASK_STATE_SUBMITTED, task_pb2.TASK_STATE_WORKING})


# Stores the peer's files and returns the parts that refer to them.
ReceiveParts: TypeAlias = Callable[[Iterable[part_pb2.Part]], Awaitable[Sequence[part_pb2.Part]]]


@dataclass(slots=True)
class _MirroredArtifact:
    """An artifact that exists in both tasks."""

    writer: ArtifactWriter
    content: ArtifactContent
    is_closed: bool


class TaskMirror:
    """Applies a remote task's events to one turn of the local task."""

    def __init__(
        self, task: TurnRuntime, *, peer: str, content_bytes: int, receive: ReceiveParts
    ) -> None:
        """Continue from the metadata and artifacts that earlier turns wrote.

        Args:
            task: The local task.
            peer: The remote agent's name in errors.
            content_bytes: Limit of the content of one turn.
            receive: Stores the peer's files.
        """
        self._receive = receive
        self._log = LeftOutLog(lambda: peer)
        self.task_id = self.context_id = ""
        """Ids of the remote task; empty until known."""
        self.is_over = False
        """True after the turn of both tasks has ended."""
        self._task = task
        self._peer = peer
        self._limits = TurnLimits(peer, content_bytes)
        self._artifacts: dict[str, _MirroredArtifact] = {}
        self._seen_message_ids: set[str] = {message.message_id for message in task.history}
        self.is_known = False
        """True after an event of this turn has named the remote task."""
        self.change_count = 0
        """Number of changes that were applied to the local task."""
        self._is_working = False
        self._load_remote_task(task.latest.task.metadata)
        for artifact, info in zip(task.latest.task.artifacts, task.latest.artifacts, strict=True):
            writer = task.artifact(artifact.name, id=artifact.artifact_id)
            content = ArtifactContent(artifact.parts)
            self._artifacts[artifact.artifact_id] = _MirroredArtifact(writer, content, info.closed)

    async def apply(self, response: a2a_pb2.StreamResponse, *, is_first: bool = False) -> None:
        """Apply an event. With `is_first`, it may have the state before our message.

        Raises:
            PeerProtocolError: The event breaks A2A's rules; nothing was written.
        """
        match response.WhichOneof("payload"):
            case "task":
                await self.apply_snapshot(response.task, is_first=is_first)
            case "message":
                _remove_empty_parts(response.message.parts, "message", self._log)
                await self._reply(response.message)
            case "status_update":
                update = response.status_update
                await self._remember_task(update.task_id, update.context_id, update.metadata)
                await self._enter_state(update.status, update.metadata)
            case "artifact_update":
                await self._update_artifact(response.artifact_update)
            case _:
                raise self.protocol_error("it sent an event that A2A doesn't have")

    async def apply_snapshot(self, task: task_pb2.Task, *, is_first: bool = False) -> None:
        """Add the content that the local task lacks, and enter the snapshot's state.

        An artifact whose local content is not the start of the snapshot's is replaced.

        Raises:
            PeerProtocolError: The snapshot breaks A2A's rules.
        """
        if not task.id:
            raise self.protocol_error("it sent a task without an id")
        for index in reversed(range(len(task.artifacts))):
            if not self._is_usable(task.artifacts[index], f"task.artifacts[{index}]"):
                del task.artifacts[index]
        await self._remember_task(task.id, task.context_id, task.metadata)
        for artifact in task.artifacts:
            await self._reconcile_artifact(artifact)
        if not (is_first and self._is_previous_status(task.status)):
            # Metadata of a running task was applied when it began, or comes with its end.
            await self._enter_state(
                task.status, task.metadata if task.status.state in TERMINAL else None
            )

    def protocol_error(self, problem: str) -> PeerProtocolError:
        """Build the error for a violation of A2A's rules."""
        return PeerProtocolError(self._peer, problem)

    def _is_previous_status(self, status: task_pb2.TaskStatus) -> bool:
        """Return whether a status is the question that our message answers."""
        if self._task.turn == 1 or status.state not in INTERRUPTED:
            return False
        if status.HasField("message") and status.message.message_id:
            return status.message.message_id in self._seen_message_ids
        return not self._is_working

    async def _remember_task(
        self, task_id: str, context_id: str, metadata: json_pb2.Struct | None
    ) -> None:
        """Check that an event belongs to the remote task; the first event sets that task's ids."""
        if task_id and self.task_id and task_id != self.task_id:
            raise self.protocol_error(
                f"it sent an event of task {task_id[:100]!r} in the stream of another"
            )
        if self.is_known:
            return
        if not (task_id or self.task_id):
            raise self.protocol_error("it sent an update of a task without its id")
        if len(task_id) > _MAX_ID_LENGTH:
            raise self.protocol_error("its task's id is too long")
        self.is_known = True
        if not self.task_id:
            self.task_id, self.context_id = task_id, context_id[:_MAX_ID_LENGTH]
            ids: dict[str, Any] = {"taskId": task_id, "contextId": self.context_id}
            extra = {**_foreign_metadata(metadata), REMOTE_TASK_KEY: ids}
            await self._task.enter(task_pb2.TASK_STATE_WORKING, metadata=extra)
        # As a child, the remote task is canceled with the local one.
        started = event_pb2.ChildStarted(task_id=self._child_id, agent=self._task.agent)
        await self._task.record(event_pb2.Event(child_started=started))

    @property
    def _child_id(self) -> str:
        """The remote task's id as a child of ours, for `FunctionAgent.cancel_remote`."""
        return f"{self._task.agent}:{self.task_id}"

    async def _enter_state(
        self, status: task_pb2.TaskStatus, metadata: json_pb2.Struct | None
    ) -> None:
        if status.state == task_pb2.TASK_STATE_UNSPECIFIED:
            raise self.protocol_error("its task is in a state that A2A doesn't have")
        _remove_empty_parts(status.message.parts, "status.message", self._log)
        message = status.message if status.message.parts else None
        if message is not None:
            self._limits.count_parts(message.parts)
        extra = _foreign_metadata(metadata)
        if metadata is not None and (find_outcome(status.state, metadata) is TaskOutcome.PARTIAL):
            extra[OUTCOME_KEY] = TaskOutcome.PARTIAL.value
        if status.state in _ACTIVE_STATES:
            self._is_working = self._is_working or status.state == task_pb2.TASK_STATE_WORKING
            # A repeated status without anything new, as in each snapshot, is skipped.
            is_new = message is not None and self._is_new_message(message)
            if is_new or extra:
                self.change_count += 1
                await self._task.enter(
                    task_pb2.TASK_STATE_WORKING, message if is_new else None, metadata=extra or None
                )
            return
        self.change_count += 1
        self.is_over = True
        content: message_pb2.Message | str | None = message
        if message is None and status.state == task_pb2.TASK_STATE_FAILED:
            content = f"{self._peer} failed and didn't say why"
        finished = event_pb2.ChildFinished(
            task_id=self._child_id, agent=self._task.agent, state=status.state
        )
        await self._task.record(event_pb2.Event(child_finished=finished))
        await self._task.enter(status.state, content, metadata=extra or None)

    def _is_new_message(self, message: message_pb2.Message) -> bool:
        """Return whether a message was not seen yet; one without an id counts as new."""
        is_new = message.message_id not in self._seen_message_ids
        if message.message_id:
            self._seen_message_ids.add(message.message_id)
        return is_new

    async def _reply(self, message: message_pb2.Message) -> None:
        """Apply a message as the answer: an artifact if the local task exists, else a reply."""
        if self.is_known:
            raise self.protocol_error("it sent a message in the middle of a task")
        if not message.parts:
            raise self.protocol_error("it sent a message without parts")
        self.is_over = True
        if not self._task.exists:
            await self._task.reply(message)
            return
        artifact = self._task.artifact(id=f"reply-{self._task.turn}")
        parts = await self._receive(message.parts)
        for part in parts:
            await artifact.append(_as_append_content(part), last=part is parts[-1])
        await self._task.complete()

    async def _update_artifact(self, update: a2a_pb2.TaskArtifactUpdateEvent) -> None:
        artifact = update.artifact
        if not self._is_usable(artifact, "artifact"):
            return
        mirrored = self._artifacts.get(artifact.artifact_id)
        if update.append and (mirrored is None or mirrored.is_closed):
            when = "before it began" if mirrored is None else "after its last chunk"
            raise self.protocol_error(
                f"it appended to artifact {artifact.artifact_id[:100]!r} {when}"
            )
        await self._remember_task(update.task_id, update.context_id, None)
        if mirrored is None:
            await self._start_artifact(artifact, last=update.last_chunk)
        elif update.append:
            await self._append_parts(mirrored, artifact.parts, last=update.last_chunk)
        else:
            await self._replace_artifact(mirrored, artifact, last=update.last_chunk)

    def _is_usable(self, artifact: artifact_pb2.Artifact, path: str) -> bool:
        """Remove the parts of an artifact that can't be used; return whether the rest can be."""
        if not 0 < len(artifact.artifact_id) <= _MAX_ID_LENGTH:
            self._log.report(path, "it has no usable artifactId")
            return False
        _remove_empty_parts(artifact.parts, path, self._log)
        return True

    async def _reconcile_artifact(self, artifact: artifact_pb2.Artifact) -> None:
        mirrored = self._artifacts.get(artifact.artifact_id)
        if mirrored is None:
            await self._start_artifact(artifact, last=False)
            return
        missing = mirrored.content.find_suffix(artifact.parts)
        if missing is None or (missing and mirrored.is_closed):
            await self._replace_artifact(mirrored, artifact, last=False)
        elif missing:
            await self._append_parts(mirrored, missing, last=False)

    async def _start_artifact(self, artifact: artifact_pb2.Artifact, *, last: bool) -> None:
        self._limits.count_artifact(artifact)
        writer = self._task.artifact_of_kind(
            artifact_kind(artifact),
            artifact.name,
            id=artifact.artifact_id,
            description=artifact.description,
            metadata=struct_json(artifact.metadata) if artifact.HasField("metadata") else None,
            extensions=artifact.extensions,
        )
        mirrored = _MirroredArtifact(writer, ArtifactContent(), is_closed=False)
        self._artifacts[artifact.artifact_id] = mirrored
        # An artifact starts with its first content, which may be empty.
        await self._append_parts(mirrored, artifact.parts or [part_pb2.Part(text="")], last=last)

    async def _append_parts(
        self, mirrored: _MirroredArtifact, parts: Iterable[part_pb2.Part], *, last: bool
    ) -> None:
        added = list(parts)
        self._limits.count_parts(added)
        self.change_count += 1
        is_first = mirrored.content.is_empty
        for part in added:
            mirrored.content.add(part)
            if part.text or is_first or not is_plain_text(part):
                (stored,) = await self._receive((part,))
                await mirrored.writer.append(_as_append_content(stored))
            is_first = False
        if last:
            await mirrored.writer.close()
            mirrored.is_closed = True

    async def _replace_artifact(
        self, mirrored: _MirroredArtifact, artifact: artifact_pb2.Artifact, *, last: bool
    ) -> None:
        self._limits.count_parts(artifact.parts)
        self.change_count += 1
        mirrored.content = ArtifactContent(artifact.parts)
        mirrored.is_closed = last
        replacement = artifact_pb2.Artifact()
        replacement.CopyFrom(artifact)
        del replacement.parts[:]
        replacement.parts.extend(await self._receive(artifact.parts))
        await mirrored.writer.replace(replacement, last=last)

    def _load_remote_task(self, metadata: json_pb2.Struct) -> None:
        """Load the ids that an earlier turn or another host recorded."""
        ids = find_member(metadata, REMOTE_TASK_KEY)
        if ids is not None:
            self.task_id = read_text(ids.struct_value, "taskId")
            self.context_id = read_text(ids.struct_value, "contextId")


def _remove_empty_parts(parts: MutableSequence[part_pb2.Part], path: str, log: LeftOutLog) -> None:
    """Remove the parts without content, each with a line in the log."""
    for index in reversed(range(len(parts))):
        if parts[index].WhichOneof("content") is None:
            log.report(f"{path}.parts[{index}]", "it has no content")
            del parts[index]


def _as_append_content(part: part_pb2.Part) -> str | part_pb2.Part:
    return part.text if is_plain_text(part) else part


def _foreign_metadata(metadata: json_pb2.Struct | None) -> dict[str, Any]:
    """Return a status's metadata without the keys that are reserved for this mesh."""
    if metadata is None:
        return {}
    fields = struct_json(metadata)
    return {name: value for name, value in fields.items() if not name.startswith(_RESERVED_PREFIX)}
