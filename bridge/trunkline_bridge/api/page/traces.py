"""Traces of the page. Operators see all, other callers only the traces of their own tasks."""

from collections import Counter, OrderedDict, defaultdict
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from typing import Final

from trunkline.a2a_wire.json_values import Json
from trunkline.core import json_values
from trunkline.core.json_values import has_member, message_to_dict
from trunkline.errors import TaskNotFoundError, TraceNotFoundError
from trunkline.mesh.client import Directory
from trunkline.mesh.client.host_queries import fetch_task
from trunkline.mesh.client.methods import read_responses
from trunkline.mesh.client.trace_report import SpanFacts, TraceReport
from trunkline.mesh.client.trace_tree import TraceTree
from trunkline.observe import telemetry
from trunkline.v1 import trace_service_pb2
from trunkline_bridge.api.page.access import PageAccess, may_use
from trunkline_bridge.api.page.binding import (
    API_PATH,
    PageEvent,
    PageStreams,
    Paths,
    read_page_size,
    read_text,
)
from trunkline_bridge.api.workflows.operations import WorkflowOperations
from trunkline_bridge.callers.caller import Caller
from trunkline_bridge.http.sse import EventStreamResponse

_GET_TASK: Final = "GetTask"
_TASK_KEYS: Final = (telemetry.TASK_ID, telemetry.A2A_TASK_ID)
# A page of a caller that sees few traces reads no more pages of all traces.
_MAX_PAGES: Final = 20
_MAX_KNOWN_TASKS: Final = 10_000


class PageTraces:
    """The operations on traces.

    A client can send the id of any trace with a request, so that its task is part of that trace.
    Callers therefore see a trace only if all tasks in it are theirs.
    """

    def __init__(
        self,
        directory: Directory,
        operations: WorkflowOperations,
        access: PageAccess,
        streams: PageStreams,
    ) -> None:
        """`operations` check the permissions for a task."""
        self._directory = directory
        self._operations = operations
        self._access = access
        self._streams = streams
        # The agents of tasks, by account and task. A task keeps its agent.
        self._agents: OrderedDict[tuple[str, str], str] = OrderedDict()

    def paths(self) -> Paths:
        """Return the handlers of the paths."""
        return {
            f"{API_PATH}/traces": {"GET": self._list},
            f"{API_PATH}/traces:watch": {"GET": self._watch},
            f"{API_PATH}/traces/{{trace_id:segment}}": {"GET": self._get},
            f"{API_PATH}/tasks/{{task_id:segment}}/trace": {"GET": self._get_of_task},
        }

    async def _list(self, caller: Caller, params: Json, _path: Mapping[str, str]) -> Json:
        size, token = read_page_size(params), read_text(params, "pageToken")
        client = self._directory.trace_stub()
        found: list[trace_service_pb2.TraceSummary] = []
        for _ in range(_MAX_PAGES):
            page = await client.ListTraces(
                trace_service_pb2.ListTracesRequest(page_size=size, page_token=token)
            )
            found = await self._filter(caller, page.traces)
            token = page.next_page_token
            if found or not token:
                break
        return {"traces": [message_to_dict(trace) for trace in found], "nextPageToken": token}

    async def _watch(
        self, caller: Caller, _params: Json, _path: Mapping[str, str]
    ) -> EventStreamResponse[PageEvent]:
        return self._streams.respond(caller, self._changes(caller))

    async def _changes(self, caller: Caller) -> AsyncGenerator[PageEvent, None]:
        """Yield traces as their spans arrive, after `ready`: the watch has begun."""
        call = self._directory.trace_stub().WatchTraces(trace_service_pb2.WatchTracesRequest())
        async with aclosing(read_responses(call)) as responses:
            await anext(responses)
            yield PageEvent("ready", {})
            async for response in responses:
                for trace in await self._filter(caller, response.traces):
                    yield PageEvent("trace", message_to_dict(trace))

    async def _get(self, caller: Caller, _params: Json, path: Mapping[str, str]) -> Json:
        trace_id = path["trace_id"]
        return await self._render(caller, trace_service_pb2.GetTraceRequest(trace_id=trace_id))

    async def _get_of_task(self, caller: Caller, _params: Json, path: Mapping[str, str]) -> Json:
        task_id = path["task_id"]
        await self._operations.get_run(caller, task_id)
        return await self._render(caller, trace_service_pb2.GetTraceRequest(task_id=task_id))

    async def _render(self, caller: Caller, request: trace_service_pb2.GetTraceRequest) -> Json:
        """Return the traces that a caller may see, their spans, and whether some are missing.

        TraceNotFoundError: there are none, or the caller may not see any of them.
        """
        response = await self._directory.trace_stub().GetTrace(request)
        spans: Sequence[trace_service_pb2.Span] = response.spans
        if not self._access.is_operator(caller):
            tasks: dict[str, set[str]] = defaultdict(set)
            for span in spans:
                tasks[span.trace_id].update(_find_tasks(span))
            seen = [trace for trace, ids in tasks.items() if await self._owns(caller, ids)]
            spans = [span for span in spans if span.trace_id in seen]
            if not spans:
                raise TraceNotFoundError(request.trace_id or request.task_id)
        by_trace: dict[str, list[trace_service_pb2.Span]] = defaultdict(list)
        for span in spans:
            by_trace[span.trace_id].append(span)
        reports = [TraceReport.build(TraceTree.build(each)) for each in by_trace.values()]
        return {
            "traces": [_render_totals(report) for report in reports],
            "spans": [_render_span(row) for report in reports for row in report.rows],
            "isIncomplete": _lack_spans(spans),
        }

    async def _filter(
        self, caller: Caller, traces: Sequence[trace_service_pb2.TraceSummary]
    ) -> list[trace_service_pb2.TraceSummary]:
        """Return the traces that a caller may see."""
        if self._access.is_operator(caller):
            return list(traces)
        return [trace for trace in traces if await self._owns(caller, trace.task_ids)]

    async def _owns(self, caller: Caller, task_ids: Iterable[str]) -> bool:
        """Return whether tasks of this mesh are all of a caller's account, and there are some.

        Ids of other meshes don't count.
        """
        known = [task for task in set(task_ids) if self._directory.knows_task_host(task)]
        for task_id in known:
            agent = await self._find_agent(caller, task_id)
            if not agent or not may_use(caller, agent, _GET_TASK):
                return False
        return bool(known)

    async def _find_agent(self, caller: Caller, task_id: str) -> str:
        """Return the agent of a task of the caller's account, or an empty text if there is none."""
        key = (caller.account, task_id)
        agent = self._agents.get(key)
        if agent is None:
            try:
                found = await fetch_task(self._directory, task_id, account=caller.account)
            except TaskNotFoundError:
                return ""
            agent = self._agents[key] = found.agent
            if len(self._agents) > _MAX_KNOWN_TASKS:
                self._agents.popitem(last=False)
        return agent


def _render_totals(report: TraceReport) -> Json:
    return {
        "traceId": report.trace_id,
        "durationMs": report.duration_ns / 1e6,
        "services": list(report.services),
        "errors": report.errors,
        "modelCalls": report.model_calls,
        "inputTokens": report.input_tokens,
        "outputTokens": report.output_tokens,
        "costMicros": report.cost_micros,
    }


def _render_span(row: SpanFacts) -> Json:
    """Return a span as the row that is shown; times in `critical` count from the span's start."""
    span = row.node.span
    start_ns = span.start_time.ToNanoseconds()
    return {
        **message_to_dict(span),
        "depth": row.depth,
        "isOrphan": row.node.is_orphan,
        "selfMs": row.timing.self_ns / 1e6,
        "isCritical": row.timing.is_critical,
        "critical": [
            {"fromMs": (begin - start_ns) / 1e6, "toMs": (end - start_ns) / 1e6}
            for begin, end in row.timing.critical
        ],
        "inputTokens": row.input_tokens,
        "outputTokens": row.output_tokens,
        "costMicros": row.cost_micros,
    }


def _find_tasks(span: trace_service_pb2.Span) -> Iterable[str]:
    return (text for key in _TASK_KEYS if (text := json_values.read_text(span.attributes, key)))


def _lack_spans(spans: Sequence[trace_service_pb2.Span]) -> bool:
    """Return whether spans of these traces were lost with a process, or dropped by the store."""
    if any(has_member(span.attributes, telemetry.LOST) for span in spans):
        return True
    counts = Counter(span.trace_id for span in spans)
    return any(count >= telemetry.MAX_SPANS_PER_TRACE for count in counts.values())
