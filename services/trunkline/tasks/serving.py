"""What a host offers to whoever serves its tasks on a wire."""

from typing import Protocol

from trunkline.artifacts import BlobStore
from trunkline.tasks.outbox import PushConfigs
from trunkline.tasks.submission import SubmitResult
from trunkline.tasks.watch import TaskWatch
from trunkline.v1 import message_pb2, message_service_pb2, snapshot_pb2, task_service_pb2


class Tasks(Protocol):
    """Tasks of one journal (`TaskHost`) or of several (`Hosts`), which say what each raises."""

    @property
    def push_configs(self) -> PushConfigs:
        """The webhooks of the tasks, and with them the outbox."""
        ...

    async def submit(
        self,
        agent_name: str,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
    ) -> SubmitResult | message_pb2.Message:
        """Take a message: for a new task, for the next turn of one, or for a direct reply."""
        ...

    async def snapshot(self, task_id: str, *, account: str) -> snapshot_pb2.TaskSnapshot:
        """Return the fold of a task of the account."""
        ...

    def list(
        self, request: task_service_pb2.ListTasksRequest
    ) -> task_service_pb2.ListTasksResponse:
        """List tasks of the account, newest status first."""
        ...

    def watch(  # noqa: PLR0913  what a reader may choose, each by name
        self,
        task_id: str,
        *,
        account: str,
        after: int | None = None,
        epoch: int = 0,
        with_snapshot: bool = False,
        until_head: bool = False,
        until_turn_ends: bool = False,
    ) -> TaskWatch:
        """Read a task's events behind a cursor, or from the head on."""
        ...

    def blobs(self, task_id: str, *, account: str) -> BlobStore:
        """Return where the content of a task of the account lies that is too big for events."""
        ...

    async def set_alias(self, account: str, alias: str, task_id: str, *, replaces: str) -> str:
        """Let an alias stand for a task; return the id of the task that it stands for now."""
        ...

    def resolve_alias(self, account: str, alias: str) -> str:
        """Return the id of the task that an alias stands for."""
        ...

    async def wait_turn(self, task_id: str) -> snapshot_pb2.TaskSnapshot:
        """Wait until the task has ended or is interrupted, and return its fold."""
        ...

    async def answer_approval(
        self, request: task_service_pb2.AnswerApprovalRequest
    ) -> snapshot_pb2.ApprovalInfo:
        """Answer an approval that a task of the account, or a descendant, asks for."""
        ...

    async def cancel(
        self, task_id: str, *, account: str, reason: str = ""
    ) -> snapshot_pb2.TaskSnapshot:
        """Stop a task and its descendants; return it, ended."""
        ...
