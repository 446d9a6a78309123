"""Gives out the ids of what a turn writes: the same ones when the turn runs again."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from trunkline.tasks import approvals
from trunkline.tasks.content import to_struct
from trunkline.tasks.lifecycle import TERMINAL
from trunkline.v1 import event_pb2, message_pb2, snapshot_pb2


class IdAllocator:
    """Counts artifacts and plans from where they stood at the start of a turn, calls from now."""

    def __init__(self, latest: snapshot_pb2.TaskSnapshot, turn_start: int) -> None:
        """`latest` is the task as it stands, `turn_start` the sequence that opened the turn."""
        self._artifacts = self._plans = 0
        # The task's own artifacts of earlier turns, and whether each is closed.
        self._closed: dict[str, bool] = {}
        if latest.artifacts or latest.plans:
            self._go_on_from(latest, turn_start)
        self._revisions = {plan.plan_id: plan.revision for plan in latest.plans}
        self._calls = len(latest.tool_calls)

    def _go_on_from(self, latest: snapshot_pb2.TaskSnapshot, turn_start: int) -> None:
        self._closed = {
            info.artifact_id: info.closed
            for info in latest.artifacts
            if info.first_sequence <= turn_start and not info.HasField("origin")
        }
        plans = (plan.plan_id for plan in latest.plans if plan.first_sequence <= turn_start)
        self._artifacts = _highest("artifact-", self._closed)
        self._plans = _highest("plan-", plans)

    def next_artifact_id(self, name: str = "") -> str:
        """Return the id of the next artifact; its own if it has one, which counts, too."""
        self._artifacts += 1
        return name or f"artifact-{self._artifacts}"

    def is_closed_before(self, artifact_id: str) -> bool | None:
        """Whether an artifact of an earlier turn is closed; None: there is none of this id."""
        return self._closed.get(artifact_id)

    def next_plan(self) -> tuple[str, int]:
        """Return the id of the next plan, and the revision that it begins with."""
        self._plans += 1
        plan_id = f"plan-{self._plans}"
        return plan_id, self._revisions.get(plan_id, 0) + 1

    def next_call_id(self) -> str:
        """Return the id of the next tool call."""
        self._calls += 1
        return f"call-{self._calls}"


def _highest(prefix: str, ids: Iterable[str]) -> int:
    """The highest number that was given out: a writer that never wrote left a gap."""
    numbers = (one.removeprefix(prefix) for one in ids if one.startswith(prefix))
    # Longer ones are somebody's own.
    return max((int(one) for one in numbers if one.isdecimal() and len(one) < 10), default=0)


class OpenChildren:
    """The children of a task that have not ended."""

    def __init__(self, task: snapshot_pb2.TaskSnapshot) -> None:
        self._started = {
            child.started.task_id: child.started
            for child in task.children
            if not (child.HasField("finished") and child.finished.state in TERMINAL)
        }

    def __contains__(self, task_id: str) -> bool:
        return task_id in self._started

    @property
    def all(self) -> Sequence[event_pb2.ChildStarted]:
        """How each of them began."""
        return list(self._started.values())

    def apply(self, event: event_pb2.Event) -> None:
        """Take in what is recorded, if it is about a child."""
        if event.HasField("child_started"):
            self._started[event.child_started.task_id] = event.child_started
        elif event.HasField("child_finished") and event.child_finished.state in TERMINAL:
            self._started.pop(event.child_finished.task_id, None)

    def forget(self, task_id: str) -> None:
        """Don't count a child any more that was never made."""
        self._started.pop(task_id, None)


_GOES_ON: Final = "What this asked for was answered meanwhile; it goes on by itself."


class PendingApprovals:
    """The approvals of a task, from how it stood when its turn began."""

    def __init__(self, task: snapshot_pb2.TaskSnapshot, *, path: Sequence[str]) -> None:
        self.continuation = b""
        """What the agent goes on from in the next turn, if this one ends by asking; 64 KiB at most.

        It is in that turn's `snapshot.continuation`, and nobody else's business.
        """
        self._task = task
        self._path = path
        self._found: dict[str, snapshot_pb2.ApprovalInfo] = {}
        for known in task.approvals:
            one = self._found[known.requested.approval_id] = snapshot_pb2.ApprovalInfo()
            one.CopyFrom(known)

    @property
    def all(self) -> Sequence[snapshot_pb2.ApprovalInfo]:
        """All that was asked for, in order."""
        return list(self._found.values())

    @property
    def new(self) -> Sequence[snapshot_pb2.ApprovalInfo]:
        """What was asked for since the turn began, or since it runs again."""
        return self.all[len(self._task.approvals) :]

    @property
    def is_open(self) -> bool:
        """Something waits for an answer, or has one that the next turn acts on."""
        return self.is_waiting or bool(self.answers(since=self._task.turn + 1))

    @property
    def is_waiting(self) -> bool:
        """Somebody has yet to answer something."""
        return bool(approvals.pending_approvals(self._found.values()))

    def find(self, approval_id: str) -> snapshot_pb2.ApprovalInfo | None:
        """Return an approval; None: it was not asked for."""
        return self._found.get(approval_id)

    def find_call(
        self, tool: str, arguments: Mapping[str, Any] | None
    ) -> snapshot_pb2.ApprovalInfo | None:
        """Return the approval that the task itself asked for last for a call like this."""
        wanted = to_struct(arguments or {})
        found = None
        for one in self._found.values():
            asked = one.requested
            if not asked.child_task_id and asked.tool == tool and asked.arguments == wanted:
                found = one
        return found

    def request(self, tool: str, arguments: Mapping[str, Any] | None) -> event_pb2.Event:
        """Return the event that asks for a call of the task's own: to be recorded."""
        own = sum(not one.requested.child_task_id for one in self._found.values())
        requested = event_pb2.ApprovalRequested(
            approval_id=f"{self._task.task.id}.{own + 1}",
            tool=tool,
            arguments=to_struct(arguments or {}),
            path=self._path,
        )
        event = event_pb2.Event(approval_requested=requested)
        self.apply(event)
        return event

    def apply(self, event: event_pb2.Event) -> None:
        """Take in what is recorded, if it is about an approval."""
        if event.HasField("approval_requested"):
            requested = event.approval_requested
            one = self._found.setdefault(requested.approval_id, snapshot_pb2.ApprovalInfo())
            one.requested.CopyFrom(requested)
        elif event.HasField("approval_answered"):
            answered = event.approval_answered
            if (known := self._found.get(answered.approval_id)) is not None:
                known.answered.CopyFrom(answered)

    def answers(self, *, since: int) -> list[event_pb2.ApprovalAnswered]:
        """Return the answers that this turn, or a later one, acts on."""
        return approvals.answers_since(self.all, since=since)

    def parse_answers(
        self, message: message_pb2.Message, *, turn: int
    ) -> Sequence[event_pb2.ApprovalAnswered]:
        """Return what a message answers, for a turn to act on; see `trunkline.tasks.approvals`."""
        answers = approvals.parse_answers(message, self._task)
        for answer in answers:
            answer.turn = turn
        return answers

    def add_question(self, message: message_pb2.Message, accepted_modes: Sequence[str]) -> None:
        """Put the question for all that waits into the message that ends a turn."""
        if self.is_waiting:
            message.parts.extend(approvals.build_question_parts(self.all, accepted_modes))
        else:
            message.parts.add(text=_GOES_ON)
