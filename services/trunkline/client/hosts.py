"""Calls to a host: messages to its agents, and its tasks."""

from contextlib import AbstractAsyncContextManager
from functools import partial

import grpc

from trunkline.client.channels import peer_of
from trunkline.client.status import mesh_errors
from trunkline.client.stream import TaskStream, opened
from trunkline.errors import PeerProtocolError
from trunkline.v1 import (
    message_pb2,
    message_service_pb2,
    message_service_pb2_grpc,
    snapshot_pb2,
    task_service_pb2,
    task_service_pb2_grpc,
)

UNARY_TIMEOUT_S = 60.0


class HostClient:
    """A host as its callers see it. Every method raises TrunklineErrors only."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._peer = peer_of(channel)
        self._messages = message_service_pb2_grpc.MessageServiceStub(channel)
        self._tasks = task_service_pb2_grpc.TaskServiceStub(channel)

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
        with mesh_errors(self._peer):
            response = await self._messages.SendMessage(
                request, timeout=UNARY_TIMEOUT_S if timeout_s is None else timeout_s
            )
        match response.WhichOneof("payload"):
            case "snapshot":
                return response.snapshot
            case "message":
                return response.message
        raise PeerProtocolError(self._peer, "it answered with neither a task nor a message")

    def stream_message(
        self,
        *,
        agent: str,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
    ) -> AbstractAsyncContextManager[TaskStream]:
        """Give a message to an agent and follow the turn until it is over."""
        request = message_service_pb2.StreamMessageRequest(
            agent=agent, message=message, submission=submission
        )
        begin = partial(self._messages.StreamMessage, request)
        return opened(begin, peer=self._peer, needs_answer=True)

    async def get_task(self, task_id: str, *, account: str) -> snapshot_pb2.TaskSnapshot:
        """Return the fold of a task."""
        request = task_service_pb2.GetTaskRequest(task_id=task_id, account=account)
        with mesh_errors(self._peer):
            response = await self._tasks.GetTask(request, timeout=UNARY_TIMEOUT_S)
        return response.snapshot

    async def list_tasks(
        self, request: task_service_pb2.ListTasksRequest
    ) -> task_service_pb2.ListTasksResponse:
        """Return a page of the host's tasks."""
        with mesh_errors(self._peer):
            return await self._tasks.ListTasks(request, timeout=UNARY_TIMEOUT_S)

    async def cancel_task(
        self, task_id: str, *, account: str, reason: str = ""
    ) -> snapshot_pb2.TaskSnapshot:
        """Cancel a task and its descendants; return it, ended."""
        request = task_service_pb2.CancelTaskRequest(
            task_id=task_id, account=account, reason=reason
        )
        with mesh_errors(self._peer):
            response = await self._tasks.CancelTask(request, timeout=UNARY_TIMEOUT_S)
        return response.snapshot

    def watch_task(
        self,
        task_id: str,
        *,
        account: str,
        after: int | None = None,
        with_snapshot: bool = True,
        until_head: bool = False,
    ) -> AbstractAsyncContextManager[TaskStream]:
        """Read a task's events behind a cursor, or from the head on, until it has ended."""
        request = task_service_pb2.WatchTaskRequest(
            task_id=task_id,
            account=account,
            after_sequence=after,
            with_snapshot=with_snapshot,
            until_head=until_head,
        )
        return opened(partial(self._tasks.WatchTask, request), peer=self._peer)
