"""Counts the calls of models in a task's trace, by what they were for."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from trunkline import telemetry
from trunkline.cli.times import render_duration
from trunkline.client.trace_tree import TraceTree
from trunkline.json_values import read_number, read_text
from trunkline.v1 import trace_service_pb2


@dataclass(slots=True)
class ModelCalls:
    """The calls of one model for one purpose."""

    purpose: str
    """`answer`, `check`, `plan` or `merge`; "" in traces of earlier versions."""
    model: str
    calls: int = 0
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        counts = "1 call" if self.calls == 1 else f"{self.calls} calls"
        if self.failures:
            counts += f", {self.failures} failed"
        if self.input_tokens or self.output_tokens:
            counts += f", {self.input_tokens} + {self.output_tokens} tokens"
        purpose = self.purpose or "unknown"
        return f"{purpose}: {counts}, {render_duration(self.seconds)} ({self.model})"

    def to_json(self) -> dict[str, Any]:
        """Return the fields as a JSON object."""
        return asdict(self)


def count_model_calls(spans: Iterable[trace_service_pb2.Span], task_id: str) -> list[ModelCalls]:
    """Return the calls of a task and of the tasks that it started, in order of the first call."""
    calls: dict[tuple[str, str], ModelCalls] = {}
    for span in _select_spans(spans, task_id):
        attributes = span.attributes
        if read_text(attributes, telemetry.GEN_AI_OPERATION_NAME) != telemetry.CHAT:
            continue
        purpose = read_text(attributes, telemetry.MODEL_PURPOSE)
        model = read_text(attributes, telemetry.GEN_AI_REQUEST_MODEL)
        entry = calls.setdefault((purpose, model), ModelCalls(purpose, model))
        entry.calls += 1
        entry.failures += span.is_error
        entry.input_tokens += int(read_number(attributes, telemetry.GEN_AI_USAGE_INPUT_TOKENS))
        entry.output_tokens += int(read_number(attributes, telemetry.GEN_AI_USAGE_OUTPUT_TOKENS))
        if span.HasField("end_time"):
            took_ns = span.end_time.ToNanoseconds() - span.start_time.ToNanoseconds()
            entry.seconds += took_ns / 1e9
    return list(calls.values())


def _select_spans(
    spans: Iterable[trace_service_pb2.Span], task_id: str
) -> Iterable[trace_service_pb2.Span]:
    """Yield the spans of the task's turns and all that are below them, by start time."""
    selected: dict[str, trace_service_pb2.Span] = {}
    for _, node in TraceTree.build(spans).walk():
        if read_text(node.span.attributes, telemetry.TASK_ID) == task_id:
            selected |= {inner.span.span_id: inner.span for _, inner in node.walk()}
    return sorted(selected.values(), key=lambda span: span.start_time.ToNanoseconds())
