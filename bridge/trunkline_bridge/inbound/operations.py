"""A2A's operations as calls to the mesh, the same for every inbound binding."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from trunkline.a2a.v1 import a2a_pb2
from trunkline.client import Directory, HostClient, TaskStream
from trunkline.errors import TaskEndedError, TaskNotFoundError, TrunklineError
from trunkline.v1 import (
    event_pb2,
    message_pb2,
    message_service_pb2,
    snapshot_pb2,
    task_pb2,
    task_service_pb2,
)
from trunkline_bridge.errors import PUSH_NOTIFICATION_NOT_SUPPORTED, WireError, invalid_params
from trunkline_bridge.inbound import tracing
from trunkline_bridge.inbound.cards import RESUME_EXTENSION
from trunkline_bridge.projection import Projection, WholeEvent, WireEvent, project_task
from trunkline_bridge.settings import BridgeSettings

# Whose tasks anonymous callers' are.
ANONYMOUS = "anonymous"
NO_PUSH = "push notifications are not supported; stream, or subscribe to the task"

_ENDED = frozenset(
    {
        task_pb2.TASK_STATE_COMPLETED,
        task_pb2.TASK_STATE_FAILED,
        task_pb2.TASK_STATE_CANCELED,
        task_pb2.TASK_STATE_REJECTED,
    }
)
_EVENT_ID = re.compile(r"([1-9][0-9]{0,17})\.([0-9]{1,9})", re.ASCII)
# Tasks of one page that are read at the same time.
_READS_AT_ONCE = 8

WireEvents: TypeAlias = AsyncIterator[Sequence[WireEvent]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """What a binding knows of a request beside its parameters."""

    agent: str
    extensions: frozenset[str] = frozenset()
    deadline: datetime | None = None
    last_event_id: str | None = None
    account: str = ANONYMOUS
    name: str = ANONYMOUS


class Operations:
    """A2A as the mesh does it. Everything raises TrunklineErrors and WireErrors only.

    A task shows at its own agent's address and to its own account; elsewhere it isn't found.
    """

    def __init__(self, directory: Directory, settings: BridgeSettings) -> None:
        self._directory = directory
        self._settings = settings

    async def send(
        self, caller: Caller, request: a2a_pb2.SendMessageRequest
    ) -> task_pb2.Task | message_pb2.Message:
        """Give a message to the agent; wait for the end of the turn unless asked not to."""
        client = await self._client_for(caller, request)
        answer = await client.send_message(
            agent=caller.agent,
            message=request.message,
            submission=_submission(caller, request),
            return_immediately=request.configuration.return_immediately,
            timeout_s=self._settings.blocking_limit_s,
        )
        if isinstance(answer, message_pb2.Message):
            return answer
        tracing.note_task(answer)
        return project_task(answer, history_length=_history_length(request.configuration))

    @asynccontextmanager
    async def stream(
        self, caller: Caller, request: a2a_pb2.SendMessageRequest
    ) -> AsyncIterator[WireEvents]:
        """Give a message to the agent and follow its turn: one message, or a task and what follows.

        Errors that come before the first event are raised on entering.
        """
        client = await self._client_for(caller, request)
        submission = _submission(caller, request)
        async with client.stream_message(
            agent=caller.agent, message=request.message, submission=submission
        ) as stream:
            yield _turn(stream, history_length=_history_length(request.configuration))

    async def get(self, caller: Caller, request: a2a_pb2.GetTaskRequest) -> task_pb2.Task:
        """Return a task."""
        snapshot = await self._own_task(caller, request.id)
        return project_task(snapshot, history_length=_history_length(request))

    async def cancel(self, caller: Caller, request: a2a_pb2.CancelTaskRequest) -> task_pb2.Task:
        """Cancel a task and return it, ended."""
        await self._own_task(caller, request.id)
        client = self._directory.for_task(request.id)
        return project_task(await client.cancel_task(request.id, account=caller.account))

    async def list(
        self, caller: Caller, request: a2a_pb2.ListTasksRequest
    ) -> a2a_pb2.ListTasksResponse:
        """Return a page of the agent's tasks: those on the host that runs the agent now."""
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
        client = self._directory.for_agent(caller.agent)
        page = await client.list_tasks(query)
        response = a2a_pb2.ListTasksResponse(
            next_page_token=page.next_page_token,
            page_size=request.page_size,
            total_size=page.total_size,
        )
        if request.include_artifacts or request.history_length > 0:
            response.tasks.extend(await _read_tasks(client, caller, request, page.tasks))
        else:
            response.tasks.extend(_row(summary) for summary in page.tasks)
        return response

    @asynccontextmanager
    async def subscribe(
        self, caller: Caller, request: a2a_pb2.SubscribeToTaskRequest
    ) -> AsyncIterator[WireEvents]:
        """Follow a task until it ends: a snapshot first, or with a last event id what follows it.

        Errors that come before the first event are raised on entering.
        """
        if caller.last_event_id is not None:
            async with self._resume(caller, request.id, caller.last_event_id) as events:
                yield events
            return
        client = self._directory.for_task(request.id)
        async with client.watch_task(request.id, account=caller.account) as stream:
            snapshot = _own(caller, request.id, stream.snapshot)
            _check_not_ended(snapshot)
            tracing.link_task(snapshot)
            yield _turn(stream, history_length=None)

    @asynccontextmanager
    async def _resume(
        self, caller: Caller, task_id: str, last_event_id: str
    ) -> AsyncIterator[WireEvents]:
        """Go on behind an event: render its journal event again, and leave out what was seen."""
        read = _EVENT_ID.fullmatch(last_event_id)
        if read is None:
            raise invalid_params(("Last-Event-ID", "must be the id of an event of this task"))
        seen = (int(read[1]), int(read[2]))
        now = await self._own_task(caller, task_id)
        if seen[0] > now.sequence:
            problem = f"the task has no event {seen[0]} yet; the last one is {now.sequence}"
            raise invalid_params(("Last-Event-ID", problem))
        tracing.link_task(now)
        client = self._directory.for_task(task_id)
        async with client.watch_task(
            task_id, account=caller.account, after=seen[0] - 1, with_snapshot=seen[0] > 1
        ) as stream:
            yield _rest(stream, seen=seen)

    async def _client_for(self, caller: Caller, request: a2a_pb2.SendMessageRequest) -> HostClient:
        """Return the host for a message: its task's, or the agent's for a new one."""
        if request.configuration.HasField("task_push_notification_config"):
            raise WireError(PUSH_NOTIFICATION_NOT_SUPPORTED, NO_PUSH)
        message = request.message
        if not message.task_id:
            return self._directory.for_agent(caller.agent)
        snapshot = await self._own_task(caller, message.task_id)
        if message.context_id not in ("", snapshot.task.context_id):
            problem = f"is not the context of task {message.task_id!r}; leave it out"
            raise invalid_params(("message.contextId", problem))
        return self._directory.for_task(message.task_id)

    async def _own_task(self, caller: Caller, task_id: str) -> snapshot_pb2.TaskSnapshot:
        client = self._directory.for_task(task_id)
        snapshot = await client.get_task(task_id, account=caller.account)
        return _own(caller, task_id, snapshot)


async def _turn(stream: TaskStream, *, history_length: int | None) -> WireEvents:
    """What a stream is from its beginning: the reply, or a task and all that follows."""
    if stream.message is not None:
        # A direct reply is in no journal: there is nothing to resume and no id.
        yield [WholeEvent(0, 0, a2a_pb2.StreamResponse(message=stream.message))]
        return
    snapshot = stream.snapshot
    if snapshot is not None and snapshot.sequence > 0:
        tracing.note_task(snapshot)
        task = project_task(snapshot, history_length=history_length)
        yield [WholeEvent(snapshot.sequence, 0, a2a_pb2.StreamResponse(task=task))]
    async for events in _projected(stream):
        yield events


async def _rest(stream: TaskStream, *, seen: tuple[int, int]) -> WireEvents:
    """What is behind an event that the client has seen."""
    async for events in _projected(stream):
        unseen = [event for event in events if (event.sequence, event.n) > seen]
        if unseen:
            yield unseen


async def _projected(stream: TaskStream) -> WireEvents:
    snapshot = stream.snapshot
    projection = Projection(snapshot if snapshot is not None and snapshot.sequence else None)
    async for batches in stream:
        events = [
            event
            for sealed in batches
            for event in projection.apply(event_pb2.EventBatch.FromString(sealed))
        ]
        if events:
            yield events


async def _read_tasks(
    client: HostClient,
    caller: Caller,
    request: a2a_pb2.ListTasksRequest,
    rows: Sequence[snapshot_pb2.TaskSummary],
) -> Sequence[task_pb2.Task]:
    """Read the tasks of a page whole, in its order; those that have gone meanwhile are left out."""
    found: dict[str, task_pb2.Task] = {}
    failures: list[TrunklineError] = []
    turns = asyncio.Semaphore(_READS_AT_ONCE)

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
            history_length=_history_length(request),
            include_artifacts=request.include_artifacts,
        )

    async with asyncio.TaskGroup() as group:
        for row in rows:
            group.create_task(read(row.task_id))
    if failures:
        raise failures[0]
    return [found[row.task_id] for row in rows if row.task_id in found]


def _row(summary: snapshot_pb2.TaskSummary) -> task_pb2.Task:
    task = task_pb2.Task(id=summary.task_id, context_id=summary.context_id, status=summary.status)
    if summary.HasField("metadata"):
        task.metadata.CopyFrom(summary.metadata)
    return task


def _submission(
    caller: Caller, request: a2a_pb2.SendMessageRequest
) -> message_service_pb2.Submission:
    submission = message_service_pb2.Submission(
        account=caller.account,
        caller=caller.name,
        # Without the extension, a plain request of somebody unknown is always a new one.
        idempotent=RESUME_EXTENSION in caller.extensions,
        accepted_output_modes=request.configuration.accepted_output_modes,
    )
    if request.HasField("metadata"):
        submission.metadata.CopyFrom(request.metadata)
    if caller.deadline is not None:
        submission.deadline.FromDatetime(caller.deadline)
    return submission


def _own(
    caller: Caller, task_id: str, snapshot: snapshot_pb2.TaskSnapshot | None
) -> snapshot_pb2.TaskSnapshot:
    if snapshot is None or snapshot.agent != caller.agent:
        raise TaskNotFoundError(task_id)
    tracing.note_task(snapshot)
    return snapshot


def _check_not_ended(snapshot: snapshot_pb2.TaskSnapshot) -> None:
    state = snapshot.task.status.state
    if state in _ENDED:
        name = task_pb2.TaskState.Name(state).removeprefix("TASK_STATE_").lower()
        raise TaskEndedError(snapshot.task.id, name)


def _history_length(
    request: a2a_pb2.SendMessageConfiguration | a2a_pb2.GetTaskRequest | a2a_pb2.ListTasksRequest,
) -> int | None:
    return request.history_length if request.HasField("history_length") else None
