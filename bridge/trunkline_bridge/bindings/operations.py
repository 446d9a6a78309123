"""What operations ask of a task."""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime

from trunkline.a2a.v1 import a2a_pb2
from trunkline.client import Directory, HostClient, TaskStream, allocate_task_id
from trunkline.errors import (
    AgentNotFoundError,
    MessageKeyReusedError,
    PeerTimeoutError,
    PeerUnavailableError,
    TaskEndedError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.task_states import TERMINAL, state_name
from trunkline.v1 import (
    agent_card_pb2,
    message_pb2,
    message_service_pb2,
    push_notification_pb2,
    snapshot_pb2,
    task_pb2,
    task_service_pb2,
)
from trunkline_bridge.edge import tracing
from trunkline_bridge.edge.agent_cards import AgentCards
from trunkline_bridge.edge.caller import Caller
from trunkline_bridge.errors import invalid_params
from trunkline_bridge.projection import FileLinks, project_task
from trunkline_bridge.protocol import RESUME_EXTENSION
from trunkline_bridge.settings import BridgeSettings
from trunkline_bridge.streams.task_streams import (
    WireEvents,
    check_event_exists,
    current_turn_events,
    cursor_expired,
    is_last_event,
    limit_auth_wait,
    no_events,
    parse_event_id,
    read_until_interrupted,
    snapshot_events,
    turn_events,
    unseen_events,
    until_turn_end,
)
from trunkline_bridge.webhooks.registration import WebhookRegistrations


def check_agent_task(
    caller: Caller, task_id: str, snapshot: snapshot_pb2.TaskSnapshot | None
) -> snapshot_pb2.TaskSnapshot:
    """Return a task that shows at the agent's address. TaskNotFoundError: it doesn't."""
    if snapshot is None or snapshot.agent != caller.agent:
        raise TaskNotFoundError(task_id)
    tracing.record_task(snapshot)
    return snapshot


def check_not_ended(snapshot: snapshot_pb2.TaskSnapshot) -> None:
    """Raise TaskEndedError if a task has ended."""
    state = snapshot.task.status.state
    if state in TERMINAL:
        raise TaskEndedError(snapshot.task.id, state_name(state))


def requested_history_length(
    request: a2a_pb2.SendMessageConfiguration | a2a_pb2.GetTaskRequest | a2a_pb2.ListTasksRequest,
) -> int | None:
    """Return how much history a request asks for; None: all of it."""
    return request.history_length if request.HasField("history_length") else None


def build_submission(
    caller: Caller, request: a2a_pb2.SendMessageRequest
) -> message_service_pb2.Submission:
    """Return what the mesh is told beside a message: whose it is, and how to take it."""
    submission = message_service_pb2.Submission(
        account=caller.account,
        caller=caller.name,
        # Without the extension, a plain request of somebody unknown is always a new one.
        idempotent=caller.is_authenticated or RESUME_EXTENSION in caller.extensions,
        accepted_output_modes=request.configuration.accepted_output_modes,
    )
    if request.HasField("metadata"):
        submission.metadata.CopyFrom(request.metadata)
    if caller.deadline is not None:
        submission.deadline.FromDatetime(caller.deadline)
    return submission


def find_earlier_task(stream: TaskStream, submission: message_service_pb2.Submission) -> str:
    """Return the task that a submission for a new one made when it came first; empty: none."""
    if not submission.task_id or stream.snapshot is None:
        return ""
    task_id = stream.snapshot.task.id
    return "" if task_id == submission.task_id else task_id


def is_repeated(
    caller: Caller, task: snapshot_pb2.TaskSnapshot | None, message: message_pb2.Message
) -> bool:
    """Whether a message that names its task was given to it before.

    That is asked only with the extension: without it, a message is a new one whatever its id.

    Raises:
        MessageKeyReusedError: it was another one, by the same id.
    """
    if task is None or RESUME_EXTENSION not in caller.extensions:
        return False
    for known in task.task.history:
        if known.message_id == message.message_id and known.role == message.role:
            # As it was sent: its task has filled the ids in.
            sent = message_pb2.Message()
            sent.CopyFrom(known)
            sent.task_id, sent.context_id = message.task_id, message.context_id
            if sent != message:
                raise MessageKeyReusedError(message.message_id)
            return True
    return False


# Tasks of one page that are read at the same time.
_MAX_PARALLEL_READS = 8


async def fetch_task_page(
    client: HostClient, caller: Caller, request: a2a_pb2.ListTasksRequest, links: FileLinks
) -> a2a_pb2.ListTasksResponse:
    """Return a page of the agent's tasks on a host; they are read whole only if that is asked."""
    query = task_service_pb2.ListTasksRequest(
        account=caller.account,
        agent=caller.agent,
        context_id=request.context_id,
        state=request.status,
        page_size=request.page_size,
        page_token=request.page_token,
    )
    if request.HasField("status_timestamp_after"):
        query.status_after.CopyFrom(request.status_timestamp_after)
    page = await client.list_tasks(query)
    response = a2a_pb2.ListTasksResponse(
        next_page_token=page.next_page_token,
        page_size=request.page_size,
        total_size=page.total_size,
    )
    if request.include_artifacts or request.history_length > 0:
        response.tasks.extend(await _read_tasks(client, caller, request, page.tasks, links))
    else:
        response.tasks.extend(
            links.task_to_urls(_task_from_summary(summary)) for summary in page.tasks
        )
    return response


async def _read_tasks(
    client: HostClient,
    caller: Caller,
    request: a2a_pb2.ListTasksRequest,
    rows: Sequence[snapshot_pb2.TaskSummary],
    links: FileLinks,
) -> Sequence[task_pb2.Task]:
    """Read the tasks of a page whole, in its order; those that have gone meanwhile are left out."""
    found: dict[str, task_pb2.Task] = {}
    failures: list[TrunklineError] = []
    turns = asyncio.Semaphore(_MAX_PARALLEL_READS)

    async def read(task_id: str) -> None:
        async with turns:
            try:
                snapshot = await client.get_task(task_id, account=caller.account)
            except TaskNotFoundError:
                return
            except TrunklineError as error:
                # Out of the group it would come wrapped, and the others would be lost all the same.
                failures.append(error)
                return
        found[task_id] = project_task(
            snapshot,
            history_length=requested_history_length(request),
            include_artifacts=request.include_artifacts,
            links=links,
        )

    async with asyncio.TaskGroup() as group:
        for row in rows:
            group.create_task(read(row.task_id))
    if failures:
        raise failures[0]
    return [found[row.task_id] for row in rows if row.task_id in found]


def _task_from_summary(summary: snapshot_pb2.TaskSummary) -> task_pb2.Task:
    task = task_pb2.Task(id=summary.task_id, context_id=summary.context_id, status=summary.status)
    if summary.HasField("metadata"):
        task.metadata.CopyFrom(summary.metadata)
    return task


logger = logging.getLogger(__name__)


class Operations:
    """A2A as the mesh does it. Everything raises TrunklineErrors and WireErrors only.

    A task shows at its own agent's address and to its own account; elsewhere it isn't found.
    """

    def __init__(
        self,
        directory: Directory,
        settings: BridgeSettings,
        cards: AgentCards,
        webhooks: WebhookRegistrations,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._cards = cards
        self._webhooks = webhooks

    async def get_extended_card(
        self, caller: Caller, _request: a2a_pb2.GetExtendedAgentCardRequest | None = None
    ) -> agent_card_pb2.AgentCard:
        """Return the agent's card for callers that have said who they are."""
        return self._cards.extended_card(caller)

    def check_agent(self, agent: str, task_id: str = "") -> None:
        """See that an agent is there; a task outlives it, on whatever host took the task over.

        Raises:
            AgentNotFoundError: neither the agent is on the mesh nor a host that knows the task.
        """
        try:
            self._directory.get_agent(agent)
        except AgentNotFoundError:
            if not self._directory.knows_task_host(task_id):
                raise

    async def send_message(
        self, caller: Caller, request: a2a_pb2.SendMessageRequest, *, new_task_id: str = ""
    ) -> task_pb2.Task | message_pb2.Message:
        """Give a message to the agent; wait for the end of the turn unless asked not to.

        When the host goes away meanwhile, wait for the task wherever it goes on. `new_task_id` may
        name the task that a message without one makes, an id of the agent's host; the same one
        again is the same task. So it is, with the extension, for a message that its task has.
        """
        links = self._links(caller)
        links.to_references(request.message)
        task = await self._checked_task(caller, request)
        try:
            async with asyncio.timeout(self._settings.blocking_limit_s):
                if is_repeated(caller, task, request.message):
                    answer = await self._attach(caller, request)
                else:
                    submission = await self._submission(caller, request, task, new_task_id)
                    answer = await self._send(caller, request, submission)
        except TimeoutError:
            limit_s = self._settings.blocking_limit_s
            problem = f"the turn is not over after {limit_s:g} s; send with returnImmediately"
            raise PeerTimeoutError(f"agent {caller.agent!r}", problem) from None
        if isinstance(answer, message_pb2.Message):
            links.to_urls(answer.parts)
            return answer
        tracing.record_task(answer)
        return project_task(
            answer, history_length=requested_history_length(request.configuration), links=links
        )

    async def _attach(
        self, caller: Caller, request: a2a_pb2.SendMessageRequest
    ) -> snapshot_pb2.TaskSnapshot | message_pb2.Message:
        """Wait for the turn of a message that its task has already."""
        task_id = request.message.task_id
        if not request.configuration.return_immediately:
            async with self._follow(caller, task_id) as stream:
                await read_until_interrupted(stream)
        return await self._found_task(caller, task_id)

    async def _send(
        self,
        caller: Caller,
        request: a2a_pb2.SendMessageRequest,
        submission: message_service_pb2.Submission,
    ) -> snapshot_pb2.TaskSnapshot | message_pb2.Message:
        if submission.task_id:
            # One call is cheaper than a stream. It names its task, so that it may be repeated.
            try:
                return await self._directory.client_for_agent(caller.agent).send_message(
                    agent=caller.agent,
                    message=request.message,
                    submission=submission,
                    return_immediately=request.configuration.return_immediately,
                    timeout_s=self._settings.blocking_limit_s,
                )
            except (PeerUnavailableError, PeerTimeoutError) as error:
                extra = {"agent": caller.agent, "reason": error.reason}
                logger.info("send.repeated", extra=extra)
        async with self._begin(caller, request, submission) as stream:
            if stream.message is not None:
                return stream.message
            task_id = stream.snapshot.task.id if stream.snapshot else request.message.task_id
            if not request.configuration.return_immediately:
                await read_until_interrupted(stream)
        return await self._found_task(caller, task_id)

    @asynccontextmanager
    async def stream_message(
        self, caller: Caller, request: a2a_pb2.SendMessageRequest, *, new_task_id: str = ""
    ) -> AsyncIterator[WireEvents]:
        """Give a message to the agent and follow its turn: one message, or a task and what follows.

        Errors that come before the first event are raised on entering. `new_task_id` is as for
        `send`; and so is a message that its task has: it shows the task, and what follows. With a
        last event id, a message that was given before goes on behind that event.
        """
        links = self._links(caller)
        links.to_references(request.message)
        task = await self._checked_task(caller, request)
        if is_repeated(caller, task, request.message):
            async with self._attached(caller, request.message.task_id) as events:
                yield events
            return
        submission = await self._submission(caller, request, task, new_task_id)
        del task
        async with self._begin(caller, request, submission) as stream:
            known = find_earlier_task(stream, submission)
            if not known or caller.last_event_id is None:
                events = turn_events(
                    stream,
                    history_length=requested_history_length(request.configuration),
                    links=links,
                )
                yield self._turn_of(caller, events)
                return
        async with self._attached(caller, known) as events:
            yield events

    @asynccontextmanager
    async def _attached(self, caller: Caller, task_id: str) -> AsyncIterator[WireEvents]:
        """Follow a turn that goes on already: from its task as it is, or behind an event."""
        if caller.last_event_id is None:
            async with self._follow(caller, task_id) as stream:
                yield self._turn_of(caller, current_turn_events(stream, self._links(caller)))
        else:
            async with self._resume(caller, task_id, caller.last_event_id, of_turn=True) as events:
                yield events

    def _turn_of(self, caller: Caller, events: WireEvents) -> WireEvents:
        """How long the caller's version follows a turn that a message began."""
        if caller.is_older:
            return until_turn_end(events, caller.turn_ends)
        return limit_auth_wait(events, self._settings.auth_wait_s)

    def _begin(
        self,
        caller: Caller,
        request: a2a_pb2.SendMessageRequest,
        submission: message_service_pb2.Submission,
    ) -> AbstractAsyncContextManager[TaskStream]:
        patience_s = self._settings.patience_s
        if caller.deadline is not None:
            # Behind its deadline there is nothing to wait for.
            left = caller.deadline - datetime.now(UTC)
            patience_s = min(patience_s, max(0.0, left.total_seconds()))
        return self._directory.submit(
            caller.agent,
            message=request.message,
            submission=submission,
            patience_s=patience_s,
        )

    async def get_task(self, caller: Caller, request: a2a_pb2.GetTaskRequest) -> task_pb2.Task:
        """Return a task."""
        snapshot = await self._own_task(caller, request.id)
        return project_task(
            snapshot, history_length=requested_history_length(request), links=self._links(caller)
        )

    async def cancel_task(
        self, caller: Caller, request: a2a_pb2.CancelTaskRequest
    ) -> task_pb2.Task:
        """Cancel a task and return it, ended."""
        await self._own_task(caller, request.id)
        client = self._directory.client_for_task(request.id)
        snapshot = await client.cancel_task(request.id, account=caller.account)
        return project_task(snapshot, links=self._links(caller))

    async def list_tasks(
        self, caller: Caller, request: a2a_pb2.ListTasksRequest
    ) -> a2a_pb2.ListTasksResponse:
        """Return a page of the agent's tasks: those on the host that runs the agent now."""
        client = self._directory.client_for_agent(caller.agent)
        return await fetch_task_page(client, caller, request, self._links(caller))

    @asynccontextmanager
    async def subscribe_to_task(
        self, caller: Caller, request: a2a_pb2.SubscribeToTaskRequest
    ) -> AsyncIterator[WireEvents]:
        """Follow a task until it ends: a snapshot first, or with a last event id what follows it.

        Before A2A 1.0 it is followed until its turn ends; one that waits or has ended is told, and
        no error. Errors that come before the first event are raised on entering.
        """
        if caller.last_event_id is not None:
            of_turn = caller.is_older
            async with self._resume(
                caller, request.id, caller.last_event_id, of_turn=of_turn
            ) as events:
                yield events
            return
        async with self._follow(caller, request.id) as stream:
            snapshot = check_agent_task(caller, request.id, stream.snapshot)
            links = self._links(caller)
            tracing.link_task_span(snapshot)
            if not caller.is_older:
                check_not_ended(snapshot)
            elif snapshot.task.status.state in caller.turn_ends:
                yield until_turn_end(snapshot_events(snapshot, links), caller.turn_ends)
                return
            del snapshot
            events = turn_events(stream, history_length=None, links=links)
            yield until_turn_end(events, caller.turn_ends) if caller.is_older else events

    @asynccontextmanager
    async def _resume(
        self, caller: Caller, task_id: str, last_event_id: str, *, of_turn: bool
    ) -> AsyncIterator[WireEvents]:
        """Go on behind an event: render its journal event again, and leave out what was seen."""
        seen = parse_event_id(last_event_id)
        now = await self._found_task(caller, task_id)
        check_event_exists(seen, now)
        tracing.link_task_span(now)
        if is_last_event(seen, now, caller.turn_ends if of_turn else TERMINAL):
            yield no_events()
            return
        expired = cursor_expired(seen, now)
        state = now.task.status.state
        # It may be large, and the stream stand for days.
        del now
        async with self._directory.watch(
            task_id,
            account=caller.account,
            after=seen.sequence - 1,
            with_snapshot=seen.sequence > 1,
            patience_s=self._settings.patience_s,
        ) as stream:
            events = unseen_events(stream, seen=seen, expired=expired, links=self._links(caller))
            # Here, so that an event which is gone is the answer and not the end of a stream.
            await anext(events, None)
            if not of_turn:
                yield events
            elif caller.is_older:
                yield until_turn_end(events, caller.turn_ends)
            else:
                limit_s = self._settings.auth_wait_s
                yield limit_auth_wait(until_turn_end(events), limit_s, state=state)

    async def create_push_config(
        self, caller: Caller, config: push_notification_pb2.TaskPushNotificationConfig
    ) -> push_notification_pb2.TaskPushNotificationConfig:
        """Register a webhook of a task, or replace the one with its id; return it without secrets.

        What is posted to it is of the caller's version.
        """
        task_id, version = config.task_id, caller.version
        await self._own_task(caller, task_id)
        checked = await self._webhooks.validate(config, task_id=task_id, version=version)
        return await self._webhooks.create(checked, account=caller.account, version=version)

    async def get_push_config(
        self, caller: Caller, request: a2a_pb2.GetTaskPushNotificationConfigRequest
    ) -> push_notification_pb2.TaskPushNotificationConfig:
        """Return a webhook of a task, secrets left out; without an id, the task's first one."""
        await self._own_task(caller, request.task_id)
        return await self._webhooks.get(request.task_id, request.id, account=caller.account)

    async def list_push_configs(
        self, caller: Caller, request: a2a_pb2.ListTaskPushNotificationConfigsRequest
    ) -> a2a_pb2.ListTaskPushNotificationConfigsResponse:
        """Return the webhooks of a task, secrets left out."""
        await self._own_task(caller, request.task_id)
        return await self._webhooks.list(request.task_id, account=caller.account)

    async def delete_push_config(
        self, caller: Caller, request: a2a_pb2.DeleteTaskPushNotificationConfigRequest
    ) -> None:
        """Remove a webhook of a task; one that is not there is as good as removed."""
        await self._own_task(caller, request.task_id)
        await self._webhooks.delete(request.task_id, request.id, account=caller.account)

    def _links(self, caller: Caller) -> FileLinks:
        """Where the caller finds files."""
        return self._cards.links(caller.origin)

    def _follow(self, caller: Caller, task_id: str) -> AbstractAsyncContextManager[TaskStream]:
        """Follow a task from where it is now, its snapshot first."""
        return self._directory.watch(
            task_id,
            account=caller.account,
            with_snapshot=True,
            patience_s=self._settings.patience_s,
        )

    async def _checked_task(
        self, caller: Caller, request: a2a_pb2.SendMessageRequest
    ) -> snapshot_pb2.TaskSnapshot | None:
        """Return the task that a message is for, if it names one, which must be the caller's."""
        message = request.message
        if not message.task_id:
            return None
        snapshot = await self._found_task(caller, message.task_id)
        if message.context_id not in ("", snapshot.task.context_id):
            problem = f"is not the context of task {message.task_id!r}; leave it out"
            raise invalid_params(("message.contextId", problem))
        return snapshot

    async def _submission(
        self,
        caller: Caller,
        request: a2a_pb2.SendMessageRequest,
        task: snapshot_pb2.TaskSnapshot | None,
        named: str,
    ) -> message_service_pb2.Submission:
        """What the mesh is told about a message. A new task gets its name here.

        A webhook that comes with a message is kept with the new task; for one that is there, and
        goes on, before the message is given.
        """
        submission = build_submission(caller, request)
        if task is None:
            host = self._directory.get_agent_host(caller.agent)
            submission.task_id = named or allocate_task_id(host)
        if request.configuration.HasField("task_push_notification_config"):
            webhook = await self._webhooks.validate(
                request.configuration.task_push_notification_config,
                task_id=request.message.task_id or submission.task_id,
                version=caller.version,
                where="configuration.taskPushNotificationConfig.",
            )
            if task is None:
                submission.push_notification_config.CopyFrom(webhook)
                submission.push_notification_version = caller.version
            elif task.task.status.state not in TERMINAL:
                account, version = caller.account, caller.version
                await self._webhooks.create(webhook, account=account, version=version)
        return submission

    async def _own_task(self, caller: Caller, task_id: str) -> snapshot_pb2.TaskSnapshot:
        client = self._directory.client_for_task(task_id)
        snapshot = await client.get_task(task_id, account=caller.account)
        return check_agent_task(caller, task_id, snapshot)

    async def _found_task(self, caller: Caller, task_id: str) -> snapshot_pb2.TaskSnapshot:
        """Return a task, wherever it is; wait for that as streams do."""
        async with self._follow(caller, task_id) as stream:
            return check_agent_task(caller, task_id, stream.snapshot)
