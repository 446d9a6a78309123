"""What a remote task says becomes ours: its artifacts, its states, its messages.

Whatever breaks A2A's rules is refused with PeerProtocolError before any of it is written.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from google.protobuf import json_format, struct_pb2

from trunkline import ArtifactWriter, TaskContext
from trunkline.a2a.v1 import a2a_pb2
from trunkline.errors import PeerProtocolError
from trunkline.v1 import artifact_pb2, event_pb2, message_pb2, part_pb2, task_pb2
from trunkline_bridge.outbound.content import Content, is_plain_text
from trunkline_bridge.projection.states import ENDED

# Under this key the task's metadata remembers the remote task: what the next turn, or the next
# host, goes on from.
REMOTE_KEY: Final = "trunkline/remote"
_OURS: Final = "trunkline/"
_MIB: Final = 1024 * 1024
_NAME_CHARS: Final = 1024
_INTERRUPTED: Final = frozenset(
    {task_pb2.TASK_STATE_INPUT_REQUIRED, task_pb2.TASK_STATE_AUTH_REQUIRED}
)
_AT_WORK: Final = frozenset({task_pb2.TASK_STATE_SUBMITTED, task_pb2.TASK_STATE_WORKING})


# Makes a peer's parts ours.
Receive: TypeAlias = Callable[[Iterable[part_pb2.Part]], Awaitable[Sequence[part_pb2.Part]]]


@dataclass(slots=True)
class _Artifact:
    """One artifact of both tasks."""

    writer: ArtifactWriter
    content: Content
    is_closed: bool


class Mirror:
    """One turn of our task, as the remote task's events make it."""

    def __init__(
        self, task: TaskContext, *, peer: str, content_bytes: int, receive: Receive
    ) -> None:
        """`receive` makes the peer's parts ours."""
        self._receive = receive
        self.task_id = self.context_id = ""
        """The remote task's, once they are known."""
        self.is_over = False
        """The turn has ended, and our task's turn with it."""
        self._task = task
        self._peer = peer
        self._limit = self._left = content_bytes
        self._artifacts: dict[str, _Artifact] = {}
        self._said: set[str] = {message.message_id for message in task.history}
        self.is_announced = False
        """The remote task was heard of in this turn."""
        self.version = 0
        """Counts what was taken over."""
        self._is_at_work = False
        self._read(task.latest.task.metadata)
        for artifact, info in zip(task.latest.task.artifacts, task.latest.artifacts, strict=True):
            writer = task.artifact(artifact.name, id=artifact.artifact_id)
            content = Content(artifact.parts)
            self._artifacts[artifact.artifact_id] = _Artifact(writer, content, info.closed)

    async def take(self, response: a2a_pb2.StreamResponse, *, is_first: bool = False) -> None:
        """Take over an event. `is_first`: it may tell of the state before our message.

        Raises:
            PeerProtocolError: the event breaks A2A's rules; nothing of it was written.
        """
        match response.WhichOneof("payload"):
            case "task":
                await self.take_task(response.task, is_first=is_first)
            case "message":
                await self._reply(response.message)
            case "status_update":
                update = response.status_update
                await self._learn(update.task_id, update.context_id, update.metadata)
                await self._enter(update.status, update.metadata)
            case "artifact_update":
                await self._update(response.artifact_update)
            case _:
                raise self.breach("it sent an event that is none of A2A's")

    async def take_task(self, task: task_pb2.Task, *, is_first: bool = False) -> None:
        """Take over what a snapshot holds that ours doesn't, and its state.

        What we have may be less than it has, or another text: then it is replaced.
        """
        if not task.id:
            raise self.breach("it sent a task without an id")
        _check_artifacts(self, task.artifacts)
        await self._learn(task.id, task.context_id, task.metadata)
        for artifact in task.artifacts:
            await self._reconcile(artifact)
        if not (is_first and self._is_old(task.status)):
            # What is said of a task that goes on was said when it began, or will be in the end.
            await self._enter(task.status, task.metadata if task.status.state in ENDED else None)

    def tells_end(self, response: a2a_pb2.StreamResponse) -> bool:
        """Whether an event tells that the remote task has ended."""
        return response.HasField("status_update") and response.status_update.status.state in ENDED

    def knows(self, message_id: str, task: task_pb2.Task) -> bool:
        """Whether a remote task has had a message, or can't wait for one any more."""
        if task.status.state not in _INTERRUPTED:
            return True
        return any(message.message_id == message_id for message in task.history)

    def breach(self, problem: str) -> PeerProtocolError:
        """Return the error for what breaks A2A's rules."""
        return PeerProtocolError(self._peer, problem)

    def _is_old(self, status: task_pb2.TaskStatus) -> bool:
        """Whether this is the question that our message answers."""
        if self._task.turn == 1 or status.state not in _INTERRUPTED:
            return False
        if status.HasField("message") and status.message.message_id:
            return status.message.message_id in self._said
        return not self._is_at_work

    async def _learn(
        self, task_id: str, context_id: str, metadata: struct_pb2.Struct | None
    ) -> None:
        """See that an event is of our remote task, and remember that task before all else."""
        if task_id and self.task_id and task_id != self.task_id:
            raise self.breach(f"it spoke of task {task_id[:100]!r} in the stream of another")
        if self.is_announced:
            return
        if not (task_id or self.task_id):
            raise self.breach("it sent an update of a task without its id")
        if len(task_id) > _NAME_CHARS:
            raise self.breach("its task's id is too long")
        self.is_announced = True
        if not self.task_id:
            self.task_id, self.context_id = task_id, context_id[:_NAME_CHARS]
            known: dict[str, Any] = {"taskId": task_id, "contextId": self.context_id}
            said = {**_foreign(metadata), REMOTE_KEY: known}
            await self._task.enter(task_pb2.TASK_STATE_WORKING, metadata=said)
        # Whatever becomes of ours, it is canceled with it unless it has ended.
        started = event_pb2.ChildStarted(task_id=self._child_id, agent=self._task.agent)
        await self._task.record(event_pb2.Event(child_started=started))

    @property
    def _child_id(self) -> str:
        """The remote task among our children: see `FunctionAgent.cancel_elsewhere`."""
        return f"{self._task.agent}:{self.task_id}"

    async def _enter(self, status: task_pb2.TaskStatus, metadata: struct_pb2.Struct | None) -> None:
        if status.state == task_pb2.TASK_STATE_UNSPECIFIED:
            raise self.breach("its task is in a state that A2A doesn't have")
        message = status.message if status.message.parts else None
        if message is not None:
            _check_parts(self, message.parts)
            self._count(message.parts)
        said = _foreign(metadata) or None
        self.version += 1
        if status.state in _AT_WORK:
            self._is_at_work = self._is_at_work or status.state == task_pb2.TASK_STATE_WORKING
            # Said again without anything new, as by each snapshot.
            is_news = message is not None and self._is_new(message)
            if is_news or said:
                await self._task.enter(
                    task_pb2.TASK_STATE_WORKING, message if is_news else None, metadata=said
                )
            else:
                self.version -= 1
            return
        self.is_over = True
        content: message_pb2.Message | str | None = message
        if message is None and status.state == task_pb2.TASK_STATE_FAILED:
            content = f"{self._peer} failed and didn't say why"
        finished = event_pb2.ChildFinished(
            task_id=self._child_id, agent=self._task.agent, state=status.state
        )
        await self._task.record(event_pb2.Event(child_finished=finished))
        await self._task.enter(status.state, content, metadata=said)

    def _is_new(self, message: message_pb2.Message) -> bool:
        """Whether a message was not said yet; one without an id always is."""
        is_new = message.message_id not in self._said
        if message.message_id:
            self._said.add(message.message_id)
        return is_new

    async def _reply(self, message: message_pb2.Message) -> None:
        """Take a message for the answer: a direct reply, or an artifact if there is a task."""
        if self.is_announced:
            raise self.breach("it sent a message in the middle of a task")
        if not message.parts:
            raise self.breach("it sent a message without parts")
        _check_parts(self, message.parts)
        self.is_over = True
        if not self._task.exists:
            await self._task.reply(message)
            return
        artifact = self._task.artifact(id=f"reply-{self._task.turn}")
        parts = await self._receive(message.parts)
        for part in parts:
            await artifact.append(_appended(part), last=part is parts[-1])
        await self._task.complete()

    async def _update(self, update: a2a_pb2.TaskArtifactUpdateEvent) -> None:
        artifact = update.artifact
        _check_artifacts(self, [artifact])
        known = self._artifacts.get(artifact.artifact_id)
        if update.append and (known is None or known.is_closed):
            when = "before it began" if known is None else "after its last chunk"
            raise self.breach(f"it appended to artifact {artifact.artifact_id[:100]!r} {when}")
        await self._learn(update.task_id, update.context_id, None)
        if known is None:
            await self._begin(artifact, last=update.last_chunk)
        elif update.append:
            await self._append(known, artifact.parts, last=update.last_chunk)
        else:
            await self._replace(known, artifact, last=update.last_chunk)

    async def _reconcile(self, artifact: artifact_pb2.Artifact) -> None:
        known = self._artifacts.get(artifact.artifact_id)
        if known is None:
            await self._begin(artifact, last=False)
            return
        rest = known.content.rest_of(artifact.parts)
        if rest is None or (rest and known.is_closed):
            await self._replace(known, artifact, last=False)
        elif rest:
            await self._append(known, rest, last=False)

    async def _begin(self, artifact: artifact_pb2.Artifact, *, last: bool) -> None:
        writer = self._task.artifact(
            artifact.name,
            id=artifact.artifact_id,
            description=artifact.description,
            metadata=_plain(artifact.metadata) if artifact.HasField("metadata") else None,
            extensions=artifact.extensions,
        )
        made = _Artifact(writer, Content(), is_closed=False)
        self._artifacts[artifact.artifact_id] = made
        # It begins with its first content, be that empty.
        await self._append(made, artifact.parts or [part_pb2.Part(text="")], last=last)

    async def _append(
        self, known: _Artifact, parts: Iterable[part_pb2.Part], *, last: bool
    ) -> None:
        pieces = list(parts)
        self._count(pieces)
        is_new = known.content.is_empty
        for part in pieces:
            known.content.add(part)
            if part.text or is_new or not is_plain_text(part):
                (ours,) = await self._receive((part,))
                await known.writer.append(_appended(ours))
            is_new = False
        if last:
            await known.writer.close()
            known.is_closed = True

    async def _replace(
        self, known: _Artifact, artifact: artifact_pb2.Artifact, *, last: bool
    ) -> None:
        self._count(artifact.parts)
        known.content = Content(artifact.parts)
        known.is_closed = last
        ours = artifact_pb2.Artifact()
        ours.CopyFrom(artifact)
        del ours.parts[:]
        ours.parts.extend(await self._receive(artifact.parts))
        await known.writer.replace(ours, last=last)

    def _count(self, parts: Iterable[part_pb2.Part]) -> None:
        self._left -= sum(part.ByteSize() for part in parts)
        if self._left < 0:
            raise self.breach(f"it sent more than {self._limit / _MIB:.3g} MiB in one turn")

    def _read(self, metadata: struct_pb2.Struct) -> None:
        """Read what an earlier turn, or an earlier host, has remembered."""
        if REMOTE_KEY in metadata.fields:
            known = metadata.fields[REMOTE_KEY].struct_value.fields
            self.task_id = known["taskId"].string_value
            self.context_id = known["contextId"].string_value


def _check_artifacts(mirror: Mirror, artifacts: Iterable[artifact_pb2.Artifact]) -> None:
    for artifact in artifacts:
        if not artifact.artifact_id or len(artifact.artifact_id) > _NAME_CHARS:
            raise mirror.breach("it sent an artifact without a usable id")
        _check_parts(mirror, artifact.parts)


def _check_parts(mirror: Mirror, parts: Iterable[part_pb2.Part]) -> None:
    if any(part.WhichOneof("content") is None for part in parts):
        raise mirror.breach("it sent a part without content")


def _appended(part: part_pb2.Part) -> str | part_pb2.Part:
    return part.text if is_plain_text(part) else part


def _foreign(metadata: struct_pb2.Struct | None) -> dict[str, Any]:
    """What another says beside a status, without names that mean something to this mesh."""
    if metadata is None:
        return {}
    found = _plain(metadata)
    return {name: one for name, one in found.items() if not name.startswith(_OURS)}


def _plain(metadata: struct_pb2.Struct) -> Mapping[str, Any]:
    found: Mapping[str, Any] = json_format.MessageToDict(metadata)
    return found
