"""How calls to a host are made: on the trunk where there is one, else one by one."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import grpc
from google.protobuf import duration_pb2
from google.protobuf.message import DecodeError, Message

from trunkline.client.backoff import Backoff
from trunkline.client.channels import MeshChannel, peer_address
from trunkline.client.status import translate_errors
from trunkline.client.task_stream import TaskStream
from trunkline.client.task_stream import open_plain_stream as opened_plainly
from trunkline.client.trunk import REQUEST_BYTES, Trunk
from trunkline.errors import PeerProtocolError, PeerUnavailableError, UnsupportedOperationError
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

UNARY_TIMEOUT_S = 60.0

_Response = TypeVar("_Response", bound=Message)


@dataclass(frozen=True, slots=True)
class RpcMethod(Generic[_Response]):
    """A method by its full name; how its plain call is made, and what it answers with."""

    name: str
    stub_call: Callable[..., Any]
    response: type[_Response]


class HostTransport:
    """Makes the calls of a client. Every method raises TrunklineErrors only."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.peer = peer_address(channel)
        self._trunk: Trunk | None = channel.trunk if isinstance(channel, MeshChannel) else None

    def allow_probe(self) -> None:
        """Let the next call through even if the host kept failing: whoever asks paces himself."""
        if self._trunk is not None:
            self._trunk.breaker.allow_probe()

    async def read(self, method: RpcMethod[_Response], request: Message) -> _Response:
        """Call a method that may be repeated: once more if the trunk breaks under it."""
        try:
            return await self.call(method, request)
        except PeerUnavailableError as error:
            if self._trunk is None or error.peer != self.peer:
                # gRPC repeats plain calls by itself.
                raise
        await Backoff().pause()
        return await self.call(method, request)

    async def call(
        self, method: RpcMethod[_Response], request: Message, *, timeout_s: float = UNARY_TIMEOUT_S
    ) -> _Response:
        """Call a method once."""
        serialized = request.SerializeToString()
        trunk = self._trunk
        if trunk is not None and trunk.is_supported and len(serialized) <= REQUEST_BYTES:
            try:
                answer = await trunk.call_unary(method.name, serialized, timeout_s=timeout_s)
            except UnsupportedOperationError:
                if trunk.is_supported:
                    raise
            else:
                return self._parsed(method, answer)
        with translate_errors(self.peer):
            response: Awaitable[_Response] = method.stub_call(request, timeout=timeout_s)
            return await response

    @asynccontextmanager
    async def open_stream(
        self, method: RpcMethod[Any], request: Message
    ) -> AsyncIterator[TaskStream]:
        """Open a method's stream."""
        serialized = request.SerializeToString()
        trunk = self._trunk
        if trunk is not None and trunk.is_supported and len(serialized) <= REQUEST_BYTES:
            async with AsyncExitStack() as stack:
                try:
                    first, batches = await stack.enter_async_context(
                        trunk.open_stream(method.name, serialized)
                    )
                except UnsupportedOperationError:
                    if trunk.is_supported:
                        raise
                else:
                    begun = TaskStream(self._parsed(method, first), batches)
                    # A stream may stand for days, and this hold a large snapshot.
                    del first
                    yield begun
                    return
        async with opened_plainly(lambda: method.stub_call(request), peer=self.peer) as stream:
            yield stream

    def _parsed(self, method: RpcMethod[_Response], serialized: bytes) -> _Response:
        try:
            return method.response.FromString(serialized)
        except DecodeError:
            raise PeerProtocolError(self.peer, "its answer can't be read") from None


PushConfig = push_notification_pb2.TaskPushNotificationConfig

_TASK_SERVICE: Final = "trunkline.v1.TaskService/"
_WEBHOOK_SERVICE: Final = "trunkline.v1.WebhookService/"
# Waiting ends this much before its call does, so that what was claimed arrives.
_MARGIN_S: Final = 10.0
_ANY: Final = webhook_service_pb2.WEBHOOK_STATE_UNSPECIFIED


class WebhookCalls(HostTransport):
    """The webhooks of a host's tasks."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        super().__init__(channel)
        tasks = task_service_pb2_grpc.TaskServiceStub(channel)
        webhooks = webhook_service_pb2_grpc.WebhookServiceStub(channel)
        of_tasks, of_webhooks = task_service_pb2, webhook_service_pb2
        self._set_config = RpcMethod(
            f"{_TASK_SERVICE}SetPushNotificationConfig",
            tasks.SetPushNotificationConfig,
            of_tasks.SetPushNotificationConfigResponse,
        )
        self._get_config = RpcMethod(
            f"{_TASK_SERVICE}GetPushNotificationConfig",
            tasks.GetPushNotificationConfig,
            of_tasks.GetPushNotificationConfigResponse,
        )
        self._list_configs = RpcMethod(
            f"{_TASK_SERVICE}ListPushNotificationConfigs",
            tasks.ListPushNotificationConfigs,
            of_tasks.ListPushNotificationConfigsResponse,
        )
        self._delete_config = RpcMethod(
            f"{_TASK_SERVICE}DeletePushNotificationConfig",
            tasks.DeletePushNotificationConfig,
            of_tasks.DeletePushNotificationConfigResponse,
        )
        self._claim = RpcMethod(
            f"{_WEBHOOK_SERVICE}ClaimWebhooks",
            webhooks.ClaimWebhooks,
            of_webhooks.ClaimWebhooksResponse,
        )
        self._record = RpcMethod(
            f"{_WEBHOOK_SERVICE}RecordDelivery",
            webhooks.RecordDelivery,
            of_webhooks.RecordDeliveryResponse,
        )
        self._list_webhooks = RpcMethod(
            f"{_WEBHOOK_SERVICE}ListWebhooks",
            webhooks.ListWebhooks,
            of_webhooks.ListWebhooksResponse,
        )
        self._replay = RpcMethod(
            f"{_WEBHOOK_SERVICE}ReplayWebhook",
            webhooks.ReplayWebhook,
            of_webhooks.ReplayWebhookResponse,
        )

    async def set_push_config(
        self, config: PushConfig, *, account: str, version: str
    ) -> PushConfig:
        """Register a webhook of the task that it names; return it with its id, without secrets.

        One with the same id makes way; the very same one just goes on. Repeating it is harmless.
        """
        request = task_service_pb2.SetPushNotificationConfigRequest(
            account=account, config=config, version=version
        )
        return (await self.read(self._set_config, request)).config

    async def get_push_config(self, task_id: str, config_id: str, account: str) -> PushConfig:
        """Return a webhook without its secrets; without an id, the one registered first.

        Raises:
            WebhookNotFoundError: the task has none such.
            TaskNotFoundError: no such task of the account.
        """
        request = task_service_pb2.GetPushNotificationConfigRequest(
            account=account, task_id=task_id, config_id=config_id
        )
        return (await self.read(self._get_config, request)).config

    async def list_push_configs(self, task_id: str, account: str) -> list[PushConfig]:
        """Return all webhooks of a task without their secrets, those registered first first."""
        request = task_service_pb2.ListPushNotificationConfigsRequest(
            account=account, task_id=task_id
        )
        return list((await self.read(self._list_configs, request)).configs)

    async def delete_push_config(self, task_id: str, config_id: str, account: str) -> None:
        """Remove a webhook. Repeating it is harmless."""
        request = task_service_pb2.DeletePushNotificationConfigRequest(
            account=account, task_id=task_id, config_id=config_id
        )
        await self.read(self._delete_config, request)

    async def claim_webhooks(
        self, claimant: str, *, limit: int, lease_s: float, wait_s: float
    ) -> Sequence[webhook_service_pb2.WebhookClaim]:
        """Claim webhooks that have something to send; with none, wait for one, at most 50 s.

        A claim holds for the lease, from its beginning and from each record of something sent.
        """
        request = webhook_service_pb2.ClaimWebhooksRequest(
            claimant=claimant, limit=limit, lease=_duration(lease_s), wait=_duration(wait_s)
        )
        timeout_s = min(UNARY_TIMEOUT_S, wait_s + _MARGIN_S)
        return (await self.call(self._claim, request, timeout_s=timeout_s)).claims

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
        """Record what became of a post; give one of the four.

        `sent` up to this event id and going on, `finished` up to this one (empty: it stays where
        it was) with nothing left, `failed` and why (and for how long the receiver wants to be left
        alone), or `gone` and why: for good. All but the first end the claim.

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
                request.retry_after.CopyFrom(_duration(retry_after_s))
        elif gone is not None:
            request.gone = gone
        await self.call(self._record, request)

    async def list_webhooks(
        self,
        task_id: str = "",
        state: webhook_service_pb2.WebhookState.ValueType = _ANY,
    ) -> Sequence[webhook_service_pb2.Webhook]:
        """Return webhooks of one task or of all, without their secrets, the last made first."""
        request = webhook_service_pb2.ListWebhooksRequest(task_id=task_id, state=state)
        return (await self.read(self._list_webhooks, request)).webhooks

    async def replay_webhook(
        self, task_id: str, config_id: str = "", *, from_start: bool = False
    ) -> int:
        """Send again what webhooks of a task were given up on, or all; return how many are tried.

        Raises:
            TaskNotFoundError: the host has no such webhook.
        """
        request = webhook_service_pb2.ReplayWebhookRequest(
            task_id=task_id, config_id=config_id, from_start=from_start
        )
        return (await self.call(self._replay, request)).count


def _duration(seconds: float) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromNanoseconds(int(seconds * 1e9))
    return duration


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
        self._send = RpcMethod(
            f"{_MESSAGES}SendMessage",
            messages.SendMessage,
            message_service_pb2.SendMessageResponse,
        )
        self._stream = RpcMethod(
            f"{_MESSAGES}StreamMessage",
            messages.StreamMessage,
            message_service_pb2.StreamMessageResponse,
        )
        self._get = RpcMethod(f"{_TASKS}GetTask", tasks.GetTask, contract.GetTaskResponse)
        self._list = RpcMethod(f"{_TASKS}ListTasks", tasks.ListTasks, contract.ListTasksResponse)
        self._cancel = RpcMethod(
            f"{_TASKS}CancelTask", tasks.CancelTask, contract.CancelTaskResponse
        )
        self._answer_approval = RpcMethod(
            f"{_TASKS}AnswerApproval", tasks.AnswerApproval, contract.AnswerApprovalResponse
        )
        self._set_alias = RpcMethod(
            f"{_TASKS}SetTaskAlias", tasks.SetTaskAlias, contract.SetTaskAliasResponse
        )
        self._resolve_alias = RpcMethod(
            f"{_TASKS}ResolveTaskAlias", tasks.ResolveTaskAlias, contract.ResolveTaskAliasResponse
        )
        self._watch = RpcMethod(f"{_TASKS}WatchTask", tasks.WatchTask, contract.WatchTaskResponse)

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
        async with self.open_stream(self._stream, request) as stream:
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
        return self.open_stream(self._watch, request)
