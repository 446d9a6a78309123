"""Edges of the mesh: the calls of the last minute, from the spans that arrive at the store."""

import math
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from opentelemetry.proto.trace.v1 import trace_pb2

from trunkline.core.task_states import TaskState
from trunkline.errors import AgentNotFoundError
from trunkline.observe import telemetry
from trunkline.observe.traces.spans import SpanRecord
from trunkline.v1 import trace_service_pb2

CLIENT: Final = "client"
"""The node of all callers outside the mesh."""
ROOM_PREFIX: Final = "room:"
"""Before the name of a room, as in addresses of messages: an agent may have the same name."""
WINDOW_S: Final = 60

_BRIDGE: Final = "bridge"
# Calls of further edges are not counted, so that a caller that invents names uses up no memory.
_MAX_EDGES: Final = 2000
# Durations are counted by steps of a tenth.
_STEP: Final = math.log(1.1)
# By the names of A2A's versions.
_SENDING: Final = frozenset(
    {
        "SendMessage",
        "SendStreamingMessage",
        "message/send",
        "message/stream",
        "tasks/send",
        "tasks/sendSubscribe",
    }
)
# Over JSON-RPC, HTTP+JSON and gRPC: there is no such agent, or no such task of it.
_NOT_FOUND: Final = {
    telemetry.ERROR_TYPE: AgentNotFoundError.reason,
    telemetry.HTTP_RESPONSE_STATUS_CODE: "404",
    telemetry.RPC_STATUS_CODE: AgentNotFoundError.code.value,
}
_MESSAGING: Final = frozenset(
    {trace_pb2.Span.SPAN_KIND_PRODUCER, trace_pb2.Span.SPAN_KIND_CONSUMER}
)
_INVOKING: Final = frozenset({telemetry.INVOKE_AGENT, telemetry.INVOKE_WORKFLOW})

_Kind: TypeAlias = trace_service_pb2.EdgeKind.ValueType


class EdgeKey(NamedTuple):
    """An edge: a caller, its callee, and the kind of the calls."""

    source: str
    target: str
    kind: _Kind


class EdgeCall(NamedTuple):
    """A call on an edge."""

    edge: EdgeKey
    is_error: bool


@dataclass(slots=True)
class _Second:
    """The calls of one edge that arrived in one second."""

    at_s: int
    count: int = 0
    errors: int = 0
    steps: Counter[int] = field(default_factory=Counter)
    """The numbers of calls by the step of their duration."""


class EdgeWindow:
    """Counts the calls of each edge over a rolling window. Not thread-safe.

    Its memory depends on the number of edges and not on the number of calls, so percentiles are
    exact to a tenth.
    """

    def __init__(self, window_s: int = WINDOW_S, *, max_edges: int = _MAX_EDGES) -> None:
        self._window_s = window_s
        self._max_edges = max_edges
        self._edges: dict[EdgeKey, deque[_Second]] = {}

    def add(self, records: Iterable[SpanRecord], *, now_s: float) -> None:
        """Count the calls among new spans. `now_s` is the time of their arrival."""
        for record in records:
            call = find_call(record)
            if call is not None:
                duration_ms = max(0, record.end_ns - record.start_ns) / 1e6
                self._count(call.edge, int(now_s), duration_ms, is_error=call.is_error)

    def list_edges(self, *, now_s: float) -> list[trace_service_pb2.Edge]:
        """Return the edges with calls in the window, sorted by their nodes."""
        for key in list(self._edges):
            self._expire(key, int(now_s))
        return [self._summarise(key) for key in sorted(self._edges)]

    def _count(self, key: EdgeKey, at_s: int, duration_ms: float, *, is_error: bool) -> None:
        seconds = self._edges.get(key)
        if seconds is None:
            if len(self._edges) >= self._max_edges:
                self.list_edges(now_s=at_s)
                if len(self._edges) >= self._max_edges:
                    return
            seconds = self._edges[key] = deque()
        if not seconds or seconds[-1].at_s < at_s:
            seconds.append(_Second(at_s))
        latest = seconds[-1]
        latest.count += 1
        latest.errors += is_error
        latest.steps[_to_step(duration_ms)] += 1

    def _expire(self, key: EdgeKey, now_s: int) -> None:
        seconds = self._edges[key]
        while seconds and seconds[0].at_s <= now_s - self._window_s:
            seconds.popleft()
        if not seconds:
            del self._edges[key]

    def _summarise(self, key: EdgeKey) -> trace_service_pb2.Edge:
        seconds = self._edges[key]
        count = sum(second.count for second in seconds)
        steps: Counter[int] = Counter()
        for second in seconds:
            steps.update(second.steps)
        return trace_service_pb2.Edge(
            source=key.source,
            target=key.target,
            kind=key.kind,
            count=count,
            error_count=sum(second.errors for second in seconds),
            rate_per_s=count / self._window_s,
            p50_ms=_percentile(steps, count * 0.5),
            p95_ms=_percentile(steps, count * 0.95),
        )


def find_call(record: SpanRecord) -> EdgeCall | None:
    """Return the call that a span stands for, or None if it stands for no call.

    Each call has one such span: the caller's span if the caller is on the mesh, or else the
    bridge's span.
    A request of A2A succeeds also if its task fails. Here such a call has an error, as a call from
    agent to agent does.
    """
    edge = _find_edge(record)
    if edge is None:
        return None
    is_failed = record.find_text(telemetry.TASK_STATE) == TaskState.FAILED
    return EdgeCall(edge, record.is_error or is_failed)


def _find_edge(record: SpanRecord) -> EdgeKey | None:
    kind = record.span.kind
    if kind == trace_pb2.Span.SPAN_KIND_SERVER:
        return _find_outside_call(record)
    if kind in _MESSAGING:
        return _find_message(record)
    operation = record.find_text(telemetry.GEN_AI_OPERATION_NAME)
    if operation == telemetry.EXECUTE_TOOL:
        target = record.find_text(telemetry.TOOL_SERVER)
        return _make_key(record.service, target, trace_service_pb2.EDGE_KIND_TOOL)
    if kind != trace_pb2.Span.SPAN_KIND_CLIENT:
        return None
    if operation == telemetry.CHAT:
        target = record.find_text(telemetry.GEN_AI_REQUEST_MODEL)
        return _make_key(record.service, target, trace_service_pb2.EDGE_KIND_MODEL)
    if operation in _INVOKING:
        target = record.find_text(telemetry.GEN_AI_AGENT_NAME)
        return _make_key(record.service, target, trace_service_pb2.EDGE_KIND_CALL)
    return None


def _find_message(record: SpanRecord) -> EdgeKey | None:
    """Return the edge of a message; of one to a room, that to the room or from it to a member."""
    kind = record.span.kind
    sender = record.find_text(telemetry.MESSAGE_SENDER)
    target = record.find_text(telemetry.MESSAGING_DESTINATION_NAME)
    room = record.find_text(telemetry.MESSAGE_ROOM)
    if room and kind == trace_pb2.Span.SPAN_KIND_CONSUMER:
        sender = ROOM_PREFIX + room
    elif room:
        target = ROOM_PREFIX + room
    elif kind == trace_pb2.Span.SPAN_KIND_PRODUCER:
        # The delivery is the edge.
        return None
    return _make_key(sender, target, trace_service_pb2.EDGE_KIND_MESSAGE)


def _find_outside_call(record: SpanRecord) -> EdgeKey | None:
    is_sending = record.find_text(telemetry.A2A_METHOD_NAME) in _SENDING
    if record.service != _BRIDGE or not is_sending:
        return None
    if any(record.find_text(key) == value for key, value in _NOT_FOUND.items()):
        # Callers may invent any number of agents.
        return None
    target = record.find_text(telemetry.GEN_AI_AGENT_NAME)
    return _make_key(CLIENT, target, trace_service_pb2.EDGE_KIND_CALL)


def _make_key(source: str, target: str, kind: _Kind) -> EdgeKey | None:
    return EdgeKey(source, target, kind) if source and target else None


def _to_step(duration_ms: float) -> int:
    return round(math.log(max(duration_ms, 0.001)) / _STEP)


def _percentile(steps: Counter[int], rank: float) -> float:
    """Return the duration in milliseconds that `rank` calls did not exceed, to a tenth."""
    seen = 0
    for step in sorted(steps):
        seen += steps[step]
        if seen >= rank:
            return float(f"{math.exp(step * _STEP):.3g}")
    return 0.0
