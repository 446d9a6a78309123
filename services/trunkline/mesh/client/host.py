"""Calls to a host: messages to its agents, its tasks, and their webhooks."""

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeAlias, TypeVar

import grpc
from google.protobuf import duration_pb2
from google.protobuf.message import DecodeError, Message

from trunkline.core.backoff import Backoff
from trunkline.errors import (
    PeerProtocolError,
    PeerUnavailableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from trunkline.mesh.client.channels import MeshChannel, peer_address
from trunkline.mesh.client.statements import find_statement, statement_metadata
from trunkline.mesh.client.status import translate_errors
from trunkline.mesh.client.task_stream import TaskStream, open_plain_stream
from trunkline.mesh.client.trunk import REQUEST_BYTES, Trunk
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

UNARY_TIMEOUT_S = 60.0

# A claim stops waiting this long before its call's deadline, so that the response still arrives.
_CLAIM_MARGIN_S: Final = 10.0
_ANY_STATE: Final = webhook_service_pb2.WEBHOOK_STATE_UNSPECIFIED

StreamRequest: TypeAlias = (
    message_service_pb2.StreamMessageRequest | task_service_pb2.WatchTaskRequest
)
"""A request that is answered with a stream of one task."""

_Response = TypeVar("_Response", bound=Message)


@dataclass(frozen=True, slots=True)
class _Method(Generic[_Response]):
    """A gRPC method of a host."""

    name: str
    """The full name, `SERVICE/METHOD`."""
    stub_call: Callable[..., Any]
    """Makes a plain gRPC call."""
    response: type[_Response]


def _find_method(service: str, stub: object, response: type[_Response]) -> _Method[_Response]:
    """Return the method of a service that answers with this response type."""
    name = response.DESCRIPTOR.name.removesuffix("Response")
    return _Method(f"trunkline.v1.{service}/{name}", getattr(stub, name), response)


class HostClient:
    """Calls MessageService, TaskService and WebhookService of one host.

    Calls use the channel's trunk if it has one and the host supports it, else plain gRPC. Every
    method raises TrunklineErrors only.
    """

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.peer: str = peer_address(channel)
        self._channel = channel
        self._trunk: Trunk | None = channel.trunk if isinstance(channel, MeshChannel) else None
        service, stub = "MessageService", message_service_pb2_grpc.MessageServiceStub(channel)
        self._send = _find_method(service, stub, message_service_pb2.SendMessageResponse)
        self._streams: dict[type[Message], _Method[Any]] = {
            message_service_pb2.StreamMessageRequest: _find_method(
                service, stub, message_service_pb2.StreamMessageResponse
            )
        }
        self._deliver = _find_method(service, stub, message_service_pb2.DeliverMessagesResponse)
        self._init_tasks(channel)
        self._init_webhooks(channel)

    def _init_tasks(self, channel: grpc.aio.Channel) -> None:
        service, stub = "TaskService", task_service_pb2_grpc.TaskServiceStub(channel)
        pb2 = task_service_pb2
        self._get = _find_method(service, stub, pb2.GetTaskResponse)
        self._list = _find_method(service, stub, pb2.ListTasksResponse)
        self._cancel = _find_method(service, stub, pb2.CancelTaskResponse)
        self._pause = _find_method(service, stub, pb2.PauseTaskResponse)
        self._resume = _find_method(service, stub, pb2.ResumeTaskResponse)
        self._streams[pb2.WatchTaskRequest] = _find_method(service, stub, pb2.WatchTaskResponse)
        self._watch_tasks = stub.WatchTasks
        self._answer_approval = _find_method(service, stub, pb2.AnswerApprovalResponse)
        self._set_alias = _find_method(service, stub, pb2.SetTaskAliasResponse)
        self._resolve_alias = _find_method(service, stub, pb2.ResolveTaskAliasResponse)
        self._set_config = _find_method(service, stub, pb2.SetPushNotificationConfigResponse)
        self._get_config = _find_method(service, stub, pb2.GetPushNotificationConfigResponse)
        self._list_configs = _find_method(service, stub, pb2.ListPushNotificationConfigsResponse)
        self._delete_config = _find_method(service, stub, pb2.DeletePushNotificationConfigResponse)

    def _init_webhooks(self, channel: grpc.aio.Channel) -> None:
        service, stub = "WebhookService", webhook_service_pb2_grpc.WebhookServiceStub(channel)
        pb2 = webhook_service_pb2
        self._claim = _find_method(service, stub, pb2.ClaimWebhooksResponse)
        self._record = _find_method(service, stub, pb2.RecordDeliveryResponse)
        self._list_webhooks = _find_method(service, stub, pb2.ListWebhooksResponse)
        self._watch_webhooks = stub.WatchWebhooks
        self._replay = _find_method(service, stub, pb2.ReplayWebhookResponse)

    def allow_probe(self) -> None:
        """Let the next call through even if the breaker is open; the caller limits its rate."""
        if self._trunk is not None:
            self._trunk.breaker.allow_probe()

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
        response = await self._call(
            self._send, request, timeout_s=UNARY_TIMEOUT_S if timeout_s is None else timeout_s
        )
        match response.WhichOneof("payload"):
            case "snapshot":
                return response.snapshot
            case "message":
                return response.message
        raise PeerProtocolError(self.peer, "it answered with neither a task nor a message")

    async def deliver_messages(
        self, request: message_service_pb2.DeliverMessagesRequest
    ) -> AsyncGenerator[list[DeliveryOutcome], None]:
        """Deliver messages between agents; yield the outcomes of the deliveries as they come.

        The deliveries continue when the generator is closed. Repeating one attaches to its task.
        """
        method = self._deliver
        serialized = request.SerializeToString()
        statement = await find_statement(self._channel, request)
        trunk = self._trunk
        if trunk is not None and trunk.is_supported and len(serialized) <= REQUEST_BYTES:
            is_open = False
            call = trunk.open_stream(method.name, serialized, user_statement=statement)
            try:
                async with call as (_, batches):
                    is_open = True
                    async for outcomes in batches:
                        yield [self._parse_outcome(outcome) for outcome in outcomes]
                return
            except UnsupportedOperationError:
                if is_open or trunk.is_supported:
                    raise
        with translate_errors(self.peer):
            responses = method.stub_call(request, metadata=statement_metadata(statement))
            try:
                async for response in responses:
                    yield list(response.outcomes)
            finally:
                responses.cancel()

    async def get_task(self, task_id: str, *, account: str) -> snapshot_pb2.TaskSnapshot:
        """Return a task's snapshot."""
        request = task_service_pb2.GetTaskRequest(task_id=task_id, account=account)
        return (await self._call_idempotent(self._get, request)).snapshot

    async def list_tasks(
        self, request: task_service_pb2.ListTasksRequest
    ) -> task_service_pb2.ListTasksResponse:
        """Return a page of the host's tasks."""
        return await self._call_idempotent(self._list, request)

    async def cancel_task(
        self, task_id: str, *, account: str, reason: str = ""
    ) -> snapshot_pb2.TaskSnapshot:
        """Cancel a task and its descendants; return the ended task."""
        request = task_service_pb2.CancelTaskRequest(
            task_id=task_id, account=account, reason=reason
        )
        return (await self._call(self._cancel, request)).snapshot

    async def pause_task(self, task_id: str, *, account: str) -> snapshot_pb2.TaskSnapshot:
        """Begin no further step of a task until it is resumed; return the task."""
        request = task_service_pb2.PauseTaskRequest(task_id=task_id, account=account)
        return (await self._call_idempotent(self._pause, request)).snapshot

    async def resume_task(self, task_id: str, *, account: str) -> snapshot_pb2.TaskSnapshot:
        """Resume a paused task; return the task."""
        request = task_service_pb2.ResumeTaskRequest(task_id=task_id, account=account)
        return (await self._call_idempotent(self._resume, request)).snapshot

    def watch_task(  # noqa: PLR0913  a reader's options, each by name
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
        return self.open_stream(request)

    async def watch_tasks(
        self, *, account: str, with_text: bool = False
    ) -> AsyncGenerator[task_service_pb2.WatchTasksResponse, None]:
        """Yield the tasks of an account that change. Close the iterator to end the call.

        The first response is empty. What is listed after it is outdated only by later responses.
        """
        request = task_service_pb2.WatchTasksRequest(account=account, with_text=with_text)
        async with aclosing(self._watch(self._watch_tasks, request)) as responses:
            async for response in responses:
                yield response

    async def answer_approval(
        self, request: task_service_pb2.AnswerApprovalRequest
    ) -> snapshot_pb2.ApprovalInfo:
        """Answer an approval that a task or one of its descendants requests; return its new state.

        Repeating the same answer is harmless.

        Raises:
            ApprovalNotFoundError: the task does not request this approval.
            ApprovalAnsweredError: it was answered differently before.
            TaskEndedError: the task no longer waits for it.
        """
        return (await self._call_idempotent(self._answer_approval, request)).approval

    async def set_task_alias(
        self, account: str, alias: str, task_id: str, replaces: str = ""
    ) -> str:
        """Bind an id that a client chose to a task, which need not exist yet.

        An alias that is bound to a task stays bound to it, unless that task is `replaces`. Return
        the id of the task that the alias is bound to now. Repeating the call is harmless.
        """
        request = task_service_pb2.SetTaskAliasRequest(
            account=account, alias=alias, task_id=task_id, replaces=replaces
        )
        return (await self._call_idempotent(self._set_alias, request)).task_id

    async def resolve_task_alias(self, account: str, alias: str) -> str:
        """Return the id of the task that an alias is bound to; empty: it is not bound on this host.

        The task need not exist yet.
        """
        request = task_service_pb2.ResolveTaskAliasRequest(account=account, alias=alias)
        try:
            return (await self._call_idempotent(self._resolve_alias, request)).task_id
        except TaskNotFoundError:
            # Hosts of earlier versions answer so.
            return ""

    async def set_push_config(
        self, config: PushConfig, *, account: str, version: str
    ) -> PushConfig:
        """Register a webhook for the task in `config`; return it with its id, without secrets.

        It replaces a webhook with the same id, and an identical one continues where it is. In A2A
        1.0, each call without an id registers another webhook.
        """
        request = task_service_pb2.SetPushNotificationConfigRequest(
            account=account, config=config, version=version, request_id=uuid.uuid4().hex
        )
        return (await self._call_idempotent(self._set_config, request)).config

    async def get_push_config(self, task_id: str, config_id: str, account: str) -> PushConfig:
        """Return a webhook without its secrets; without an id, the task's oldest one.

        Raises:
            WebhookNotFoundError: the task has no such webhook.
            TaskNotFoundError: the account has no such task.
        """
        request = task_service_pb2.GetPushNotificationConfigRequest(
            account=account, task_id=task_id, config_id=config_id
        )
        return (await self._call_idempotent(self._get_config, request)).config

    async def list_push_configs(self, task_id: str, account: str) -> list[PushConfig]:
        """Return all webhooks of a task without their secrets, oldest first."""
        request = task_service_pb2.ListPushNotificationConfigsRequest(
            account=account, task_id=task_id
        )
        return list((await self._call_idempotent(self._list_configs, request)).configs)

    async def delete_push_config(self, task_id: str, config_id: str, account: str) -> None:
        """Remove a webhook. Repeating the call is harmless."""
        request = task_service_pb2.DeletePushNotificationConfigRequest(
            account=account, task_id=task_id, config_id=config_id
        )
        await self._call_idempotent(self._delete_config, request)

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
        return (await self._call(self._claim, request, timeout_s=timeout_s)).claims

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
        await self._call(self._record, request)

    async def list_webhooks(
        self,
        task_id: str = "",
        state: webhook_service_pb2.WebhookState.ValueType = _ANY_STATE,
        *,
        account: str = "",
    ) -> Sequence[webhook_service_pb2.Webhook]:
        """Return webhooks of one task or of all without their secrets, newest first.

        With an account, only those of its tasks.
        """
        request = webhook_service_pb2.ListWebhooksRequest(
            task_id=task_id, state=state, account=account
        )
        return (await self._call_idempotent(self._list_webhooks, request)).webhooks

    async def watch_webhooks(
        self, *, account: str = ""
    ) -> AsyncGenerator[webhook_service_pb2.WatchWebhooksResponse, None]:
        """Yield the webhooks that change, of an account or of all. Close it to end the call.

        The first response is empty. What is listed after it is outdated only by later responses.
        """
        request = webhook_service_pb2.WatchWebhooksRequest(account=account)
        async with aclosing(self._watch(self._watch_webhooks, request)) as responses:
            async for response in responses:
                yield response

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
        return (await self._call(self._replay, request)).count

    async def _call_idempotent(self, method: _Method[_Response], request: Message) -> _Response:
        """Call an idempotent method, and repeat the call once if the trunk breaks."""
        try:
            return await self._call(method, request)
        except PeerUnavailableError as error:
            if self._trunk is None or error.peer != self.peer:
                # gRPC retries plain calls itself.
                raise
        await Backoff().pause()
        return await self._call(method, request)

    async def _call(
        self,
        method: _Method[_Response],
        request: Message,
        *,
        timeout_s: float = UNARY_TIMEOUT_S,
    ) -> _Response:
        serialized = request.SerializeToString()
        statement = await find_statement(self._channel, request)
        trunk = self._trunk
        if trunk is not None and trunk.is_supported and len(serialized) <= REQUEST_BYTES:
            try:
                response = await trunk.call_unary(
                    method.name, serialized, timeout_s=timeout_s, user_statement=statement
                )
            except UnsupportedOperationError:
                if trunk.is_supported:
                    raise
            else:
                return self._parse(method, response)
        with translate_errors(self.peer):
            call: Awaitable[_Response] = method.stub_call(
                request, timeout=timeout_s, metadata=statement_metadata(statement)
            )
            return await call

    async def _watch(
        self, stub_call: Callable[..., Any], request: Message
    ) -> AsyncGenerator[Any, None]:
        """Yield the responses of an endless call, without a trunk."""
        metadata = statement_metadata(await find_statement(self._channel, request))
        with translate_errors(self.peer):
            call = stub_call(request, metadata=metadata)
        try:
            with translate_errors(self.peer):
                async for response in call:
                    yield response
        finally:
            call.cancel()

    @asynccontextmanager
    async def open_stream(self, request: StreamRequest) -> AsyncIterator[TaskStream]:
        """Open the stream of a request: submit a message and watch its turn, or watch a task."""
        method = self._streams[type(request)]
        serialized = request.SerializeToString()
        statement = await find_statement(self._channel, request)
        trunk = self._trunk
        if trunk is not None and trunk.is_supported and len(serialized) <= REQUEST_BYTES:
            is_open = False
            call = trunk.open_stream(method.name, serialized, user_statement=statement)
            try:
                async with call as (first_response, batches):
                    is_open = True
                    stream = TaskStream(self._parse(method, first_response), batches)
                    # The first response may hold a large snapshot; the stream may last for days.
                    del first_response
                    self._check_start(request, stream)
                    yield stream
                return
            except UnsupportedOperationError:
                if is_open or trunk.is_supported:
                    raise
        metadata = statement_metadata(statement)
        async with open_plain_stream(
            lambda: method.stub_call(request, metadata=metadata), peer=self.peer
        ) as stream:
            self._check_start(request, stream)
            yield stream

    def _check_start(self, request: StreamRequest, stream: TaskStream) -> None:
        """Check that the stream of a submitted message starts with a task or a direct reply."""
        is_submitted = isinstance(request, message_service_pb2.StreamMessageRequest)
        if is_submitted and stream.snapshot is None and stream.message is None:
            problem = "its stream began with neither a snapshot nor a message"
            raise PeerProtocolError(self.peer, problem)

    def _parse_outcome(self, serialized: bytes) -> DeliveryOutcome:
        try:
            return DeliveryOutcome.FromString(serialized)
        except DecodeError:
            raise PeerProtocolError(self.peer, "its answer can't be read") from None

    def _parse(self, method: _Method[_Response], serialized: bytes) -> _Response:
        try:
            return method.response.FromString(serialized)
        except DecodeError:
            raise PeerProtocolError(self.peer, "its answer can't be read") from None


def _to_duration(seconds: float) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromNanoseconds(int(seconds * 1e9))
    return duration
