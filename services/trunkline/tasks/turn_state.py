"""State of a turn that begins with its task: free ids, open children, approvals, the pause."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from trunkline.core.json_values import build_struct, has_same_json, update_struct
from trunkline.core.task_states import PAUSED_KEY, is_paused
from trunkline.core.users import (
    current_actor,
    current_statement,
    find_approving_user,
    requires_proof,
)
from trunkline.errors import PermissionDeniedError
from trunkline.tasks import approvals
from trunkline.tasks.emitter import Emitter
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, build_status_event
from trunkline.v1 import event_pb2, message_pb2, snapshot_pb2, task_pb2


def turn_traceparent(snapshot: snapshot_pb2.TaskSnapshot) -> str:
    """Return the trace context of the request that began the current turn."""
    return snapshot.turn_traceparent or snapshot.traceparent


class IdAllocator:
    """Allocates ids of artifacts, plans and tool calls.

    Artifacts and plans are numbered from the start of the turn, so a turn that runs again gets the
    same ids. Tool calls are numbered from the latest one.
    """

    def __init__(self, latest: snapshot_pb2.TaskSnapshot, turn_start: int) -> None:
        """`latest` is the task as it stands, `turn_start` the sequence that opened the turn."""
        self._artifacts = self._plans = 0
        # By id, the task's own artifacts of earlier turns: True for a closed one.
        self._closed: dict[str, bool] = {}
        if latest.artifacts or latest.plans:
            self._restore(latest, turn_start)
        self._revisions = {plan.plan_id: plan.revision for plan in latest.plans}
        self._calls = len(latest.tool_calls)

    def _restore(self, latest: snapshot_pb2.TaskSnapshot, turn_start: int) -> None:
        self._closed = {
            info.artifact_id: info.closed
            for info in latest.artifacts
            if info.first_sequence <= turn_start and not info.HasField("origin")
        }
        plans = (plan.plan_id for plan in latest.plans if plan.first_sequence <= turn_start)
        self._artifacts = _find_highest_number("artifact-", self._closed)
        self._plans = _find_highest_number("plan-", plans)

    def next_artifact_id(self, chosen_id: str = "") -> str:
        """Return the id of the next artifact. An id that the author chose also takes a number."""
        self._artifacts += 1
        return chosen_id or f"artifact-{self._artifacts}"

    @property
    def has_artifacts(self) -> bool:
        """True if an id of an artifact was allocated."""
        return self._artifacts > 0

    def is_closed_before(self, artifact_id: str) -> bool | None:
        """Return whether an artifact of an earlier turn is closed, if there is such an artifact."""
        return self._closed.get(artifact_id)

    def next_plan(self) -> tuple[str, int]:
        """Return the id of the next plan and its first revision."""
        self._plans += 1
        plan_id = f"plan-{self._plans}"
        return plan_id, self._revisions.get(plan_id, 0) + 1

    def next_call_id(self) -> str:
        """Return the id of the next tool call."""
        self._calls += 1
        return f"call-{self._calls}"


def _find_highest_number(prefix: str, ids: Iterable[str]) -> int:
    """Return the highest number of the ids. It may exceed their count, as some are never used."""
    numbers = (each.removeprefix(prefix) for each in ids if each.startswith(prefix))
    # Authors may choose ids of the same form with very long numbers.
    return max((int(each) for each in numbers if each.isdecimal() and len(each) < 10), default=0)


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
        """The start event of each open child."""
        return list(self._started.values())

    def apply(self, event: event_pb2.Event) -> None:
        """Apply a recorded event; events that do not concern children are ignored."""
        if event.HasField("child_started"):
            self._started[event.child_started.task_id] = event.child_started
        elif event.HasField("child_finished") and event.child_finished.state in TERMINAL:
            self._started.pop(event.child_finished.task_id, None)

    def remove(self, task_id: str) -> None:
        """Remove a child that could not be created."""
        self._started.pop(task_id, None)


_ALREADY_ANSWERED: Final = "The requested approvals are answered; the task continues shortly."


class PendingApprovals:
    """The approvals of a task, at the start of the attempt and recorded since."""

    def __init__(self, task: snapshot_pb2.TaskSnapshot, *, path: Sequence[str]) -> None:
        self.continuation = b""
        """The state of the agent for the next turn if this turn asks something; 64 KiB at most.

        The next turn finds it in `snapshot.continuation`. It is opaque to the host.
        """
        self._task = task
        self._path = path
        self._by_id: dict[str, snapshot_pb2.ApprovalInfo] = {}
        for approval in task.approvals:
            copy = self._by_id[approval.requested.approval_id] = snapshot_pb2.ApprovalInfo()
            copy.CopyFrom(approval)

    @property
    def all(self) -> Sequence[snapshot_pb2.ApprovalInfo]:
        """All requested approvals, in order."""
        return list(self._by_id.values())

    @property
    def new(self) -> Sequence[snapshot_pb2.ApprovalInfo]:
        """The approvals requested since this attempt at the turn began."""
        return self.all[len(self._task.approvals) :]

    @property
    def is_open(self) -> bool:
        """True if an approval is pending, or has an answer for the next turn."""
        return self.is_waiting or bool(self.answers(since=self._task.turn + 1))

    @property
    def is_waiting(self) -> bool:
        """True if an approval is pending."""
        return bool(approvals.pending_approvals(self._by_id.values()))

    def find(self, approval_id: str) -> snapshot_pb2.ApprovalInfo | None:
        """Return an approval, if it was requested."""
        return self._by_id.get(approval_id)

    def find_call(
        self, tool: str, arguments: Mapping[str, Any] | None
    ) -> snapshot_pb2.ApprovalInfo | None:
        """Return the latest approval that the task itself requested for this call."""
        expected = build_struct(arguments or {})
        latest = None
        for approval in self._by_id.values():
            request = approval.requested
            is_own = not request.child_task_id and request.tool == tool
            if is_own and has_same_json(request.arguments, expected):
                latest = approval
        return latest

    def find_step(self, step_id: str) -> snapshot_pb2.ApprovalInfo | None:
        """Return the approval that the task itself requested for one of its numbered calls."""
        for approval in self._by_id.values():
            request = approval.requested
            if not request.child_task_id and request.step_id == step_id:
                return approval
        return None

    def request(
        self, tool: str, arguments: Mapping[str, Any] | None, *, step_id: str = ""
    ) -> event_pb2.Event:
        """Add an approval of a call; return its event, which the caller records."""
        count = sum(not each.requested.child_task_id for each in self._by_id.values())
        requested = event_pb2.ApprovalRequested(
            approval_id=f"{self._task.task.id}.{count + 1}",
            tool=tool,
            arguments=build_struct(arguments or {}),
            path=self._path,
            step_id=step_id,
        )
        event = event_pb2.Event(approval_requested=requested)
        self.apply(event)
        return event

    def apply(self, event: event_pb2.Event) -> None:
        """Apply a recorded event; events that do not concern approvals are ignored."""
        if event.HasField("approval_requested"):
            requested = event.approval_requested
            approval = self._by_id.setdefault(requested.approval_id, snapshot_pb2.ApprovalInfo())
            approval.requested.CopyFrom(requested)
        elif event.HasField("approval_answered"):
            answered = event.approval_answered
            if (pending := self._by_id.get(answered.approval_id)) is not None:
                pending.answered.CopyFrom(answered)

    def statements_for(self, child_id: str, *, turn: int) -> Sequence[str]:
        """Return the statements of the users who approved calls of a child for a turn.

        The statement of the current user is not among them.
        """
        statements = {
            approval.answered.user_statement
            for approval in self._by_id.values()
            if approval.requested.child_task_id == child_id and approval.answered.turn >= turn
        }
        return sorted(statements - {"", current_statement()})

    def answers(self, *, since: int) -> list[event_pb2.ApprovalAnswered]:
        """Return the answers for the turn `since` and later turns."""
        return approvals.answers_since(self.all, since=since)

    def parse_answers(
        self, message: message_pb2.Message, *, turn: int
    ) -> Sequence[event_pb2.ApprovalAnswered]:
        """Return a message's answers, for `turn` to act on; see `trunkline.tasks.approvals`."""
        answers = approvals.parse_answers(message, self._task)
        for answer in answers:
            self.seal(answer, turn=turn)
        return answers

    def seal(self, answer: event_pb2.ApprovalAnswered, *, turn: int) -> None:
        """Record in a new answer who gave it, the digest of the call, and the turn to act on it.

        Raises:
            PermissionDeniedError: a process that joined passes it on, and no statement of a user
                approves the call.
        """
        answer.turn = turn
        answer.account = self._task.account
        approval = self._by_id.get(answer.approval_id)
        if approval is not None:
            answer.call_digest = approvals.digest_answer(approval.requested, answer)
        user = find_approving_user(answer.call_digest)
        is_proven = user is not None and answer.call_digest in user.approved
        if requires_proof.get() and answer.call_digest and not is_proven:
            action = f"approve {answer.approval_id}: no statement of the user proves it"
            raise PermissionDeniedError(current_actor.get(), action)
        if user is not None:
            answer.user, answer.user_statement = user.name, user.statement

    def add_question(self, message: message_pb2.Message, accepted_modes: Sequence[str]) -> None:
        """Add the question for all pending approvals to a turn's last message."""
        if self.is_waiting:
            message.parts.extend(approvals.build_question_parts(self.all, accepted_modes))
        else:
            message.parts.add(text=_ALREADY_ANSWERED)


class TurnPause:
    """The pause of a turn, in which no further step begins, also over restarts of its host.

    Also says whether the host leaves the turn to the next host.
    """

    def __init__(self, latest: snapshot_pb2.TaskSnapshot, emitter: Emitter) -> None:
        """Start from the task's metadata."""
        self.is_leaving: bool = False
        """True once the host shuts down and leaves the turn to the next host."""
        self._latest = latest
        self._emitter = emitter
        self._running = asyncio.Event()
        if not is_paused(latest.task.metadata):
            self._running.set()

    @property
    def is_paused(self) -> bool:
        """True if no further step may begin."""
        return not self._running.is_set()

    async def wait(self) -> None:
        """Wait until the task is not paused. Agents that can be paused do so before each step."""
        await self._running.wait()

    async def change(self, state: task_pb2.TaskState.ValueType, *, is_paused: bool) -> None:
        """Pause or resume the task, which is in this state, and journal it. For the host only."""
        if is_paused == self.is_paused:
            return
        event = build_status_event(state)
        update_struct(event.status.metadata, {PAUSED_KEY: is_paused})
        if state in INTERRUPTED:
            # A status that waits is whole: it repeats the question.
            event.status.status.message.CopyFrom(self._latest.task.status.message)
            event.status.continuation = self._latest.continuation
        if is_paused:
            self._running.clear()
        self._emitter.put(event)
        await self._emitter.commit()
        if not is_paused:
            self._running.set()
