"""What an agent's code sees of its task: the turn that it runs, and what was before."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from trunkline.tasks.turn.content import text_of
from trunkline.tasks.turn.rewinding import Again
from trunkline.v1 import event_pb2, message_pb2, message_service_pb2, snapshot_pb2


class Turn:
    """One message to a task: what is known of both when the agent begins."""

    def __init__(
        self,
        snapshot: snapshot_pb2.TaskSnapshot,
        message: message_pb2.Message,
        *,
        forwarded: Mapping[str, int] | None = None,
        again: Again | None = None,
    ) -> None:
        """`snapshot` is the fold at the start of the turn; see `TaskContext`."""
        self.snapshot = snapshot
        self.message = message
        self._again = again
        self._forwarded = dict(forwarded or {})

    @property
    def id(self) -> str:
        """The task's id."""
        return self.snapshot.task.id

    @property
    def context_id(self) -> str:
        """The conversation's id."""
        return self.snapshot.task.context_id

    @property
    def agent(self) -> str:
        """Name of the agent that runs."""
        return self.snapshot.agent

    @property
    def account(self) -> str:
        """Whom the caller belongs to."""
        return self.snapshot.account

    @property
    def caller(self) -> str:
        """The caller within the account."""
        return self.snapshot.caller

    @property
    def turn(self) -> int:
        """Counts the task's messages, from 1."""
        return self.snapshot.turn

    @property
    def attempt(self) -> int:
        """Counts how often this turn was run, from 1: again after its host had died."""
        return 1 if self._again is None else self._again.attempt

    @property
    def is_taken_up(self) -> bool:
        """An earlier host had the task, and died before this turn had ended."""
        return self._again is not None

    @property
    def latest(self) -> snapshot_pb2.TaskSnapshot:
        """The task as it stood when this attempt began; `snapshot` is the start of the turn."""
        return self.snapshot if self._again is None else self._again.latest

    @property
    def forwarded(self) -> Mapping[str, int]:
        """The last sequence that was forwarded of each task that wrote first, by its id."""
        return self._forwarded

    @property
    def deadline(self) -> datetime | None:
        """When the task ends at the latest, in UTC."""
        if not self.snapshot.HasField("deadline"):
            return None
        return self.snapshot.deadline.ToDatetime(tzinfo=UTC)

    @property
    def accepted_output_modes(self) -> Sequence[str]:
        """The media types that the caller of the first turn can take; empty: it didn't say."""
        return self.snapshot.accepted_output_modes

    @property
    def text(self) -> str:
        """The text parts of this turn's message, joined by a space."""
        return text_of(self.message)

    @property
    def history(self) -> Sequence[message_pb2.Message]:
        """The messages of the task up to and including this turn's, oldest first."""
        return self.snapshot.task.history

    @property
    def path(self) -> tuple[str, ...]:
        """Agents from the root of the request down to this one."""
        return (*self.snapshot.parent.path, self.agent)

    def child_submission(self, task_id: str) -> message_service_pb2.Submission:
        """Return the submission of a child: same caller, same deadline, this task as parent."""
        submission = message_service_pb2.Submission(
            account=self.account,
            caller=self.caller,
            task_id=task_id,
            priority=self.snapshot.priority,
            accepted_output_modes=self.accepted_output_modes,
            parent=event_pb2.ParentTask(task_id=self.id, agent=self.agent, path=self.path),
        )
        if self.snapshot.HasField("deadline"):
            submission.deadline.CopyFrom(self.snapshot.deadline)
        return submission
