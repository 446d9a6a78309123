"""The readers of what a child writes in one turn.

A supervisor forwards the artifacts of a child to its own journal. The code of an agent gets what
the child writes as an answer.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from trunkline.agents.calls.outcome import Outcome
from trunkline.core.task_states import TaskState
from trunkline.journal.fold import Fold
from trunkline.tasks.calls import AgentAnswer, GivenText, Pieces
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import artifact_pb2, event_pb2, message_pb2, part_pb2, snapshot_pb2

_DRAFT: Final = event_pb2.ARTIFACT_KIND_DRAFT
_SYNTHESIS: Final = event_pb2.ARTIFACT_KIND_SYNTHESIS


class ChildReader(Protocol):
    """Takes what a child writes in one turn, after the transcript has checked it."""

    def start(self, snapshot: snapshot_pb2.TaskSnapshot | None) -> None:
        """Start at a snapshot of the child, or at its first event."""

    def has_all(self, snapshot: snapshot_pb2.TaskSnapshot) -> bool:
        """Return True if nothing before the snapshot is missing."""

    def take(self, sealed: bytes, batch: event_pb2.EventBatch) -> None:
        """Take a batch. `batch` is the sealed batch, parsed."""

    @property
    def has_room(self) -> bool:
        """True if the next batch can be taken without `make_room`."""

    async def make_room(self) -> None:
        """Wait until the reader has room for the next batch."""

    async def take_reply(self, message: message_pb2.Message) -> None:
        """Take a direct reply."""


class ArtifactForwarder:
    """Forwards a child's artifacts to its parent's journal."""

    def __init__(self, task: TurnRuntime, agent: str, child_id: str) -> None:
        self._task = task
        self._agent = agent
        self._child_id = child_id

    def start(self, snapshot: snapshot_pb2.TaskSnapshot | None) -> None:
        """Do nothing: the journal knows the events that were forwarded before."""

    def has_all(self, snapshot: snapshot_pb2.TaskSnapshot) -> bool:
        """Return True if the parent's journal has all artifacts of the child."""
        own_artifacts = {
            (info.origin.task_id, info.artifact_id) for info in self._task.latest.artifacts
        }
        return all(
            (info.origin.task_id or self._child_id, info.artifact_id) in own_artifacts
            for info in snapshot.artifacts
        )

    def take(self, sealed: bytes, batch: event_pb2.EventBatch) -> None:
        """Forward a batch."""
        self._task.forward(sealed, batch, agent=self._agent)

    @property
    def has_room(self) -> bool:
        """True if the parent has room for more events."""
        return self._task.has_room

    async def make_room(self) -> None:
        """Wait until the journal of the parent has caught up."""
        await self._task.make_room()

    async def take_reply(self, message: message_pb2.Message) -> None:
        """Write the files of a direct reply as an artifact of the parent."""
        files = [part for part in message.parts if not part.HasField("text")]
        if files:
            # It has its own id, because a repeated turn numbers its artifacts anew.
            artifact = self._task.artifact(
                self._agent, id=f"reply-{self._child_id}", is_answer=False
            )
            for part in files:
                await artifact.append(part, last=part is files[-1])


class AnswerReader:
    """Takes what a child writes in one turn as its answer. Nothing is forwarded to the parent."""

    def __init__(
        self,
        child_id: str,
        message_id: str,
        pieces: Pieces | None = None,
        waiting: Callable[[], AbstractContextManager[None]] | None = None,
    ) -> None:
        """The message with `message_id` opens the turn.

        The text is put to `pieces` while it is written. `waiting` is entered while the queue is
        full.
        """
        self._child_id = child_id
        self._message_id = message_id
        self._pieces = pieces
        self._waiting = waiting
        self._fold = Fold(child_id)
        self._turn_start = 0
        self._is_turn = False
        self._drafts: set[str] = set()
        # Text that is not in the queue yet, because the queue was full.
        self._waiting_text = ""
        self._reply: message_pb2.Message | None = None

    def start(self, snapshot: snapshot_pb2.TaskSnapshot | None) -> None:
        """Start at a snapshot from the start of the turn, or at the child's first event."""
        self._fold = Fold(self._child_id, snapshot)
        self._turn_start = 0 if snapshot is None else snapshot.sequence
        self._is_turn = snapshot is not None
        if self._pieces is not None and snapshot is not None:
            for artifact in snapshot.task.artifacts:
                self._pieces.given.skip(
                    artifact.artifact_id, [part.text for part in artifact.parts]
                )

    def has_all(self, snapshot: snapshot_pb2.TaskSnapshot) -> bool:
        """Return True if the child has not written anything."""
        return not snapshot.artifacts

    def take(self, sealed: bytes, batch: event_pb2.EventBatch) -> None:
        """Take a batch."""
        self._apply(batch)
        if self._pieces is None or not (text := self._collect_text(batch, self._pieces.given)):
            return
        if self._pieces.full():
            self._waiting_text += text
        else:
            self._pieces.put_nowait(text)

    @property
    def has_room(self) -> bool:
        """True if there is room for a piece."""
        return self._pieces is None or not self._pieces.full()

    async def make_room(self) -> None:
        """Wait until the text that was taken is in the queue."""
        if self._pieces is not None and self._waiting_text:
            with nullcontext() if self._waiting is None else self._waiting():
                await self._pieces.put(self._waiting_text)
            self._waiting_text = ""

    async def take_reply(self, message: message_pb2.Message) -> None:
        """Take a direct reply."""
        self._reply = message

    def build_answer(self, outcome: Outcome) -> AgentAnswer:
        """Return the answer at the end of the turn."""
        artifacts = self._list_artifacts()
        parts: Sequence[part_pb2.Part] = [part for each in artifacts for part in each.parts]
        if self._reply is not None:
            parts = self._reply.parts
        return AgentAnswer(
            agent=outcome.agent,
            task_id="" if self._reply is not None else self._child_id,
            state=TaskState.from_proto(outcome.state),
            text=outcome.text,
            parts=parts,
            artifacts=artifacts,
            outcome=outcome.task_outcome,
        )

    def _list_artifacts(self) -> list[artifact_pb2.Artifact]:
        """Return the artifacts of the turn. A synthesis replaces the texts that it combines."""
        snapshot = self._fold.snapshot()
        pairs = [
            (artifact, info)
            for artifact, info in zip(snapshot.task.artifacts, snapshot.artifacts, strict=True)
            if info.first_sequence > self._turn_start and info.kind != _DRAFT
        ]
        has_synthesis = any(_is_synthesis(info) for _, info in pairs)
        return [
            artifact
            for artifact, info in pairs
            if not has_synthesis
            or _is_synthesis(info)
            or any(not part.HasField("text") for part in artifact.parts)
        ]

    def _apply(self, batch: event_pb2.EventBatch) -> None:
        for event in batch.events:
            if event.HasField("created") or event.HasField("turn_started"):
                is_new = event.HasField("created")
                message = event.created.message if is_new else event.turn_started.message
                self._turn_start = batch.header.first_sequence - 1
                self._is_turn = message.message_id == self._message_id
            elif event.HasField("delta") and event.delta.start.kind == _DRAFT:
                self._drafts.add(event.delta.artifact_id)
        self._fold.apply(batch)

    def _collect_text(self, batch: event_pb2.EventBatch, given: GivenText) -> str:
        """Return the text that the reader gets of what the child itself wrote in a batch."""
        if batch.header.origin.task_id:
            return ""
        return "".join(self._list_texts(batch, given))

    def _list_texts(self, batch: event_pb2.EventBatch, given: GivenText) -> Iterator[str]:
        for event in batch.events:
            if event.HasField("rewound"):
                remains = event.rewound.remains
                given.cut(remains.artifact_id, "".join(part.text for part in remains.parts))
            # Drafts are written again.
            elif event.HasField("delta") and event.delta.artifact_id not in self._drafts:
                texts = (*event.delta.texts, event.delta.part.text)
                if self._is_turn:
                    yield given.add(event.delta.artifact_id, texts)
                else:
                    given.skip(event.delta.artifact_id, texts)


def _is_synthesis(info: snapshot_pb2.ArtifactInfo) -> bool:
    return info.kind == _SYNTHESIS and not info.HasField("origin")
