"""Checks a child's events before they are forwarded, and collects its texts within limits."""

from dataclasses import dataclass, field
from typing import Final

from google.protobuf.message import DecodeError

from trunkline.agents.calls.outcome import MAX_TEXT_CHARS, Outcome, parse_agents, shorten
from trunkline.core.json_values import read_member
from trunkline.core.task_states import (
    FAILURES_NAMED_KEY,
    INTERRUPTED,
    TERMINAL,
    StateValue,
    TaskOutcome,
    find_outcome,
    state_name,
)
from trunkline.errors import InvalidArgumentError, PeerProtocolError
from trunkline.journal.events import EventKind, event_count, event_kind
from trunkline.tasks.approvals import is_approval_question, other_text, pending_approvals
from trunkline.tasks.content import message_text
from trunkline.tasks.lifecycle import State
from trunkline.v1 import (
    artifact_pb2,
    event_pb2,
    json_pb2,
    message_pb2,
    part_pb2,
    snapshot_pb2,
    tree_pb2,
)

NEWS_KINDS: Final = frozenset(
    (
        event_pb2.ARTIFACT_KIND_PROGRESS,
        event_pb2.ARTIFACT_KIND_PLAN,
        event_pb2.ARTIFACT_KIND_NOTICE,
    )
)
"""The kinds of artifacts that are shown while an agent works, and are no part of its answer."""

# Nearly all events are deltas, and looking up an enum member is slow.
_DELTA_BIT: Final = EventKind.DELTA.bit
ALL_KINDS: Final = ~0
"""The bits of all kinds of events."""


@dataclass(slots=True)
class _Artifact:
    is_earlier: bool = False
    """It began before this turn."""
    is_synthesis: bool = False
    """It is the combined answer of the child, and replaces the texts of other artifacts."""
    is_answer: bool = True
    """It may be a part of the answer. Plans and other news of a remote agent are not."""
    named_agents: tuple[str, ...] = ()
    """The agents that answered, as the child names them in its combined answer."""
    is_closed: bool = False
    is_empty: bool = True
    chars: int = 0
    texts: list[str] = field(default_factory=list)
    files: list[part_pb2.Part] = field(default_factory=list)

    def add(self, texts: list[str], limit: int) -> int:
        """Store texts up to `limit` characters. Returns the number of characters stored."""
        size = sum(map(len, texts))
        self.chars += size
        if size <= limit:
            self.texts += texts
            return size
        text = "".join(texts)[:limit]
        self.texts.append(text)
        return len(text)

    def clear(self) -> int:
        """Drop the texts. Returns the number of characters that were stored."""
        size = sum(map(len, self.texts))
        self.chars, self.texts, self.files = 0, [], []
        return size


def _names_failures(state: StateValue, metadata: json_pb2.Struct) -> bool:
    return state == State.TASK_STATE_FAILED and read_member(metadata, FAILURES_NAMED_KEY) is True


class Transcript:
    """Follows a child's events from a cursor, batch by batch.

    A batch that violates the contract is rejected before it reaches the parent's journal: a gap, an
    append before its create, an event after the end, invalid bytes. Of valid batches only
    the texts stay in memory, up to MAX_TEXT_CHARS. Parsing and checking a batch takes 3 µs. Reading
    the whole task from the child's host at its end would take a thousand times as long.
    """

    def __init__(
        self,
        task_id: str,
        agent: str,
        snapshot: snapshot_pb2.TaskSnapshot | None = None,
        *,
        message_id: str = "",
    ) -> None:
        """Start after a snapshot from the start of the turn, or at the child's first event.

        In the second case the message with `message_id` opens the turn to follow.
        """
        self.cursor = 0
        self.usage: tree_pb2.TreeUsage | None = None
        """The usage of the child and the tasks below it, as it reported last."""
        self.state: StateValue = State.TASK_STATE_UNSPECIFIED
        self._task_id = task_id
        self._agent = agent
        self._message_id = message_id
        self._has_started = snapshot is not None
        self.approval_events: list[event_pb2.Event] = []
        """Its approval requests and their answers. The caller handles them and empties the list."""
        self._is_partial = False
        self._names_failures = False
        self._status_text = ""
        self._requests_approval = False
        # Ids of open approvals. The child of a remote agent asks by text alone.
        self._open_approvals: set[str] = set()
        self._remaining_chars = MAX_TEXT_CHARS
        self._artifacts: dict[tuple[str, str], _Artifact] = {}
        if snapshot is not None:
            self.cursor = snapshot.sequence
            self.state = snapshot.task.status.state
            if snapshot.HasField("usage"):
                self.usage = snapshot.usage
            self._open_approvals = {
                approval.requested.approval_id for approval in pending_approvals(snapshot.approvals)
            }
            self._read_metadata(snapshot.task.metadata)
            self._read_status(snapshot.task.status.message)
            for info in snapshot.artifacts:
                self._artifacts[info.origin.task_id, info.artifact_id] = _Artifact(
                    is_earlier=True, is_closed=info.closed, is_empty=False
                )

    @property
    def is_over(self) -> bool:
        """True if the child's turn or the child has ended."""
        if self.state in TERMINAL:
            return True
        return self._has_started and self.state in INTERRUPTED

    def apply(self, sealed: bytes, *, kinds: int = ALL_KINDS) -> event_pb2.EventBatch | None:
        """Follow the next batch; return it parsed.

        If its header has other kinds of events than `kinds`, it is not followed, and None is
        returned.

        Raises:
            PeerProtocolError: it violates the contract. The transcript must not be used any more.
        """
        batch = self._parse(sealed)
        header = batch.header
        if header.kinds & ~kinds:
            return None
        writer = header.origin.task_id
        count = seen_kinds = 0
        for event in batch.events:
            if self.state in TERMINAL:
                raise self._contract_error("it sent events after its end")
            if event.HasField("delta"):
                delta = event.delta
                texts = list(delta.texts)
                count += len(texts) or 1
                seen_kinds |= _DELTA_BIT
                self._on_delta(writer, delta, texts)
                continue
            kind = self._event_kind(event)
            seen_kinds |= kind.bit
            count += event_count(event)
            if kind is EventKind.STATUS:
                self._on_status(event.status)
            elif kind in (EventKind.APPROVAL_REQUESTED, EventKind.APPROVAL_ANSWERED):
                self._on_approval(event)
            elif kind is EventKind.REWOUND:
                self._on_rewound(writer, event.rewound.remains)
            elif kind in (EventKind.CREATED, EventKind.TURN_STARTED):
                self._on_turn(event)
        if not count or count != header.count or seen_kinds != header.kinds:
            raise self._contract_error("a batch does not match its header")
        self.cursor += count
        return batch

    def outcome(self) -> Outcome:
        """Return the outcome of the turn, with the texts that it wrote."""
        agent = self._agent
        if self.state != State.TASK_STATE_COMPLETED:
            # The parent asks for the approvals itself, so they are not repeated as text.
            text = self._status_text or (
                "" if self._requests_approval else f"it is {state_name(self.state)}"
            )
            text = shorten(text, len(text), MAX_TEXT_CHARS, agent)
            return Outcome(
                agent,
                self.state,
                text,
                names_failures=self._names_failures,
                child_id=self._task_id,
                usage=self.usage,
            )
        artifacts = [
            artifact
            for artifact in self._artifacts.values()
            if artifact.is_answer and not artifact.is_earlier
        ]
        # A synthesis has the texts and the files of all others.
        artifacts = [artifact for artifact in artifacts if artifact.is_synthesis] or artifacts
        texts = ["".join(artifact.texts) for artifact in artifacts]
        chars = sum(artifact.chars for artifact in artifacts)
        text = "\n".join(text for text in texts if text)
        if chars > sum(map(len, texts)):
            text = shorten(text, chars, MAX_TEXT_CHARS, agent)
        files = tuple(part for artifact in artifacts for part in artifact.files)
        is_status_text = not text and not files
        if is_status_text:
            text = shorten(self._status_text, len(self._status_text), MAX_TEXT_CHARS, agent)
        return Outcome(
            agent,
            self.state,
            text,
            files,
            is_partial=self._is_partial,
            child_id=self._task_id,
            is_status_text=is_status_text,
            named_agents=tuple(name for artifact in artifacts for name in artifact.named_agents),
            usage=self.usage,
        )

    def _read_metadata(self, metadata: json_pb2.Struct) -> None:
        self._is_partial = find_outcome(self.state, metadata) is TaskOutcome.PARTIAL
        self._names_failures = _names_failures(self.state, metadata)

    def _read_status(self, message: message_pb2.Message) -> None:
        self._requests_approval = bool(self._open_approvals) and is_approval_question(message)
        self._status_text = (
            other_text(message) if self._requests_approval else message_text(message)
        )

    def _on_status(self, change: event_pb2.StatusChanged) -> None:
        self.state = change.status.state
        if change.HasField("usage"):
            self.usage = change.usage
        self._read_metadata(change.metadata)
        self._read_status(change.status.message)

    def _on_approval(self, event: event_pb2.Event) -> None:
        self.approval_events.append(event)
        if event.HasField("approval_requested"):
            self._open_approvals.add(event.approval_requested.approval_id)
        else:
            self._open_approvals.discard(event.approval_answered.approval_id)

    def _on_turn(self, event: event_pb2.Event) -> None:
        is_new = event.HasField("created")
        message = event.created.message if is_new else event.turn_started.message
        self.state = State.TASK_STATE_SUBMITTED if is_new else State.TASK_STATE_WORKING
        self._has_started = self._has_started or message.message_id == self._message_id
        for artifact in self._artifacts.values():
            self._remaining_chars += artifact.clear()
            artifact.is_earlier = True

    def _parse(self, sealed: bytes) -> event_pb2.EventBatch:
        """Parse the next batch; check that it is the next one of the task."""
        try:
            batch = event_pb2.EventBatch.FromString(sealed)
        except DecodeError:
            raise self._contract_error("it sent invalid bytes") from None
        header = batch.header
        if header.task_id != self._task_id:
            raise self._contract_error("it sent events of another task")
        if header.first_sequence != self.cursor + 1:
            raise self._contract_error(f"event {header.first_sequence} follows event {self.cursor}")
        if header.HasField("origin") and not header.origin.task_id:
            raise self._contract_error("it forwarded events without a task")
        return batch

    def _on_delta(self, writer: str, delta: event_pb2.ArtifactDelta, texts: list[str]) -> None:
        artifact = self._artifacts.get((writer, delta.artifact_id))
        if delta.HasField("start"):
            if artifact is None:
                artifact = self._artifacts[writer, delta.artifact_id] = _Artifact()
            elif artifact.is_closed or not artifact.is_empty:
                raise self._artifact_error(delta, "was created twice")
            is_own = writer in ("", self._task_id)
            kind = delta.start.kind
            artifact.is_synthesis = is_own and kind == event_pb2.ARTIFACT_KIND_SYNTHESIS
            artifact.is_answer = kind not in NEWS_KINDS
            if artifact.is_synthesis:
                artifact.named_agents = parse_agents(delta.start.metadata)
        elif artifact is None:
            raise self._artifact_error(delta, "was appended to before its create")
        if artifact.is_closed:
            raise self._artifact_error(delta, "was appended to after its close")
        if texts:
            self._collect(artifact, texts)
        elif delta.HasField("part"):
            self._collect_part(artifact, delta)
        artifact.is_closed = delta.last

    def _on_rewound(self, writer: str, remains: artifact_pb2.Artifact) -> None:
        artifact = self._artifacts.get((writer, remains.artifact_id))
        if artifact is None:
            raise self._contract_error(
                f"artifact {remains.artifact_id!r} was rewound before its create"
            )
        self._remaining_chars += artifact.clear()
        artifact.is_closed, artifact.is_empty = False, True
        for part in remains.parts:
            self._collect_part(artifact, event_pb2.ArtifactDelta(part=part))

    def _collect_part(self, artifact: _Artifact, delta: event_pb2.ArtifactDelta) -> None:
        if delta.part.HasField("text"):
            self._collect(artifact, [delta.part.text])
        else:
            artifact.is_empty = False
            if not artifact.is_earlier:
                artifact.files.append(delta.part)

    def _collect(self, artifact: _Artifact, texts: list[str]) -> None:
        artifact.is_empty = False
        if not artifact.is_earlier:
            self._remaining_chars -= artifact.add(texts, self._remaining_chars)

    def _event_kind(self, event: event_pb2.Event) -> EventKind:
        try:
            return event_kind(event)
        except InvalidArgumentError:
            raise self._contract_error("it sent an empty event") from None

    def _artifact_error(self, delta: event_pb2.ArtifactDelta, problem: str) -> PeerProtocolError:
        return self._contract_error(f"artifact {delta.artifact_id!r} {problem}")

    def _contract_error(self, problem: str) -> PeerProtocolError:
        return PeerProtocolError(f"agent {self._agent!r}", problem)
