"""The results of a message to an agent, for assertions of tests."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trunkline.core.json_values import struct_json, value_json
from trunkline.core.parts import join_texts
from trunkline.core.task_states import TaskState
from trunkline.tasks.approvals import pending_approvals
from trunkline.v1 import artifact_pb2, event_pb2, message_pb2, part_pb2, snapshot_pb2


@dataclass(frozen=True, slots=True)
class Answer:
    """The state of a task, usually at the end of a turn, or a direct reply."""

    snapshot: snapshot_pb2.TaskSnapshot | None
    """The complete state of the task in the journal, or None if the agent replied directly."""
    reply: message_pb2.Message | None = None
    """The direct reply, if any."""

    @property
    def state(self) -> TaskState:
        """The state of the task. A direct reply counts as completed."""
        if self.snapshot is None:
            return TaskState.COMPLETED
        return TaskState.from_proto(self.snapshot.task.status.state)

    @property
    def text(self) -> str:
        """The text of the artifacts, joined by newlines; without any, the status text.

        The text of a supervisor's task is its synthesis of the other agents' artifacts.
        """
        texts = [join_texts(artifact.parts) for artifact in self._syntheses() or self.artifacts]
        return "\n".join(text for text in texts if text) or self.status_text

    @property
    def status_text(self) -> str:
        """The text of the status, for example a question or an error, or of the direct reply."""
        return join_texts(self._message().parts)

    @property
    def artifacts(self) -> Sequence[artifact_pb2.Artifact]:
        """The artifacts of the task, in order; each has a `name` and `parts`."""
        return () if self.snapshot is None else self.snapshot.task.artifacts

    @property
    def parts(self) -> Sequence[part_pb2.Part]:
        """The parts of all artifacts.

        Without artifacts, the parts of the status or direct reply.
        """
        parts = [part for artifact in self.artifacts for part in artifact.parts]
        return parts or list(self._message().parts)

    @property
    def data(self) -> list[Any]:
        """The data parts among `parts`, as JSON values."""
        return [value_json(part.data) for part in self.parts if part.HasField("data")]

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The task's metadata, as JSON values."""
        if self.snapshot is None:
            return {}
        return struct_json(self.snapshot.task.metadata)

    @property
    def tools(self) -> list[str]:
        """The names of the tools that were called, in order."""
        if self.snapshot is None:
            return []
        return [call.started.tool for call in self.snapshot.tool_calls]

    @property
    def approvals(self) -> list[snapshot_pb2.ApprovalInfo]:
        """The pending approvals of the task."""
        if self.snapshot is None:
            return []
        return pending_approvals(self.snapshot.approvals)

    @property
    def task_id(self) -> str:
        """The task's id; empty for a direct reply."""
        return "" if self.snapshot is None else self.snapshot.task.id

    @property
    def context_id(self) -> str:
        """The conversation's id."""
        return (
            self._message().context_id if self.snapshot is None else self.snapshot.task.context_id
        )

    def _syntheses(self) -> list[artifact_pb2.Artifact]:
        if self.snapshot is None:
            return []
        pairs = zip(self.snapshot.task.artifacts, self.snapshot.artifacts, strict=True)
        return [
            artifact for artifact, info in pairs if info.kind == event_pb2.ARTIFACT_KIND_SYNTHESIS
        ]

    def _message(self) -> message_pb2.Message:
        if self.snapshot is not None:
            return self.snapshot.task.status.message
        return self.reply or message_pb2.Message()


class Stream:
    """The events of a turn, in order, from the first one on. Can be iterated once."""

    def __init__(self, task: Answer, batches: AsyncIterator[list[bytes]] | None) -> None:
        self.task = task
        """The task at the start of the turn, or a direct reply, which has no events."""
        self._batches = batches

    @property
    def task_id(self) -> str:
        """The task's id."""
        return self.task.task_id

    async def __aiter__(self) -> AsyncIterator[event_pb2.Event]:
        """Yield `trunkline.v1.Event`s; `WhichOneof("event")` is the type of each."""
        if self._batches is None:
            return
        async for batches in self._batches:
            for batch in batches:
                for event in event_pb2.EventBatch.FromString(batch).events:
                    yield event

    async def text_chunks(self) -> AsyncIterator[str]:
        """Yield the text of the artifacts in the chunks that the agent wrote."""
        async for event in self:
            if event.HasField("delta"):
                delta = event.delta
                for text in delta.texts:
                    yield text
                if delta.part.HasField("text"):
                    yield delta.part.text
