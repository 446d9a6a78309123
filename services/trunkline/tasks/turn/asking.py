"""What a task asks people to approve while a turn runs: calls of its own and of its children."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from trunkline.tasks import approvals
from trunkline.tasks.turn.content import struct
from trunkline.v1 import event_pb2, message_pb2, snapshot_pb2

_GOES_ON: Final = "What this asked for was answered meanwhile; it goes on by itself."


class Asking:
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
    def news(self) -> Sequence[snapshot_pb2.ApprovalInfo]:
        """What was asked for since the turn began, or since it runs again."""
        return self.all[len(self._task.approvals) :]

    @property
    def is_open(self) -> bool:
        """Something waits for an answer, or has one that the next turn acts on."""
        return self.is_waiting or bool(self.answers(since=self._task.turn + 1))

    @property
    def is_waiting(self) -> bool:
        """Somebody has yet to answer something."""
        return bool(approvals.waiting(self._found.values()))

    def find(self, approval_id: str) -> snapshot_pb2.ApprovalInfo | None:
        """Return an approval; None: it was not asked for."""
        return self._found.get(approval_id)

    def of_call(
        self, tool: str, arguments: Mapping[str, Any] | None
    ) -> snapshot_pb2.ApprovalInfo | None:
        """Return the approval that the task itself asked for last for a call like this."""
        wanted = struct(arguments or {})
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
            arguments=struct(arguments or {}),
            path=self._path,
        )
        event = event_pb2.Event(approval_requested=requested)
        self.note(event)
        return event

    def note(self, event: event_pb2.Event) -> None:
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
        return approvals.answers_of(self.all, since=since)

    def read(
        self, message: message_pb2.Message, *, turn: int
    ) -> Sequence[event_pb2.ApprovalAnswered]:
        """Return what a message answers, for a turn to act on; see `trunkline.tasks.approvals`."""
        answers = approvals.read_answers(message, self._task)
        for answer in answers:
            answer.turn = turn
        return answers

    def put_into(self, message: message_pb2.Message, accepted_modes: Sequence[str]) -> None:
        """Put the question for all that waits into the message that ends a turn."""
        if self.is_waiting:
            message.parts.extend(approvals.question_parts(self.all, accepted_modes))
        else:
            message.parts.add(text=_GOES_ON)
