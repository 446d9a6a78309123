"""Calls to a host: messages to its agents, its tasks, and their webhooks."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Final

import grpc

from trunkline.client.hosts.calls import UNARY_TIMEOUT_S, Method
from trunkline.client.hosts.webhooks import WebhookCalls
from trunkline.client.stream import TaskStream
from trunkline.errors import PeerProtocolError
from trunkline.v1 import (
    message_pb2,
    message_service_pb2,
    message_service_pb2_grpc,
    snapshot_pb2,
    task_service_pb2,
    task_service_pb2_grpc,
)

_MESSAGES: Final = "trunkline.v1.MessageService/"
_TASKS: Final = "trunkline.v1.TaskService/"


class HostClient(WebhookCalls):
    """A host as its callers see it. Every method raises TrunklineErrors only.

    Calls ride on the channel's trunk, where it has one and the host serves it.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        super().__init__(channel)
        messages = message_service_pb2_grpc.MessageServiceStub(channel)
        tasks = task_service_pb2_grpc.TaskServiceStub(channel)
        contract = task_service_pb2
        self._send = Method(
            f"{_MESSAGES}SendMessage",
            messages.SendMessage,
            message_service_pb2.SendMessageResponse,
        )
        self._stream = Method(
            f"{_MESSAGES}StreamMessage",
            messages.StreamMessage,
            message_service_pb2.StreamMessageResponse,
        )
        self._get = Method(f"{_TASKS}GetTask", tasks.GetTask, contract.GetTaskResponse)
        self._list = Method(f"{_TASKS}ListTasks", tasks.ListTasks, contract.ListTasksResponse)
        self._cancel = Method(f"{_TASKS}CancelTask", tasks.CancelTask, contract.CancelTaskResponse)
        self._answer_approval = Method(
            f"{_TASKS}AnswerApproval", tasks.AnswerApproval, contract.AnswerApprovalResponse
        )
        self._set_alias = Method(
            f"{_TASKS}SetTaskAlias", tasks.SetTaskAlias, contract.SetTaskAliasResponse
        )
        self._resolve_alias = Method(
            f"{_TASKS}ResolveTaskAlias", tasks.ResolveTaskAlias, contract.ResolveTaskAliasResponse
        )
        self._watch = Method(f"{_TASKS}WatchTask", tasks.WatchTask, contract.WatchTaskResponse)

    async def send_message(
        self,
        *,
        agent: str,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
        return_immediately: bool = False,
        timeout_s: float | None = None,
    ) -> snapshot_pb2.TaskSnapshot | message_pb2.Message:
        """Give a message to an agent; return the task when its turn is over, or the direct reply.

        With `return_immediately`, return as soon as the task exists. The end of the call, by its
        timeout too, doesn't end the task.
        """
        request = message_service_pb2.SendMessageRequest(
            agent=agent,
            message=message,
            submission=submission,
            return_immediately=return_immediately,
        )
        response = await self.call(
            self._send, request, timeout_s=UNARY_TIMEOUT_S if timeout_s is None else timeout_s
        )
        match response.WhichOneof("payload"):
            case "snapshot":
                return response.snapshot
            case "message":
                return response.message
        raise PeerProtocolError(self.peer, "it answered with neither a task nor a message")

    @asynccontextmanager
    async def stream_message(
        self,
        *,
        agent: str,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
    ) -> AsyncIterator[TaskStream]:
        """Give a message to an agent and follow the turn until it is over."""
        request = message_service_pb2.StreamMessageRequest(
            agent=agent, message=message, submission=submission
        )
        async with self.opened(self._stream, request) as stream:
            if stream.snapshot is None and stream.message is None:
                problem = "its stream began with neither a snapshot nor a message"
                raise PeerProtocolError(self.peer, problem)
            yield stream

    async def get_task(self, task_id: str, *, account: str) -> snapshot_pb2.TaskSnapshot:
        """Return the fold of a task."""
        request = task_service_pb2.GetTaskRequest(task_id=task_id, account=account)
        return (await self.read(self._get, request)).snapshot

    async def list_tasks(
        self, request: task_service_pb2.ListTasksRequest
    ) -> task_service_pb2.ListTasksResponse:
        """Return a page of the host's tasks."""
        return await self.read(self._list, request)

    async def cancel_task(
        self, task_id: str, *, account: str, reason: str = ""
    ) -> snapshot_pb2.TaskSnapshot:
        """Cancel a task and its descendants; return it, ended."""
        request = task_service_pb2.CancelTaskRequest(
            task_id=task_id, account=account, reason=reason
        )
        return (await self.call(self._cancel, request)).snapshot

    async def answer_approval(
        self, request: task_service_pb2.AnswerApprovalRequest
    ) -> snapshot_pb2.ApprovalInfo:
        """Answer an approval that a task, or one of its descendants, asks for; return it so.

        The same answer again is harmless.

        Raises:
            ApprovalNotFoundError: it doesn't ask for that.
            ApprovalAnsweredError: it was answered otherwise before.
            TaskEndedError: nothing waits for it any more.
        """
        return (await self.read(self._answer_approval, request)).approval

    async def set_task_alias(
        self, account: str, alias: str, task_id: str, replaces: str = ""
    ) -> str:
        """Let an id that a client chose stand for a task, which may not exist yet.

        It stays with a task that it stands for already, unless that is `replaces`. Returns the id
        of the task that it stands for now; repeating it is harmless.
        """
        request = task_service_pb2.SetTaskAliasRequest(
            account=account, alias=alias, task_id=task_id, replaces=replaces
        )
        return (await self.read(self._set_alias, request)).task_id

    async def resolve_task_alias(self, account: str, alias: str) -> str:
        """Return the id of the task that an alias stands for; there may be no such task yet.

        Raises:
            TaskNotFoundError: on this host it stands for none.
        """
        request = task_service_pb2.ResolveTaskAliasRequest(account=account, alias=alias)
        return (await self.read(self._resolve_alias, request)).task_id

    def watch_task(  # noqa: PLR0913  what a reader may choose, each by name
        self,
        task_id: str,
        *,
        account: str,
        after: int | None = None,
        epoch: int = 0,
        with_snapshot: bool = True,
        until_head: bool = False,
        until_turn_ends: bool = False,
    ) -> AbstractAsyncContextManager[TaskStream]:
        """Read a task's events behind a cursor, or from the head on, until it has ended.

        `epoch` is the one in which the cursor was read, 0 if that is unknown. `until_head` ends it
        where the journal ends now, `until_turn_ends` also where the task asks for input.
        """
        request = task_service_pb2.WatchTaskRequest(
            task_id=task_id,
            account=account,
            after_sequence=after,
            epoch=epoch,
            with_snapshot=with_snapshot,
            until_head=until_head,
            until_turn_ends=until_turn_ends,
        )
        return self.opened(self._watch, request)
