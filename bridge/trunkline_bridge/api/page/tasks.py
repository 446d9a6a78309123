"""Tasks of the page: lists over all agents, one task and its journal, and actions on it."""

from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from datetime import UTC, datetime
from typing import Final

from google.protobuf import timestamp_pb2

from trunkline.a2a_wire.errors import WireError, invalid_params
from trunkline.a2a_wire.json_values import Json
from trunkline.core.json_values import message_to_dict
from trunkline.core.task_states import find_outcome
from trunkline.mesh.client import Directory
from trunkline.mesh.client.mesh_tasks import list_mesh_tasks, make_page_token, watch_mesh_tasks
from trunkline.v1 import snapshot_pb2, task_pb2, task_service_pb2
from trunkline_bridge.a2a.operations.request_parser import parse_message
from trunkline_bridge.api.page.access import PageAccess, may_use
from trunkline_bridge.api.page.binding import (
    API_PATH,
    HEADERS,
    PageEvent,
    PageEvents,
    PageRenderer,
    PageStreams,
    Paths,
    read_number,
    read_page_size,
    read_text,
)
from trunkline_bridge.api.workflows.operations import (
    JournalEvent,
    JournalEvents,
    RunCursor,
    WorkflowOperations,
)
from trunkline_bridge.callers.caller import Caller
from trunkline_bridge.http.sse import EventStreamResponse

_STATE: Final = "TASK_STATE_"
_DECISION: Final = "APPROVAL_DECISION_"
_DECISIONS: Final = ("approved", "edited", "rejected")
# A filter that few tasks match reads no more rows for one page.
_MAX_SCANNED: Final = 2000
_SCAN_SIZE: Final = 100
# Clocks of hosts may differ by so much for a resumed watch to miss nothing.
_CLOCK_SKEW_NS: Final = 5_000_000_000
_MAX_RESUMED: Final = 1000


class PageTasks:
    """The operations on tasks. A task is visible to the callers of its account."""

    def __init__(
        self,
        directory: Directory,
        operations: WorkflowOperations,
        access: PageAccess,
        streams: PageStreams,
    ) -> None:
        """`operations` are the operations of runs, which accept any task as a run."""
        self._directory = directory
        self._access = access
        self._operations = operations
        self._streams = streams

    def paths(self) -> Paths:
        """Return the handlers of the paths."""
        task = f"{API_PATH}/tasks/{{task_id:segment}}"
        return {
            f"{API_PATH}/tasks": {"GET": self._list},
            f"{API_PATH}/tasks:watch": {"GET": self._watch_all},
            f"{task}:cancel": {"POST": self._cancel},
            f"{task}:pause": {"POST": self._pause},
            f"{task}:resume": {"POST": self._resume},
            f"{task}/events": {"GET": self._watch},
            f"{task}/approvals/{{approval_id:segment}}:answer": {"POST": self._answer},
            task: {"GET": self._get},
        }

    async def _list(self, caller: Caller, params: Json, _path: Mapping[str, str]) -> Json:
        query = _TaskQuery(caller, params)
        if query.request.agent:
            self._operations.authorize(caller, query.request.agent, "ListTasks")
        size = read_page_size(params)
        request = query.request
        found: list[snapshot_pb2.TaskSummary] = []
        scanned, is_incomplete = 0, False
        while True:
            page = await list_mesh_tasks(self._directory, request)
            is_incomplete |= page.is_incomplete
            for position, row in enumerate(page.tasks):
                if not query.matches(row):
                    continue
                found.append(row)
                if len(found) == size:
                    is_last = position + 1 == len(page.tasks) and not page.next_page_token
                    token = "" if is_last else make_page_token(row)
                    return _render_page(found, token, is_incomplete=is_incomplete)
            scanned += len(page.tasks)
            request.page_token = page.next_page_token
            if not page.next_page_token or scanned >= _MAX_SCANNED:
                return _render_page(found, page.next_page_token, is_incomplete=is_incomplete)

    async def _watch_all(
        self, caller: Caller, params: Json, _path: Mapping[str, str]
    ) -> EventStreamResponse[PageEvent]:
        query = _TaskQuery(caller, params)
        if query.request.agent:
            self._operations.authorize(caller, query.request.agent, "ListTasks")
        after_ns = None
        if caller.last_event_id:
            after_ns = read_number({"Last-Event-ID": caller.last_event_id}, "Last-Event-ID")
        return self._streams.respond(caller, self._changes(query, after_ns))

    async def _changes(
        self, query: "_TaskQuery", after_ns: int | None
    ) -> AsyncGenerator[PageEvent, None]:
        """Yield the tasks that changed since a position, then tasks as they change.

        A position is the time of the latest status that the reader has. `ready` says that the
        watch has begun. `reset` says that changes are missing, so that the reader lists again.
        """
        now_ns = int(datetime.now(UTC).timestamp() * 1e9)
        position = max(now_ns if after_ns is None else after_ns, 0)
        async with watch_mesh_tasks(self._directory, query.request.account) as watch:
            yield PageEvent("ready", {}, str(position))
            if after_ns is not None:
                for row in await self._list_since(query, after_ns):
                    position = max(position, row.status.timestamp.ToNanoseconds())
                    yield PageEvent("task", render_row(row), str(position))
            while True:
                rows, is_incomplete = await watch.take()
                if is_incomplete:
                    yield PageEvent("reset", {}, str(position))
                for row in rows:
                    if query.matches(row):
                        position = max(position, row.status.timestamp.ToNanoseconds())
                        yield PageEvent("task", render_row(row), str(position))

    async def _list_since(
        self, query: "_TaskQuery", after_ns: int
    ) -> Sequence[snapshot_pb2.TaskSummary]:
        """Return the tasks whose status is of a time or later, oldest first."""
        request = task_service_pb2.ListTasksRequest()
        request.CopyFrom(query.request)
        request.status_after.FromNanoseconds(max(0, after_ns - _CLOCK_SKEW_NS))
        found: list[snapshot_pb2.TaskSummary] = []
        while len(found) < _MAX_RESUMED:
            page = await list_mesh_tasks(self._directory, request)
            found += [row for row in page.tasks if query.matches(row)]
            if not page.next_page_token:
                break
            request.page_token = page.next_page_token
        return found[::-1]

    async def _get(self, caller: Caller, params: Json, path: Mapping[str, str]) -> Json:
        task_id = path["task_id"]
        at = read_number(params, "at") if "at" in params else None
        latest, snapshot = await self._operations.get_run_at(caller, task_id, at)
        task = message_to_dict(snapshot)
        if self._access.is_operator(caller):
            task["host"] = self._directory.get_task_host(task_id).address
        return {
            "task": task,
            "sequence": snapshot.sequence,
            "lastSequence": latest.sequence,
        }

    async def _watch(
        self, caller: Caller, params: Json, path: Mapping[str, str]
    ) -> EventStreamResponse[PageEvent]:
        after = RunCursor(read_number(params, "epoch"), read_number(params, "after"))
        if caller.last_event_id:
            after = _parse_cursor(caller.last_event_id)
        events = self._operations.watch(caller, path["task_id"], after)
        # The operation counts the stream for its account.
        return EventStreamResponse(_render_journal(events), PageRenderer(), HEADERS)

    async def _cancel(self, caller: Caller, _params: Json, path: Mapping[str, str]) -> Json:
        return {"task": message_to_dict(await self._operations.cancel(caller, path["task_id"]))}

    async def _pause(self, caller: Caller, _params: Json, path: Mapping[str, str]) -> Json:
        return {"task": message_to_dict(await self._operations.pause(caller, path["task_id"]))}

    async def _resume(self, caller: Caller, _params: Json, path: Mapping[str, str]) -> Json:
        return {"task": message_to_dict(await self._operations.resume(caller, path["task_id"]))}

    async def _answer(self, caller: Caller, params: Json, path: Mapping[str, str]) -> Json:
        decision = read_text(params, "decision")
        if decision not in _DECISIONS:
            raise invalid_params(("decision", f"must be one of {', '.join(_DECISIONS)}"))
        if ("arguments" in params) != (decision == "edited"):
            raise invalid_params(("arguments", "belong to the decision `edited`, and to no other"))
        fields: Json = {name: params[name] for name in ("arguments", "reason") if name in params}
        fields["decision"] = _DECISION + decision.upper()
        request = parse_message(fields, message_type=task_service_pb2.AnswerApprovalRequest)
        request.task_id, request.approval_id = path["task_id"], path["approval_id"]
        return {"task": message_to_dict(await self._operations.answer_approval(caller, request))}


class _TaskQuery:
    """The filter of a list or a watch of tasks, for one caller."""

    def __init__(self, caller: Caller, params: Json) -> None:
        self._caller = caller
        self._states = _read_states(read_text(params, "state"))
        self._text = read_text(params, "text").casefold()
        self.request: task_service_pb2.ListTasksRequest = task_service_pb2.ListTasksRequest(
            account=caller.account,
            agent=read_text(params, "agent"),
            context_id=read_text(params, "contextId"),
            page_size=_SCAN_SIZE,
            page_token=read_text(params, "pageToken"),
            with_text=True,
        )
        if len(self._states) == 1:
            self.request.state = self._states[0]
        if "since" in params:
            self.request.status_after.CopyFrom(_read_time(params, "since"))
        if not self._text:
            self.request.page_size = read_page_size(params)

    def matches(self, row: snapshot_pb2.TaskSummary) -> bool:
        """Return whether a row passes the filter, and the caller may see it."""
        request = self.request
        return (
            may_use(self._caller, row.agent, "ListTasks")
            and request.agent in ("", row.agent)
            and request.context_id in ("", row.context_id)
            and (not self._states or row.status.state in self._states)
            and (self._text in row.text.casefold() or self._text in row.task_id.casefold())
        )


def render_row(row: snapshot_pb2.TaskSummary) -> Json:
    """Return a row of a list of tasks as JSON."""
    outcome = find_outcome(row.status.state, row.metadata)
    return {
        "id": row.task_id,
        "contextId": row.context_id,
        "agent": row.agent,
        "state": task_pb2.TaskState.Name(row.status.state),
        "createdAt": row.create_time.ToJsonString(),
        "updatedAt": row.status.timestamp.ToJsonString(),
        "text": row.text,
        "outcome": "" if outcome is None else outcome.value,
        "parentTaskId": row.parent_task_id,
    }


def _render_page(
    rows: Sequence[snapshot_pb2.TaskSummary], token: str, *, is_incomplete: bool
) -> Json:
    page: Json = {"tasks": [render_row(row) for row in rows], "nextPageToken": token}
    if is_incomplete:
        # A host does not answer, so its tasks are missing in the list.
        page["isIncomplete"] = True
    return page


@asynccontextmanager
async def _render_journal(
    events: AbstractAsyncContextManager[JournalEvents],
) -> AsyncIterator[PageEvents]:
    """Open the events of a task, and the event that says that it has ended."""
    async with events as opened:

        async def read() -> PageEvents:
            async for ready in opened:
                yield list(_render_events(ready))
            yield (PageEvent("end", {}),)

        async with aclosing(read()) as rendered:
            yield rendered


def _render_events(events: Sequence[JournalEvent]) -> Iterator[PageEvent]:
    for cursor, header, event in events:
        data: Json = {
            "sequence": cursor.sequence,
            "epoch": cursor.epoch,
            "time": header.time.ToJsonString(),
            "event": message_to_dict(event),
        }
        if header.HasField("origin"):
            data["origin"] = message_to_dict(header.origin)
        yield PageEvent("event", data, f"{cursor.sequence}-{cursor.epoch}")


def _parse_cursor(text: str) -> RunCursor:
    """Return the position in a Last-Event-ID. WireError: it is invalid."""
    sequence, _, epoch = text.partition("-")
    fields = {"sequence": sequence, "epoch": epoch or 0}
    try:
        return RunCursor(read_number(fields, "epoch"), read_number(fields, "sequence"))
    except WireError:
        raise invalid_params(("Last-Event-ID", "must be the id of an event")) from None


def _read_states(text: str) -> "Sequence[task_pb2.TaskState.ValueType]":
    """Return the states in a list with commas, such as `working,input-required`."""
    names = [
        name.strip().upper().replace("-", "_").removeprefix(_STATE)
        for name in text.split(",")
        if name.strip()
    ]
    try:
        return [task_pb2.TaskState.Value(_STATE + name) for name in names]
    except ValueError:
        raise invalid_params(("state", "must be states of tasks, with commas")) from None


def _read_time(params: Json, name: str) -> timestamp_pb2.Timestamp:
    time = timestamp_pb2.Timestamp()
    try:
        time.FromJsonString(read_text(params, name))
    except ValueError:
        raise invalid_params((name, "must be a time such as 2026-01-31T08:00:00Z")) from None
    return time
