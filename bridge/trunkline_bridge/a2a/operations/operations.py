"""Performs the operations of A2A by calls to the mesh, for all bindings and versions."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from typing import Final

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.errors import (
    PUSH_NOTIFICATION_NOT_SUPPORTED,
    WireError,
    invalid_params,
)
from trunkline.a2a_wire.protocol import PLAIN_EXTENSION, RESUME_EXTENSION
from trunkline.core.settings import Settings
from trunkline.core.task_states import TERMINAL, TURN_END, state_name
from trunkline.errors import (
    MessageKeyReusedError,
    PeerTimeoutError,
    PeerUnavailableError,
    TaskEndedError,
    TaskExistsError,
    TaskNotFoundError,
    UnsupportedOperationError,
)
from trunkline.mesh.client import Directory, TaskStream, allocate_task_id, placement_key
from trunkline.mesh.client.host_queries import fetch_task
from trunkline.observe.audit import OK, Action, AuditLog
from trunkline.observe.span_content import ContentCapture
from trunkline.v1 import (
    agent_card_pb2,
    message_pb2,
    message_service_pb2,
    push_notification_pb2,
    snapshot_pb2,
    task_pb2,
)
from trunkline_bridge.a2a.cards.agent_cards import AgentCards
from trunkline_bridge.a2a.operations.approval_answers import note_approved_calls
from trunkline_bridge.a2a.operations.audit import audited, named_objects
from trunkline_bridge.a2a.operations.request_content import RequestContent
from trunkline_bridge.a2a.operations.task_pages import fetch_task_page, requested_history_length
from trunkline_bridge.a2a.projection import FileLinks, View, project_task
from trunkline_bridge.a2a.streams.task_streams import (
    StreamEnd,
    WireEvents,
    check_event_exists,
    is_last_event,
    no_events,
    parse_event_id,
    read_until_interrupted,
    task_events,
    unseen_events,
)
from trunkline_bridge.a2a.webhooks.registration import WebhookRegistrations
from trunkline_bridge.callers.audit import recorded
from trunkline_bridge.callers.authorization import Authorizer
from trunkline_bridge.callers.caller import Caller
from trunkline_bridge.callers.permissions import CREATE_PUSH_CONFIG
from trunkline_bridge.callers.streams import CallerStreams
from trunkline_bridge.http import tracing

logger = logging.getLogger(__name__)

_BLOCKING_LIMIT_S: Final = 3600.0
"""Seconds that SendMessage waits for the end of a turn before it fails with a timeout."""


def check_agent_task(
    caller: Caller, task_id: str, snapshot: snapshot_pb2.TaskSnapshot | None
) -> snapshot_pb2.TaskSnapshot:
    """Return a task if it belongs to the agent that the caller addresses.

    Raises:
        TaskNotFoundError: there is no snapshot, or the task belongs to another agent.
    """
    if snapshot is None or snapshot.agent != caller.agent:
        raise TaskNotFoundError(task_id)
    tracing.record_task(snapshot)
    return snapshot


def check_not_ended(snapshot: snapshot_pb2.TaskSnapshot) -> None:
    """Raise TaskEndedError if a task has ended."""
    state = snapshot.task.status.state
    if state in TERMINAL:
        raise TaskEndedError(snapshot.task.id, state_name(state))


def build_submission(
    caller: Caller, request: a2a_pb2.SendMessageRequest, *, task_id: str = ""
) -> message_service_pb2.Submission:
    """Return the metadata of a message's submission; `task_id` is the id of a task to create."""
    submission = message_service_pb2.Submission(
        account=caller.account,
        caller=caller.name,
        task_id=task_id,
        # Anonymous callers may choose the same message ids, so they must activate the extension.
        idempotent=caller.is_authenticated or RESUME_EXTENSION in caller.extensions,
        accepted_output_modes=request.configuration.accepted_output_modes,
    )
    if request.HasField("metadata"):
        submission.metadata.CopyFrom(request.metadata)
    if caller.tree is not None:
        submission.tree.CopyFrom(caller.tree)
    if caller.deadline is not None:
        submission.deadline.FromDatetime(caller.deadline)
    return submission


def find_earlier_task(stream: TaskStream, submission: message_service_pb2.Submission) -> str:
    """Return the task that an earlier submission of the same message created, or an empty text."""
    if not submission.task_id or stream.snapshot is None:
        return ""
    task_id = stream.snapshot.task.id
    return "" if task_id == submission.task_id else task_id


def is_repeated(
    caller: Caller, task: snapshot_pb2.TaskSnapshot | None, message: message_pb2.Message
) -> bool:
    """Return whether the task already has the message; always False without the extension.

    Raises:
        MessageKeyReusedError: another message of the task has the same id.
    """
    if task is None or RESUME_EXTENSION not in caller.extensions:
        return False
    for earlier in task.task.history:
        if earlier.message_id == message.message_id and earlier.role == message.role:
            # The host has filled in the ids of the task and the context.
            original = message_pb2.Message()
            original.CopyFrom(earlier)
            original.task_id, original.context_id = message.task_id, message.context_id
            if original != message:
                raise MessageKeyReusedError(message.message_id)
            return True
    return False


class Operations:
    """The operations of A2A. They raise only TrunklineErrors and WireErrors.

    A task is visible only at the address of its agent and to its own account. Each operation is
    recorded in the audit log here, because all bindings and versions pass here.
    """

    def __init__(
        self,
        directory: Directory,
        settings: Settings,
        cards: AgentCards,
        webhooks: WebhookRegistrations,
        streams: CallerStreams,
        audit: AuditLog | None = None,
    ) -> None:
        """Without an audit log, nothing is recorded."""
        self.audit = audit
        self.authorizer = Authorizer(directory, audit)
        """Checks the callers of operations. Every binding uses it before it reads parameters."""
        self._directory = directory
        self._settings = settings
        self._cards = cards
        self._webhooks = webhooks
        self._streams = streams
        self._content = RequestContent(ContentCapture.from_settings(settings))

    @audited(Action.CARD_GET)
    async def get_extended_card(
        self, caller: Caller, _request: a2a_pb2.GetExtendedAgentCardRequest | None = None
    ) -> agent_card_pb2.AgentCard:
        """Return the agent's card for authenticated callers."""
        return self._cards.extended_card(caller)

    @audited(Action.MESSAGE_SEND)
    async def send_message(
        self, caller: Caller, request: a2a_pb2.SendMessageRequest, *, new_task_id: str = ""
    ) -> task_pb2.Task | message_pb2.Message:
        """Submit a message; return the direct reply, or the task at the end of its turn.

        With `return_immediately`, the task is returned at once. If the host fails meanwhile, this
        waits for the task on the host that takes it over. `new_task_id` is the id of the task to
        create; submitting the same id again returns the same task. With the extension, a message
        that a task already has returns that task.

        Raises:
            PeerTimeoutError: the turn takes longer than an hour.
        """
        links = self._links(caller)
        links.to_references(request.message)
        task = await self._find_target(caller, request) if request.message.task_id else None
        try:
            async with asyncio.timeout(_BLOCKING_LIMIT_S):
                if is_repeated(caller, task, request.message):
                    result = await self._attach(caller, request)
                else:
                    submission = await self._prepare_submission(caller, request, task, new_task_id)
                    result = await self._submit(caller, request, submission)
        except TimeoutError:
            problem = (
                f"the turn did not end within {_BLOCKING_LIMIT_S:g} s; send with returnImmediately"
            )
            raise PeerTimeoutError(f"agent {caller.agent!r}", problem) from None
        self._content.record(request.message, result)
        if isinstance(result, message_pb2.Message):
            links.to_urls(result.parts)
            return result
        tracing.record_task(result, is_after_turn=True)
        return project_task(
            result,
            history_length=requested_history_length(request.configuration),
            links=links,
            view=self._view(caller),
        )

    async def _attach(
        self, caller: Caller, request: a2a_pb2.SendMessageRequest
    ) -> snapshot_pb2.TaskSnapshot | message_pb2.Message:
        """Wait for the turn of a message that its task already has."""
        task_id = request.message.task_id
        if not request.configuration.return_immediately:
            async with self._watch(caller, task_id) as stream:
                await read_until_interrupted(stream)
        return await self._wait_for_task(caller, task_id)

    async def _submit(
        self,
        caller: Caller,
        request: a2a_pb2.SendMessageRequest,
        submission: message_service_pb2.Submission,
    ) -> snapshot_pb2.TaskSnapshot | message_pb2.Message:
        if submission.task_id:
            # One call is cheaper than a stream, and safe to repeat, since it names its task.
            try:
                return await self._directory.client_for_task(submission.task_id).send_message(
                    agent=caller.agent,
                    message=request.message,
                    submission=submission,
                    return_immediately=request.configuration.return_immediately,
                    timeout_s=_BLOCKING_LIMIT_S,
                )
            except (PeerUnavailableError, PeerTimeoutError, TaskExistsError) as error:
                extra = {"agent": caller.agent, "reason": error.reason}
                logger.info("send.repeated", extra=extra)
                submission.is_first_attempt = False
        async with self._directory.submit(
            caller.agent,
            message=request.message,
            submission=submission,
            patience_s=self._patience_s(caller),
        ) as stream:
            if stream.message is not None:
                return stream.message
            task_id = stream.snapshot.task.id if stream.snapshot else request.message.task_id
            if not request.configuration.return_immediately:
                await read_until_interrupted(stream)
        return await self._wait_for_task(caller, task_id)

    @asynccontextmanager
    async def stream_message(
        self, caller: Caller, request: a2a_pb2.SendMessageRequest, *, new_task_id: str = ""
    ) -> AsyncIterator[WireEvents]:
        """Submit a message and stream its turn: one direct reply, or a task and its events.

        `new_task_id` and repeated messages have the same meaning as in `send_message`. A repeated
        message streams its task and further events, or the events after the last event id. Errors
        before the first event are raised on entering.
        """
        action = Action.MESSAGE_STREAM
        with recorded(self.audit, caller, action, agent=caller.agent) as record:
            record.add_objects(named_objects(request))
            self._check_streaming("SendStreamingMessage")
            links = self._links(caller)
            links.to_references(request.message)
            with self._streams.hold(caller):
                task = await self._find_target(caller, request) if request.message.task_id else None
                if is_repeated(caller, task, request.message):
                    async with self._open_attached(caller, request.message.task_id) as events:
                        record.write(OK)
                        yield events
                    return
                submission = await self._prepare_submission(caller, request, task, new_task_id)
                del task
                async with self._directory.submit(
                    caller.agent,
                    message=request.message,
                    submission=submission,
                    patience_s=self._patience_s(caller),
                ) as stream:
                    task_id = request.message.task_id
                    if stream.snapshot is not None:
                        task_id = stream.snapshot.task.id
                        record.add_objects(named_objects(stream.snapshot.task))
                    earlier_task_id = find_earlier_task(stream, submission)
                    if not earlier_task_id or caller.last_event_id is None:
                        end = StreamEnd(auth_wait_s=self._settings.auth_wait_s)
                        events = task_events(
                            stream,
                            self._stream_end(caller, end),
                            links=links,
                            view=self._view(caller),
                            history_length=requested_history_length(request.configuration),
                            starts_turn=True,
                        )
                        record.write(OK)
                        yield self._content.record_stream(
                            request.message,
                            stream.message,
                            events,
                            lambda: self._get_task(caller, task_id),
                        )
                        return
                async with self._open_attached(caller, earlier_task_id) as events:
                    record.write(OK)
                    yield events

    @asynccontextmanager
    async def _open_attached(self, caller: Caller, task_id: str) -> AsyncIterator[WireEvents]:
        """Stream the current turn, from the task's snapshot or after the last event id."""
        end = StreamEnd(TURN_END, auth_wait_s=self._settings.auth_wait_s)
        if caller.last_event_id is None:
            async with self._watch(caller, task_id) as stream:
                yield self._task_events(caller, stream, end)
        else:
            async with self._resume(caller, task_id, caller.last_event_id, end) as events:
                yield events

    def _task_events(self, caller: Caller, stream: TaskStream, end: StreamEnd) -> WireEvents:
        """Return a task's snapshot and the events after it."""
        end = self._stream_end(caller, end)
        return task_events(stream, end, links=self._links(caller), view=self._view(caller))

    def _stream_end(self, caller: Caller, end: StreamEnd) -> StreamEnd:
        """Return when a stream ends: as `end` says, and before A2A 1.0 always with its turn."""
        return StreamEnd(caller.turn_ends, repeats_status=True) if caller.is_older else end

    def _patience_s(self, caller: Caller) -> float:
        """Return how long to retry a stream that is cut: not beyond the caller's deadline."""
        if caller.deadline is None:
            return self._settings.patience_s
        left = caller.deadline - datetime.now(UTC)
        return min(self._settings.patience_s, max(0.0, left.total_seconds()))

    @audited(Action.TASK_GET)
    async def get_task(self, caller: Caller, request: a2a_pb2.GetTaskRequest) -> task_pb2.Task:
        """Return a task."""
        snapshot = await self._get_task(caller, request.id)
        return project_task(
            snapshot,
            history_length=requested_history_length(request),
            links=self._links(caller),
            view=self._view(caller),
        )

    @audited(Action.TASK_CANCEL)
    async def cancel_task(
        self, caller: Caller, request: a2a_pb2.CancelTaskRequest
    ) -> task_pb2.Task:
        """Cancel a task and return it in its terminal state."""
        await self._get_task(caller, request.id)
        client = self._directory.client_for_task(request.id)
        snapshot = await client.cancel_task(request.id, account=caller.account)
        return project_task(snapshot, links=self._links(caller), view=self._view(caller))

    @audited(Action.TASK_LIST)
    async def list_tasks(
        self, caller: Caller, request: a2a_pb2.ListTasksRequest
    ) -> a2a_pb2.ListTasksResponse:
        """Return a page of the agent's tasks; see `list_agent_tasks`."""
        return await fetch_task_page(
            self._directory, caller, request, self._links(caller), self._view(caller)
        )

    @asynccontextmanager
    async def subscribe_to_task(
        self, caller: Caller, request: a2a_pb2.SubscribeToTaskRequest
    ) -> AsyncIterator[WireEvents]:
        """Stream a task until it ends: its snapshot and events, or the events after the last id.

        Before A2A 1.0, the stream ends with the turn, and a task without a running turn is sent
        alone. In A2A 1.0, an ended task is an error. Errors before the first event are raised on
        entering.
        """
        action = Action.TASK_SUBSCRIBE
        with recorded(self.audit, caller, action, agent=caller.agent) as record:
            record.add_objects(named_objects(request))
            self._check_streaming("SubscribeToTask")
            end = StreamEnd()
            with self._streams.hold(caller):
                if caller.last_event_id is not None:
                    resumed = self._resume(caller, request.id, caller.last_event_id, end)
                    async with resumed as events:
                        record.write(OK)
                        yield events
                    return
                async with self._watch(caller, request.id) as stream:
                    snapshot = check_agent_task(caller, request.id, stream.snapshot)
                    if not caller.is_older:
                        check_not_ended(snapshot)
                    del snapshot
                    record.write(OK)
                    yield self._task_events(caller, stream, end)

    @asynccontextmanager
    async def _resume(
        self, caller: Caller, task_id: str, last_event_id: str, end: StreamEnd
    ) -> AsyncIterator[WireEvents]:
        """Stream the events after the client's last event, up to the end of the turn or the task.

        A journal event may have several wire events, so its projection is repeated and the events
        that the client already has are left out.
        """
        end = self._stream_end(caller, end)
        seen, view = parse_event_id(last_event_id), self._view(caller)
        snapshot = await self._wait_for_task(caller, task_id)
        check_event_exists(seen, snapshot)
        if is_last_event(seen, snapshot, end.states or TERMINAL, view):
            yield no_events()
            return
        async with self._directory.watch(
            task_id,
            account=caller.account,
            after=seen.sequence - 1,
            with_snapshot=seen.sequence > 1,
            patience_s=self._settings.patience_s,
        ) as stream:
            links = self._links(caller)
            events = await unseen_events(
                stream, end, seen=seen, head=snapshot, links=links, view=view
            )
            del snapshot
            yield events

    @audited(Action.WEBHOOK_CREATE)
    async def create_push_config(
        self, caller: Caller, config: push_notification_pb2.TaskPushNotificationConfig
    ) -> push_notification_pb2.TaskPushNotificationConfig:
        """Register a webhook of a task, or replace the webhook with the same id.

        Notifications have the protocol version of the caller. The result has no secrets.
        """
        self._check_push_notifications()
        task_id, version = config.task_id, caller.version
        await self._get_task(caller, task_id)
        checked = await self._webhooks.validate(config, task_id=task_id, version=version)
        return await self._webhooks.create(checked, account=caller.account, version=version)

    @audited(Action.WEBHOOK_GET)
    async def get_push_config(
        self, caller: Caller, request: a2a_pb2.GetTaskPushNotificationConfigRequest
    ) -> push_notification_pb2.TaskPushNotificationConfig:
        """Return a webhook of a task without secrets; the first one if the request has no id."""
        self._check_push_notifications()
        await self._get_task(caller, request.task_id)
        return await self._webhooks.get(request.task_id, request.id, account=caller.account)

    @audited(Action.WEBHOOK_LIST)
    async def list_push_configs(
        self, caller: Caller, request: a2a_pb2.ListTaskPushNotificationConfigsRequest
    ) -> a2a_pb2.ListTaskPushNotificationConfigsResponse:
        """Return the webhooks of a task without secrets."""
        self._check_push_notifications()
        await self._get_task(caller, request.task_id)
        return await self._webhooks.list(request.task_id, account=caller.account)

    @audited(Action.WEBHOOK_DELETE)
    async def delete_push_config(
        self, caller: Caller, request: a2a_pb2.DeleteTaskPushNotificationConfigRequest
    ) -> None:
        """Remove a webhook of a task. An unknown webhook is not an error."""
        self._check_push_notifications()
        await self._get_task(caller, request.task_id)
        await self._webhooks.delete(request.task_id, request.id, account=caller.account)

    def _check_streaming(self, method: str) -> None:
        """Raise UnsupportedOperationError if the cards don't declare streaming."""
        if not self._settings.streaming:
            problem = "this endpoint has no streams; send without streaming, and get the task"
            raise UnsupportedOperationError(method, problem)

    def _check_push_notifications(self) -> None:
        """Raise WireError if the cards don't declare push notifications."""
        if not self._settings.push_notifications:
            text = "this endpoint sends no push notifications; subscribe to the task, or get it"
            raise WireError(PUSH_NOTIFICATION_NOT_SUPPORTED, text)

    def _links(self, caller: Caller) -> FileLinks:
        """Return the links to files for the caller."""
        return self._cards.file_links(caller.origin)

    def _view(self, caller: Caller) -> View:
        """Return the view of tasks for the caller."""
        if PLAIN_EXTENSION in caller.extensions:
            return View.PLAIN
        return View(self._settings.agent_view(caller.agent))

    def _watch(self, caller: Caller, task_id: str) -> AbstractAsyncContextManager[TaskStream]:
        """Open the stream of a task, from its current snapshot on."""
        return self._directory.watch(
            task_id,
            account=caller.account,
            with_snapshot=True,
            patience_s=self._settings.patience_s,
        )

    async def _find_target(
        self, caller: Caller, request: a2a_pb2.SendMessageRequest
    ) -> snapshot_pb2.TaskSnapshot:
        """Return the task that a message names.

        Raises:
            TaskNotFoundError: there is no such task of the agent and account.
            WireError: the message has another context than the task.
        """
        message = request.message
        snapshot = await self._wait_for_task(caller, message.task_id)
        if message.context_id not in ("", snapshot.task.context_id):
            problem = f"is not the context of task {message.task_id!r}; leave it out"
            raise invalid_params(("message.contextId", problem))
        return snapshot

    async def _prepare_submission(
        self,
        caller: Caller,
        request: a2a_pb2.SendMessageRequest,
        task: snapshot_pb2.TaskSnapshot | None,
        new_task_id: str,
    ) -> message_service_pb2.Submission:
        """Return the metadata of a submission, with an allocated id if it creates a task.

        The host stores the message's webhook together with a new task, or before the next turn.
        """
        if request.configuration.HasField("task_push_notification_config"):
            self._check_push_notifications()
            caller.permissions.check(caller.agent, CREATE_PUSH_CONFIG)
        if task is not None and task.approvals:
            note_approved_calls(request.message, task)
        submission = build_submission(caller, request, task_id=new_task_id)
        if task is None and not new_task_id:
            # The only choice of a replica: the submission goes to the host of this id.
            host = self._directory.choose_host(
                caller.agent,
                context_id=request.message.context_id,
                key=placement_key(request.message, submission),
            )
            submission.task_id = allocate_task_id(host)
            submission.is_first_attempt = True
        if request.configuration.HasField("task_push_notification_config"):
            webhook = await self._webhooks.validate(
                request.configuration.task_push_notification_config,
                task_id=request.message.task_id or submission.task_id,
                version=caller.version,
                where="configuration.taskPushNotificationConfig.",
            )
            submission.push_notification_config.CopyFrom(webhook)
            submission.push_notification_version = caller.version
        return submission

    async def _get_task(self, caller: Caller, task_id: str) -> snapshot_pb2.TaskSnapshot:
        snapshot = await fetch_task(self._directory, task_id, account=caller.account)
        return check_agent_task(caller, task_id, snapshot)

    async def _wait_for_task(self, caller: Caller, task_id: str) -> snapshot_pb2.TaskSnapshot:
        """Return a task. If its host is unreachable, wait up to `patience_s` as streams do."""
        async with self._watch(caller, task_id) as stream:
            return check_agent_task(caller, task_id, stream.snapshot)
