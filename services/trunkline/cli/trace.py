"""`trunkline trace`: prints a trace as a tree, or lists the latest traces."""

import asyncio
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from google.protobuf import json_format, timestamp_pb2

from trunkline import telemetry
from trunkline.cli.exits import ExitCode
from trunkline.cli.mesh_view import open_mesh_view
from trunkline.cli.terminal import RED, paint, print_json, print_table
from trunkline.client import TraceClient
from trunkline.errors import TraceNotFoundError
from trunkline.traces.tree import SpanNode, TraceTree
from trunkline.v1 import trace_service_pb2

# Spans arrive in batches. Some may arrive this long after the work.
_ARRIVAL_S = 1.0
_WAIT_LIMIT_S = 3.0
_RETRY_S = 0.2
_LISTED = 20
_TRACE_ID_DIGITS = 32


async def show_trace(trace_or_task_id: str, mesh: str | None, *, as_json: bool) -> ExitCode:
    """Print the tree of a trace. Waits briefly for late spans.

    Raises:
        TraceNotFoundError: no such trace, and no trace of a task with this id.
    """
    async with open_mesh_view(mesh) as view:
        spans = await fetch_trace(view.trace_client(), trace_or_task_id)
    tree = TraceTree.build(spans)
    if as_json:
        print_json([_as_json(depth, node) for depth, node in tree.walk()])
    else:
        print("\n".join(render_trace(tree)))
    return ExitCode.OK


async def list_traces(mesh: str | None, *, as_json: bool) -> ExitCode:
    """Print the latest traces."""
    async with open_mesh_view(mesh) as view:
        listing = await view.trace_client().list_traces(page_size=_LISTED)
    if as_json:
        rows = [
            json_format.MessageToDict(trace, preserving_proto_field_name=True)
            for trace in listing.traces
        ]
        print_json(rows)
        return ExitCode.OK
    table = [
        (
            trace.trace_id,
            trace.start_time.ToJsonString(),
            f"{_ms(trace.end_time) - _ms(trace.start_time):.0f} ms",
            str(trace.span_count),
            str(trace.error_count),
            f"{trace.root_service}: {trace.root_name}",
        )
        for trace in listing.traces
    ]
    print_table(("TRACE", "START", "TOOK", "SPANS", "ERRORS", "ROOT"), table)
    return ExitCode.OK


async def fetch_trace(client: TraceClient, trace_or_task_id: str) -> list[trace_service_pb2.Span]:
    """Return the spans of a trace or of a task's trace. Waits for late spans.

    Raises:
        TraceNotFoundError: no span arrived.
    """
    deadline = time.monotonic() + _WAIT_LIMIT_S
    is_trace_id = len(trace_or_task_id) == _TRACE_ID_DIGITS and "-" not in trace_or_task_id
    name = "trace_id" if is_trace_id else "task_id"
    while True:
        try:
            spans = await client.get_trace(**{name: trace_or_task_id})
        except TraceNotFoundError:
            if time.monotonic() > deadline:
                raise
        else:
            if _has_arrived(spans) or time.monotonic() > deadline:
                return spans
        # The store does not know when a trace is complete. Waiting makes it more likely.
        await asyncio.sleep(_RETRY_S)


def _has_arrived(spans: Sequence[trace_service_pb2.Span]) -> bool:
    ended = max(span.end_time.ToDatetime(UTC) for span in spans)
    is_old = (datetime.now(UTC) - ended).total_seconds() > _ARRIVAL_S
    return is_old and TraceTree.build(spans).is_complete


def render_trace(tree: TraceTree) -> Iterator[str]:
    """Yield a headline, and a line for each span: start, duration, service, name, error."""
    nodes = list(tree.walk())
    spans = [node.span for _, node in nodes]
    start = min(_ms(span.start_time) for span in spans)
    took = max(_ms(span.end_time) for span in spans) - start
    services = len({span.service for span in spans})
    errors = sum(span.is_error for span in spans)
    yield (
        f"trace {spans[0].trace_id}: {len(spans)} spans of {services} services "
        f"in {took:.1f} ms, {errors} failed"
    )
    yield f"{'start':>9} {'took ms':>9}"
    for depth, node in nodes:
        span = node.span
        offset, duration = _ms(span.start_time) - start, _ms(span.end_time) - _ms(span.start_time)
        line = f"{offset:>+9.1f} {duration:>9.1f}  {'  ' * depth}{span.service}  {span.name}"
        yield line + _http_details(span) + _problem_text(node)


def _http_details(span: trace_service_pb2.Span) -> str:
    """Render the server, the status and the attempt of a span for a plain HTTP call."""
    attributes = span.attributes.fields
    if (
        telemetry.HTTP_REQUEST_METHOD not in attributes
        or telemetry.SERVER_ADDRESS not in attributes
    ):
        return ""
    details = f"  {attributes[telemetry.SERVER_ADDRESS].string_value}"
    if telemetry.HTTP_RESPONSE_STATUS_CODE in attributes and not span.is_error:
        details += f" {attributes[telemetry.HTTP_RESPONSE_STATUS_CODE].number_value:.0f}"
    if telemetry.HTTP_REQUEST_RESEND_COUNT in attributes:
        details += (
            f", attempt {attributes[telemetry.HTTP_REQUEST_RESEND_COUNT].number_value + 1:.0f}"
        )
    return details


def _problem_text(node: SpanNode) -> str:
    remark = "  (its parent is missing)" if node.is_orphan else ""
    if node.span.is_error:
        kind = node.span.attributes.fields[telemetry.ERROR_TYPE].string_value or "failed"
        remark += paint(f"  ! {kind}", RED, sys.stdout)
    return remark


def _as_json(depth: int, node: SpanNode) -> dict[str, object]:
    span = json_format.MessageToDict(node.span, preserving_proto_field_name=True)
    return {"depth": depth, **span}


def _ms(timestamp: timestamp_pb2.Timestamp) -> float:
    return timestamp.ToNanoseconds() / 1e6
