"""Reads traces of a mesh, and renders them as trees, or as a table of the latest ones."""

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from shutil import get_terminal_size
from typing import Final

from google.protobuf import timestamp_pb2

from trunkline.cli.table_layout import cut_text
from trunkline.cli.terminal import RED, paint, print_list
from trunkline.cli.times import render_cost, render_latency, time_cell
from trunkline.core.json_values import message_to_dict, read_number, read_text, struct_json
from trunkline.core.printable import remove_controls
from trunkline.errors import TraceNotFoundError
from trunkline.mesh.client.trace_report import SpanFacts, TraceReport
from trunkline.mesh.client.trace_tree import SpanNode, TraceTree
from trunkline.observe import telemetry
from trunkline.v1 import trace_service_pb2, trace_service_pb2_grpc

# Spans arrive in batches. A trace whose last span ended this long ago is taken as complete.
_ARRIVAL_S = 1.0
_WAIT_TIMEOUT_S = 3.0
_RETRY_INTERVAL_S = 0.2
_PAGE_SIZE = 20
# Longer reasons are on the page, and in --json.
_PROBLEM_CHARS: Final = 200
# The columns of the table. The page has the same words.
COLUMNS: Final[Mapping[str, Callable[[trace_service_pb2.TraceSummary], object]]] = {
    "TRACE": lambda trace: trace.trace_id,
    "STARTED": lambda trace: time_cell(trace.start_time),
    "DURATION": lambda trace: render_latency(_ms(trace.end_time) - _ms(trace.start_time)),
    "SPANS": lambda trace: trace.span_count,
    "ERRORS": lambda trace: trace.error_count,
    "ROOT": lambda trace: f"{trace.root_service}: {trace.root_name}",
}
_TRACE_ID_DIGITS = 32
_CLIENT_ERROR = 400


def build_trees(spans: Sequence[trace_service_pb2.Span]) -> list[TraceTree]:
    """Return the traces that spans belong to, as trees, in the order of their first spans."""
    by_trace: dict[str, list[trace_service_pb2.Span]] = {}
    for span in spans:
        by_trace.setdefault(span.trace_id, []).append(span)
    return [TraceTree.build(each) for each in by_trace.values()]


async def print_latest_traces(
    stub: "trace_service_pb2_grpc.TraceServiceAsyncStub", *, as_json: bool
) -> None:
    """Print the latest traces."""
    listing = await stub.ListTraces(trace_service_pb2.ListTracesRequest(page_size=_PAGE_SIZE))
    print_list(
        listing.traces,
        COLUMNS,
        lambda trace: message_to_dict(trace, with_proto_names=True),
        as_json=as_json,
        empty="no traces yet; each request makes one",
    )


async def fetch_trace(
    stub: "trace_service_pb2_grpc.TraceServiceAsyncStub", trace_or_task_id: str
) -> list[trace_service_pb2.Span]:
    """Return the spans of a trace or of a task's trace. Waits up to 3 s for late spans.

    Raises:
        TraceNotFoundError: no span arrived.
    """
    deadline = time.monotonic() + _WAIT_TIMEOUT_S
    is_trace_id = len(trace_or_task_id) == _TRACE_ID_DIGITS and "-" not in trace_or_task_id
    request = trace_service_pb2.GetTraceRequest()
    setattr(request, "trace_id" if is_trace_id else "task_id", trace_or_task_id)
    while True:
        try:
            spans = (await stub.GetTrace(request)).spans
        except TraceNotFoundError:
            if time.monotonic() > deadline:
                raise
        else:
            if _looks_complete(spans) or time.monotonic() > deadline:
                return list(spans)
        await asyncio.sleep(_RETRY_INTERVAL_S)


def _looks_complete(spans: Sequence[trace_service_pb2.Span]) -> bool:
    """Return whether more spans are unlikely. The store does not know when a trace is complete."""
    end = max(_end(span).ToDatetime(UTC) for span in spans)
    is_old = (datetime.now(UTC) - end).total_seconds() > _ARRIVAL_S
    return is_old and all(tree.is_complete for tree in build_trees(spans))


def render_trace(tree: TraceTree) -> Iterator[str]:
    """Yield a summary, the column titles, and a line for each span, in the words of the page.

    A star marks the critical path.
    """
    report = TraceReport.build(tree)
    totals = [
        _plural(len(report.rows), "span"),
        _plural(len(report.services), "service"),
        render_latency(report.duration_ns / 1e6),
        _plural(report.errors, "error"),
    ]
    if report.model_calls:
        totals.append(_plural(report.model_calls, "model call"))
    if report.input_tokens or report.output_tokens:
        totals.append(f"{report.input_tokens} + {report.output_tokens} tokens")
    if report.cost_micros:
        totals.append(render_cost(report.cost_micros))
    yield f"trace {report.trace_id}: {', '.join(totals)}"
    yield f"{'start':>9} {'duration':>9}  (*: critical path)"
    for row in report.rows:
        span = row.node.span
        start = f"+{render_latency(row.offset_ns / 1e6)}"
        took = "open" if row.duration_ns is None else render_latency(row.duration_ns / 1e6)
        mark = "*" if row.timing.is_critical else " "
        line = f"{start:>9} {took:>9}{mark} {'  ' * row.depth}{span.service}  {span.name}"
        details = _http_details(span) + _caller_details(span)
        details += _message_details(span) + _model_details(row)
        yield _fit_terminal(line + details, _describe_problem(row.node), span.is_error)


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _model_details(row: SpanFacts) -> str:
    """Render the tokens and the price of a call of a model; "" for other spans."""
    tokens = f"{row.input_tokens} + {row.output_tokens} tokens"
    details = f"  {tokens}" if row.input_tokens or row.output_tokens else ""
    return details + (f", {render_cost(row.cost_micros)}" if row.cost_micros else "")


def _http_details(span: trace_service_pb2.Span) -> str:
    """Render the server, status and attempt of an HTTP client call; "" for other spans."""
    attributes = struct_json(span.attributes)
    if (
        telemetry.HTTP_REQUEST_METHOD not in attributes
        or telemetry.SERVER_ADDRESS not in attributes
    ):
        return ""
    details = f"  {attributes[telemetry.SERVER_ADDRESS]}"
    if telemetry.HTTP_RESPONSE_STATUS_CODE in attributes and not span.is_error:
        details += f" {read_number(span.attributes, telemetry.HTTP_RESPONSE_STATUS_CODE):.0f}"
    if telemetry.HTTP_REQUEST_RESEND_COUNT in attributes:
        details += (
            f", attempt {read_number(span.attributes, telemetry.HTTP_REQUEST_RESEND_COUNT) + 1:.0f}"
        )
    return details


def _caller_details(span: trace_service_pb2.Span) -> str:
    """Render the status of a call that its caller ended or got wrong; "" for other spans."""
    attributes = struct_json(span.attributes)
    if span.is_error:
        return ""
    status = attributes.get(telemetry.RPC_STATUS_CODE)
    if status not in (None, "OK"):
        return f"  {status}"
    # Those of calls to others are shown with the server.
    if telemetry.SERVER_ADDRESS in attributes:
        return ""
    code = read_number(span.attributes, telemetry.HTTP_RESPONSE_STATUS_CODE)
    return f"  {code:.0f}" if code >= _CLIENT_ERROR else ""


def _message_details(span: trace_service_pb2.Span) -> str:
    """Render the type of a message between agents; "" for other spans."""
    message_type = read_text(span.attributes, telemetry.MESSAGE_TYPE)
    return f"  {message_type}" if message_type else ""


def _describe_problem(node: SpanNode) -> str:
    text = "  (its parent is missing)" if node.is_orphan else ""
    if node.span.is_error:
        kind = read_text(node.span.attributes, telemetry.ERROR_TYPE)
        text += (
            f"  ! {remove_controls(node.span.status_message)[:_PROBLEM_CHARS] or kind or 'failed'}"
        )
    return text


def _fit_terminal(line: str, problem: str, is_error: bool) -> str:  # noqa: FBT001
    """Return the line of a span as a terminal shows it: cut to its width before the problem."""
    if sys.stdout.isatty():
        line = cut_text(remove_controls(line), get_terminal_size().columns - len(problem))
    return line + (paint(problem, RED, sys.stdout) if is_error else problem)


def to_fields(tree: TraceTree) -> Iterator[dict[str, object]]:
    """Yield the spans of a trace as JSON, each with its depth and its part of the time."""
    for row in TraceReport.build(tree).rows:
        span = message_to_dict(row.node.span, with_proto_names=True)
        yield {
            "depth": row.depth,
            **span,
            "self_ms": round(row.timing.self_ns / 1e6, 3),
            "is_critical": row.timing.is_critical,
        }


def _end(span: trace_service_pb2.Span) -> timestamp_pb2.Timestamp:
    """Return the end of a span; of an open one its start, the last that is known of it."""
    return span.end_time if span.HasField("end_time") else span.start_time


def _ms(timestamp: timestamp_pb2.Timestamp) -> float:
    return timestamp.ToNanoseconds() / 1e6
