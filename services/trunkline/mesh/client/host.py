"""Calls to a host: messages to its agents, its tasks, and their webhooks."""

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeAlias

from google.protobuf import duration_pb2

from trunkline.errors import (
    PeerProtocolError,
)
from trunkline.mesh.client.channels import MeshChannel
from trunkline.mesh.client.methods import UNARY_TIMEOUT_S, BatchCall, canceling
from trunkline.mesh.client.task_stream import TaskStream
from trunkline.v1 import (
    message_pb2,
    message_service_pb2,
    message_service_pb2_grpc,
    push_notification_pb2,
    snapshot_pb2,
    task_service_pb2,
    task_service_pb2_grpc,
    webhook_service_pb2,
    webhook_service_pb2_grpc,
)

DeliveryOutcome: TypeAlias = message_service_pb2.DeliveryOutcome
PushConfig = push_notification_pb2.TaskPushNotificationConfig

# A claim stops waiting this long before its call's deadline, so that the response still arrives.
_CLAIM_MARGIN_S: Final = 10.0
_ANY_STATE: Final = webhook_service_pb2.WEBHOOK_STATE_UNSPECIFIED


class HostClient:
    """Calls MessageService, TaskService and WebhookService of one host.

    `messages`, `tasks` and `webhooks` are the generated stubs. The methods of this class do more
    than one call of a stub, or are what most callers need of it. All raise TrunklineErrors only.
    """

    def __init__(self, channel: MeshChannel) -> None:
        self.peer: str = channel.address
        self._channel = channel
        self.messages: message_service_pb2_grpc.MessageServiceAsyncStub = (
            message_service_pb2_grpc.MessageServiceStub(channel)
        )
        self.tasks: task_service_pb2_grpc.TaskServiceAsyncStub = (
            task_service_pb2_grpc.TaskServiceStub(channel)
        )
        self.webhooks: webhook_service_pb2_grpc.WebhookServiceAsyncStub = (
            webhook_service_pb2_grpc.WebhookServiceStub(channel)
        )

    def allow_probe(self) -> None:
        """Let the next call through even if the breaker is open; the caller limits its rate."""
        self._channel.breaker.allow_probe()

    async def send_message(
        self,
        *,
        agent: str,
        message: message_pb2.Message,
        submission: message_service_pb2.Submission,
        return_immediately: bool = False,
        timeout_s: float | None = None,
    ) -> snapshot_pb2.TaskSnapshot | message_pb2.Message:
        """Submit a message to an agent; return the task when its turn is over, or a direct reply.

        With `return_immediately`, return as soon as the task exists. The task continues when the
        call ends, also after a timeout.
        """
        request = message_service_pb2.SendMessageRequest(
            agent=agent,
            message=message,
            submission=submission,
            return_immediately=return_immediately,
        )
        response = await self.messages.SendMessage(
            request, timeout=UNARY_TIMEOUT_S if timeout_s is None else timeout_s
        )
        match response.WhichOneof("payload"):
            case "snapshot":
                return response.snapshot
            case "message":
                return response.message
        raise PeerProtocolError(self.peer, "it answered with neither a task nor a message")

    async def get_task(self, task_id: str, *, account: str) -> snapshot_pb2.TaskSnapshot:
        """Return a task's snapshot."""
        request = task_service_pb2.GetTaskRequest(task_id=task_id, account=account)
        return (await self.tasks.GetTask(request)).snapshot

    async def cancel_task(
        self, task_id: str, *, account: str, reason: str = ""
    ) -> snapshot_pb2.TaskSnapshot:
        """Cancel a task and its descendants; return the ended task."""
        request = task_service_pb2.CancelTaskRequest(
            task_id=task_id, account=account, reason=reason
        )
        return (await self.tasks.CancelTask(request)).snapshot

    async def pause_task(self, task_id: str, *, account: str) -> snapshot_pb2.TaskSnapshot:
        """Begin no further step of a task until it is resumed; return the task."""
        request = task_service_pb2.PauseTaskRequest(task_id=task_id, account=account)
        return (await self.tasks.PauseTask(request)).snapshot

    async def resume_task(self, task_id: str, *, account: str) -> snapshot_pb2.TaskSnapshot:
        """Resume a paused task; return the task."""
        request = task_service_pb2.ResumeTaskRequest(task_id=task_id, account=account)
        return (await self.tasks.ResumeTask(request)).snapshot

    @asynccontextmanager
    async def watch_task(  # noqa: PLR0913  a reader's options, each by name
        self,
        task_id: str,
        *,
        account: str,
        after: int | None = None,
        epoch: int = 0,
        with_snapshot: bool = True,
        until_head: bool = False,
        until_turn_ends: bool = False,
    ) -> AsyncIterator[TaskStream]:
        """Watch a task's events after a cursor, or from the head, until the task has ended.

        `epoch` is the cursor's epoch, 0 if unknown. `until_head` ends the stream at the current
        end of the journal. `until_turn_ends` also ends it where the task asks for input.
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
        watch: Any = self.tasks.WatchTask
        call: BatchCall[task_service_pb2.WatchTaskResponse]
        with canceling(watch(request)) as call:
            first_response = await call.read_first()
            stream = TaskStream(first_response, call.batches())
            # It may hold a large snapshot, and the stream may last for days.
            del first_response
            yield stream

    async def set_push_config(
        self, config: PushConfig, *, account: str, version: str
    ) -> PushConfig:
        """Register a webhook for the task in `config`; return it with its id, without secrets.

        It replaces a webhook with the same id, and an identical webhook continues where it is. In
        A2A 1.0, each call without an id registers another webhook.
        """
        # The id of the request makes a repetition of the call harmless.
        request = task_service_pb2.SetPushNotificationConfigRequest(
            account=account, config=config, version=version, request_id=uuid.uuid4().hex
        )
        return (await self.tasks.SetPushNotificationConfig(request)).config

    async def claim_webhooks(
        self, claimant: str, *, limit: int, lease_s: float, wait_s: float
    ) -> Sequence[webhook_service_pb2.WebhookClaim]:
        """Claim webhooks that have something to send. If there are none, wait at most 50 s.

        A claim holds for `lease_s` seconds, renewed by each record of something sent.
        """
        request = webhook_service_pb2.ClaimWebhooksRequest(
            claimant=claimant, limit=limit, lease=_to_duration(lease_s), wait=_to_duration(wait_s)
        )
        timeout_s = min(UNARY_TIMEOUT_S, wait_s + _CLAIM_MARGIN_S)
        return (await self.webhooks.ClaimWebhooks(request, timeout=timeout_s)).claims

    async def record_delivery(
        self,
        claim_id: str,
        *,
        sent: str | None = None,
        finished: str | None = None,
        failed: str | None = None,
        gone: str | None = None,
        retry_after_s: float = 0.0,
    ) -> None:
        """Record the result of a delivery attempt; give exactly one of the four.

        `sent`: events up to this id were sent and more follow. `finished`: events up to this id
        were sent and none are left; an empty id leaves the position unchanged. `failed`: the
        reason; the receiver wants no retry for `retry_after_s` seconds. `gone`: the reason; there
        is no retry. All but `sent` end the claim.

        Raises:
            FencedError: the claim is over, perhaps because this was recorded before.
        """
        request = webhook_service_pb2.RecordDeliveryRequest(claim_id=claim_id)
        if sent is not None:
            request.sent = sent
        elif finished is not None:
            request.finished = finished
        elif failed is not None:
            request.failed = failed
            if retry_after_s > 0:
                request.retry_after.CopyFrom(_to_duration(retry_after_s))
        elif gone is not None:
            request.gone = gone
        await self.webhooks.RecordDelivery(request)

    async def list_webhooks(
        self,
        task_id: str = "",
        state: webhook_service_pb2.WebhookState.ValueType = _ANY_STATE,
        *,
        account: str = "",
        whole_store: bool = False,
    ) -> Sequence[webhook_service_pb2.Webhook]:
        """Return webhooks of one task or of all without their secrets, newest first.

        With an account, only the webhooks of its tasks. With `whole_store`, those of all journals
        in the host's store, if hosts share it.
        """
        request = webhook_service_pb2.ListWebhooksRequest(
            task_id=task_id, state=state, account=account, whole_store=whole_store
        )
        return (await self.webhooks.ListWebhooks(request)).webhooks

    async def replay_webhook(
        self, task_id: str, config_id: str = "", *, from_start: bool = False
    ) -> int:
        """Retry the dead letters of a task's webhooks, or send everything again.

        Return the number of webhooks that are tried.

        Raises:
            TaskNotFoundError: the host has no such webhook.
        """
        request = webhook_service_pb2.ReplayWebhookRequest(
            task_id=task_id, config_id=config_id, from_start=from_start
        )
        return (await self.webhooks.ReplayWebhook(request)).count


def _to_duration(seconds: float) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromNanoseconds(int(seconds * 1e9))
    return duration
