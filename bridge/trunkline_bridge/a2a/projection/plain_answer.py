"""The one answer of a turn in the plain view: its content at any event of the journal. Pure.

The content depends only on the events so far, not on batches or on where a reader began. So
streams, resumed streams and stored tasks agree. While the agents work, it is the known beginning
of the answer. A supervisor's combined answer then continues or replaces it.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from trunkline.a2a_wire.roles import ArtifactRole, set_role
from trunkline.core.parts import is_plain_text
from trunkline.core.task_states import TURN_END
from trunkline.v1 import artifact_pb2, event_pb2, part_pb2, snapshot_pb2, task_pb2

AnswerContent: TypeAlias = list[str | part_pb2.Part]
"""Texts and other parts in order. No text is empty or follows another text."""
Key: TypeAlias = tuple[str, str]
"""An artifact: the task that wrote it, empty for the task itself, and its id."""

_SYNTHESIS: Final = event_pb2.ARTIFACT_KIND_SYNTHESIS
_DRAFT: Final = event_pb2.ARTIFACT_KIND_DRAFT
_FAILURES: Final = (task_pb2.TASK_STATE_FAILED, task_pb2.TASK_STATE_REJECTED)
_ANSWERS: Final = (event_pb2.ARTIFACT_KIND_UNSPECIFIED, event_pb2.ARTIFACT_KIND_ANSWER)


class View(StrEnum):
    """The two ways to show a task."""

    DETAILED = "detailed"
    """With the plan, tool calls, and the texts of a supervisor's agents while they work."""
    PLAIN = "plain"
    """Statuses and one answer."""


@dataclass(slots=True)
class _Segment:
    """An artifact that may be a part of the answer."""

    kind: event_pb2.ArtifactKind.ValueType
    turn: int
    child: str
    """The child task that wrote or forwarded it, or an empty text if the task itself wrote it."""
    content: AnswerContent = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    """The texts after the content, not yet joined."""
    is_closed: bool = False

    def items(self) -> AnswerContent:
        """Return the content with the texts joined."""
        if self.texts:
            text = "".join(self.texts)
            self.texts = [text] if text else []
        return join_content([*self.content, *self.texts])

    def text(self) -> str:
        """Return the text without other parts."""
        return "".join(item for item in self.items() if isinstance(item, str))

    def add(self, part: part_pb2.Part) -> None:
        """Append a part."""
        if is_plain_text(part):
            self.texts.append(part.text)
        else:
            self.content = [*self.items(), part]
            self.texts = []


class PlainAnswer:
    """The answers of a task's turns, built from its events or from a snapshot."""

    def __init__(self, snapshot: snapshot_pb2.TaskSnapshot | None = None) -> None:
        self.turn = 1
        self.has_ended = False
        """True if the turn has ended."""
        self.live: Key | None = None
        """The artifact whose next text continues the answer; see `update_live`."""
        self._segments: dict[Key, _Segment] = {}
        self._steps: list[str] = []
        self._is_rewritten = False
        # The last child of each step, the step of each child, and the state in which it stopped.
        self._children: dict[str, str] = {}
        self._child_steps: dict[str, str] = {}
        self._stopped: dict[str, task_pb2.TaskState.ValueType] = {}
        if snapshot is not None:
            self._restore(snapshot)

    def _restore(self, snapshot: snapshot_pb2.TaskSnapshot) -> None:
        self.turn = snapshot.turn or 1
        self.has_ended = snapshot.task.status.state in TURN_END
        for artifact, info in zip(snapshot.task.artifacts, snapshot.artifacts, strict=True):
            segment = self.begin(
                (info.origin.task_id, info.artifact_id),
                info.kind,
                info.origin if info.HasField("origin") else None,
                turn=info.turn or self.turn,
            )
            for part in artifact.parts:
                segment.add(part)
            segment.is_closed = info.closed
        for plan in snapshot.plans:
            if plan.steps:
                self.set_plan(plan.steps, is_rewritten=plan.rewritten)
        for child in snapshot.children:
            self.start_child(child.started)
            if child.HasField("finished"):
                self.stop_child(child.finished)
        self.update_live()

    def start_turn(self, turn: int) -> None:
        """Begin another turn, whose answer is empty."""
        self.turn, self.has_ended = turn, False

    def set_plan(self, steps: Iterable[event_pb2.PlanStep], *, is_rewritten: bool) -> None:
        """Set the order of the steps. A model may rewrite their answers."""
        self._steps = [step.step_id for step in steps]
        self._is_rewritten = is_rewritten

    def start_child(self, started: event_pb2.ChildStarted) -> None:
        """Note the child of a step."""
        if started.step_id:
            self._children[started.step_id] = started.task_id
            self._child_steps[started.task_id] = started.step_id
        self._stopped.pop(started.task_id, None)

    def stop_child(self, finished: event_pb2.ChildFinished) -> None:
        """Note that a child has ended or waits."""
        self._stopped[finished.task_id] = finished.state

    def find(self, key: Key) -> _Segment | None:
        """Return an artifact that has begun."""
        return self._segments.get(key)

    def begin(
        self,
        key: Key,
        kind: event_pb2.ArtifactKind.ValueType,
        origin: event_pb2.Origin | None,
        *,
        turn: int | None = None,
    ) -> _Segment:
        """Return an artifact that begins; an empty one may begin again."""
        child = "" if origin is None else origin.child_task_id or origin.task_id
        segment = _Segment(kind, self.turn if turn is None else turn, child)
        earlier = self._segments.get(key)
        if earlier is not None:
            segment.turn = earlier.turn
        self._segments[key] = segment
        return segment

    def content(self, turn: int | None = None) -> AnswerContent:
        """Return the answer of a turn, by default of the current turn."""
        turn = self.turn if turn is None else turn
        is_over = self.has_ended or turn < self.turn
        current = {key: item for key, item in self._segments.items() if item.turn == turn}
        own = [item for item in current.values() if not item.child]
        written = [item for item in own if item.kind in _ANSWERS]
        drafts = [item for item in own if item.kind == _DRAFT]
        whole = next((item for item in own if item.kind == _SYNTHESIS), None)
        if written:
            begun = _join_artifacts(_until_open(written, is_over=is_over))
        elif drafts or (self._is_rewritten and not is_over):
            begun = _join_artifacts(drafts)
        elif not is_over:
            begun = _join_lines(self._step_texts(current))
        else:
            children = self._answering_children(current)
            begun = _join_lines(_child_text(child, current, is_over=True) for child in children)
        return _continue(begun, whole)

    def turns(self) -> list[int]:
        """Return the turns that have an answer, in order."""
        turns = sorted({segment.turn for segment in self._segments.values()})
        return [turn for turn in turns if self.content(turn)]

    def update_live(self) -> None:
        """Find the artifact at the end of the answer that is still being written."""
        self.live = None
        before = self.content()
        for key, segment in reversed(self._segments.items()):
            if segment.turn != self.turn or segment.is_closed or self.has_ended:
                continue
            texts = segment.texts
            segment.texts = [*texts, _MARK]
            after = self.content()
            segment.texts = texts
            if before and after == join_content([*before, _MARK]):
                self.live = key
                return

    def _step_texts(self, current: dict[Key, _Segment]) -> Iterable[str]:
        """Yield the texts of the steps that the answer will begin with."""
        for step in self._steps:
            child = self._children.get(step, "")
            has_begun = any(child and item.child == child for item in current.values())
            if not has_begun and any(item.child == child for item in self._segments.values()):
                # An earlier turn has its answer.
                continue
            has_stopped = child in self._stopped
            text = _child_text(child, current, is_over=has_stopped) if child else ""
            if not self._has_failed(child):
                yield text
            # The rest is known once this step has completed with a text of artifacts.
            if not (text and self._stopped.get(child) == task_pb2.TASK_STATE_COMPLETED):
                return

    def _answering_children(self, current: dict[Key, _Segment]) -> list[str]:
        """Return the children whose texts are the answer of a turn without a combined answer.

        They are in the order of their steps, also after a later turn has replaced the plan.
        """
        steps = self._child_steps
        children = dict.fromkeys(item.child for item in current.values() if item.child)
        # The steps are `step-1`, `step-2`, ….
        return sorted(
            (child for child in children if not self._has_failed(child)),
            key=lambda child: (len(steps.get(child, "")), steps.get(child, "")),
        )

    def _has_failed(self, child: str) -> bool:
        """Return whether a child has ended without an answer. A canceled one leaves its text."""
        return self._stopped.get(child) in _FAILURES


# Appended to a text to find out where new text appears; no agent's text is compared with it.
_MARK: Final = "\0mark"


def join_content(items: Iterable[str | part_pb2.Part]) -> AnswerContent:
    """Return items with adjacent texts joined, and without empty texts."""
    joined: AnswerContent = []
    for item in items:
        if isinstance(item, str) and joined and isinstance(joined[-1], str):
            joined[-1] += item
        elif item != "":
            joined.append(item)
    return joined


def find_rest(before: AnswerContent, after: AnswerContent) -> AnswerContent | None:
    """Return what `after` has beyond `before`; None if it does not begin with it."""
    if not before:
        return after
    last = len(before) - 1
    if len(after) < len(before) or after[:last] != before[:last]:
        return None
    old, new = before[last], after[last]
    if isinstance(old, str) and isinstance(new, str):
        return join_content([new[len(old) :], *after[last + 1 :]]) if new.startswith(old) else None
    return after[last + 1 :] if old == new else None


def _until_open(segments: Sequence[_Segment], *, is_over: bool) -> Sequence[_Segment]:
    """Return the segments up to the first that is still being written, all if the turn is over."""
    if is_over:
        return segments
    for number, segment in enumerate(segments, start=1):
        if not segment.is_closed:
            return segments[:number]
    return segments


def _join_artifacts(segments: Iterable[_Segment]) -> AnswerContent:
    """Join artifacts, with a line break between texts."""
    joined: AnswerContent = []
    for segment in segments:
        items = segment.items()
        is_between = joined and items and isinstance(joined[-1], str) and isinstance(items[0], str)
        joined += ["\n", *items] if is_between else items
    return join_content(joined)


def _child_text(child: str, current: dict[Key, _Segment], *, is_over: bool) -> str:
    """Return the text of a child: its combined answer, or else its own and its forwarded texts."""
    segments = {key: item for key, item in current.items() if item.child == child}
    whole = next(
        (item for (task, _), item in segments.items() if task == child and item.kind == _SYNTHESIS),
        None,
    )
    parts = [item for item in segments.values() if item.kind in _ANSWERS]
    begun = _join_lines(item.text() for item in _until_open(parts, is_over=is_over))
    return "".join(item for item in _continue(begun, whole) if isinstance(item, str))


def _join_lines(texts: Iterable[str]) -> AnswerContent:
    """Join texts as supervisors do."""
    text = "\n".join(text for text in texts if text)
    return [text] if text else []


def _continue(begun: AnswerContent, whole: _Segment | None) -> AnswerContent:
    """Return the whole answer, or the begun answer while that is longer."""
    if whole is None:
        return begun
    items = whole.items()
    if not whole.is_closed and find_rest(items, begun) is not None:
        return begun
    return items


def answer_head(turn: int) -> artifact_pb2.Artifact:
    """Return the answer of a turn without its content."""
    head = artifact_pb2.Artifact(artifact_id=f"answer-{turn}", name="answer")
    return set_role(head, ArtifactRole.ANSWER)


def plain_artifacts(snapshot: snapshot_pb2.TaskSnapshot) -> list[artifact_pb2.Artifact]:
    """Return the answers of a stored task, one for each turn that has one."""
    answer = PlainAnswer(snapshot)
    artifacts = []
    for turn in answer.turns():
        artifact = answer_head(turn)
        artifact.parts.extend(to_parts(answer.content(turn)))
        artifacts.append(artifact)
    return artifacts


def to_parts(content: Iterable[str | part_pb2.Part]) -> Iterator[part_pb2.Part]:
    """Convert content to parts."""
    for item in content:
        yield part_pb2.Part(text=item) if isinstance(item, str) else item


def count_plain_final_events(snapshot: snapshot_pb2.TaskSnapshot) -> int:
    """Return the number of wire events into which the last status of a turn is projected."""
    return 2 if PlainAnswer(snapshot).content() else 1
