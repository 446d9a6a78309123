"""Describes a task: its question, state, route, calls of models and tools, and artifacts."""

import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from trunkline.cli.part_text import render_part
from trunkline.cli.terminal import paint_state, print_json, print_wrapped
from trunkline.cli.times import describe_time, render_duration, render_percent, time_cell
from trunkline.core.json_values import message_to_dict, read_number, read_text
from trunkline.core.task_states import (
    INTERRUPTED,
    TERMINAL,
    TaskOutcome,
    find_outcome,
    is_paused,
    state_name,
)
from trunkline.errors import TraceNotFoundError, UnsupportedOperationError
from trunkline.mesh.client import Directory
from trunkline.mesh.client.trace_tree import TraceTree
from trunkline.observe import telemetry
from trunkline.tasks.approvals import is_approval_answer, render_decision
from trunkline.v1 import (
    artifact_pb2,
    event_pb2,
    message_pb2,
    part_pb2,
    snapshot_pb2,
    trace_service_pb2,
)

# The limit on the characters of a text that is part of a line.
_EXCERPT_LENGTH = 160
_LABEL_WIDTH = 10


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


def print_task(
    snapshot: snapshot_pb2.TaskSnapshot, calls: Iterable[ModelCalls], *, host: str, as_json: bool
) -> None:
    """Print a task with the calls of models in it. `host` is the address of its host."""
    if as_json:
        document = message_to_dict(snapshot, with_proto_names=True)
        document["trace_id"] = _trace_id(snapshot)
        document["host"] = host
        document["model_calls"] = [call.to_json() for call in calls]
        print_json(document)
    else:
        for line in describe(snapshot, calls, host=host):
            print_wrapped(line, indent=_LABEL_WIDTH)


async def fetch_model_calls(directory: Directory, task_id: str) -> list[ModelCalls]:
    """Return what the model was called for, by the task's trace; nothing without it."""
    request = trace_service_pb2.GetTraceRequest(task_id=task_id)
    try:
        response = await directory.trace_stub().GetTrace(request)
        return count_model_calls(response.spans, task_id)
    except (TraceNotFoundError, UnsupportedOperationError):
        return []


def describe(
    snapshot: snapshot_pb2.TaskSnapshot, calls: Iterable[ModelCalls] = (), *, host: str = ""
) -> Iterator[str]:
    """Yield the lines that describe a task: a label in `_LABEL_WIDTH` columns, then its value."""
    yield from _identity(snapshot)
    if host:
        yield f"host      {host}"
    if snapshot.HasField("parent"):
        yield f"parent    {snapshot.parent.task_id} ({snapshot.parent.agent})"
    for model_calls in calls:
        yield f"model     {model_calls}"
    yield from _plans(snapshot.plans)
    yield from _routes(snapshot.routes)
    for child in snapshot.children:
        started = child.started
        state = state_name(child.finished.state) if child.HasField("finished") else "working"
        yield f"child     {started.task_id} {started.agent} {paint_state(state, sys.stdout)}"
    for call in snapshot.tool_calls:
        yield f"tool      {_tool_call(call)}"
    for approval in snapshot.approvals:
        yield f"approval  {_approval(approval)}"
    for artifact, info in _unrepeated_artifacts(snapshot):
        yield f"artifact  {_artifact(artifact, info)}"


def _unrepeated_artifacts(
    snapshot: snapshot_pb2.TaskSnapshot,
) -> Iterator[tuple[artifact_pb2.Artifact, snapshot_pb2.ArtifactInfo]]:
    """Yield the artifacts, except artifacts whose text is in a combined answer as well."""
    synthesis = event_pb2.ARTIFACT_KIND_SYNTHESIS
    is_combined = {
        info.turn
        for info in snapshot.artifacts
        if info.kind == synthesis and not info.HasField("origin")
    }
    for artifact, info in zip(snapshot.task.artifacts, snapshot.artifacts, strict=True):
        is_of_child = info.HasField("origin")
        if info.turn in is_combined:
            if not is_of_child and info.kind != event_pb2.ARTIFACT_KIND_DRAFT:
                yield artifact, info
        elif not (is_of_child and info.kind == synthesis):
            yield artifact, info


def _identity(snapshot: snapshot_pb2.TaskSnapshot) -> Iterator[str]:
    """Yield the lines for ids, question, state and times."""
    status = snapshot.task.status
    text = excerpt_parts(status.message.parts)
    state = paint_state(state_name(status.state), sys.stdout)
    yield f"task      {snapshot.task.id}"
    for message in snapshot.task.history:
        # The lines of the approvals say how they were answered.
        if message.role == message_pb2.ROLE_USER and not _answers_approvals(message):
            yield f"question  {excerpt_parts(message.parts)}"
    outcome = find_outcome(status.state, snapshot.task.metadata)
    partial = " (partial: a part of the answer is missing)"
    state += partial if outcome is TaskOutcome.PARTIAL else ""
    if is_paused(snapshot.task.metadata) and status.state not in TERMINAL:
        state += f", paused (`trunkline workflow resume {snapshot.task.id}` goes on)"
    yield f"state     {state}" + (f": {text}" if text else "")
    yield f"agent     {snapshot.agent}, turn {snapshot.turn}"
    yield f"context   {snapshot.task.context_id}"
    yield f"created   {describe_time(snapshot.create_time)}"
    if status.state in TERMINAL | INTERRUPTED:
        label = "ended" if status.state in TERMINAL else "waits"
        took_ns = status.timestamp.ToNanoseconds() - snapshot.create_time.ToNanoseconds()
        took = render_duration(max(took_ns, 0) / 1e9)
        yield f"{label:<{_LABEL_WIDTH}}{time_cell(status.timestamp)} (after {took})"
    if trace_id := _trace_id(snapshot):
        yield f"trace     {trace_id}"


def _plans(plans: Iterable[snapshot_pb2.PlanInfo]) -> Iterator[str]:
    for plan in plans:
        numbers = {step.step_id: number for number, step in enumerate(plan.steps, start=1)}
        for step in plan.steps:
            earlier = ", ".join(str(numbers.get(step_id, step_id)) for step_id in step.after)
            order = f" (after {earlier})" if earlier else ""
            agent = step.agent or "no agent"
            yield f"plan      {numbers[step.step_id]}. {agent}: {excerpt(step.text)}{order}"


def _routes(routes: Iterable[event_pb2.RouteDecided]) -> Iterator[str]:
    for route in routes:
        reasons = "; ".join(route.reasons)
        agent = route.agent or "no agent"
        confidence = render_percent(route.confidence)
        yield f"route     {agent}, confidence {confidence}: {reasons or 'no reason'}"
        others = [score for score in route.scores if score.agent != route.agent and score.score]
        if others:
            scores = (f"{score.agent} {render_percent(score.confidence)}" for score in others)
            yield f"          also considered: {', '.join(scores)}"


def _tool_call(call: snapshot_pb2.ToolCallInfo) -> str:
    if not call.HasField("finished"):
        return f"{call.started.tool} running"
    outcome = "failed" if call.finished.is_error else "returned"
    return f"{call.started.tool} {outcome}: {excerpt(call.finished.summary)}".rstrip(": ")


def _approval(approval: snapshot_pb2.ApprovalInfo) -> str:
    requested, answered = approval.requested, approval.answered
    state = render_decision(answered.decision) if approval.HasField("answered") else "waiting"
    reason = f" ({excerpt(answered.reason)})" if answered.reason else ""
    return f"{requested.approval_id} {requested.tool} {state}{reason}"


def _artifact(artifact: artifact_pb2.Artifact, info: snapshot_pb2.ArtifactInfo) -> str:
    name = name_artifact(artifact.name, info.kind, artifact.artifact_id)
    # Only an artifact of another task has an origin.
    writer = f" of {info.origin.agent}" if info.origin.agent else ""
    return f"{name}{writer}: {excerpt_parts(artifact.parts)}"


def name_artifact(name: str, kind: event_pb2.ArtifactKind.ValueType, artifact_id: str) -> str:
    """Return what to call an artifact, as the page does: its name, else its kind, else its id."""
    if name or kind == event_pb2.ARTIFACT_KIND_UNSPECIFIED:
        return name or artifact_id
    return event_pb2.ArtifactKind.Name(kind).removeprefix("ARTIFACT_KIND_").lower()


def _answers_approvals(message: message_pb2.Message) -> bool:
    """Return whether a message is nothing but answers to approvals."""
    return bool(message.parts) and all(map(is_approval_answer, message.parts))


def excerpt_parts(parts: Iterable[part_pb2.Part]) -> str:
    """Return the beginning of a content's text on one line. Files are named."""
    text = ""
    for part in parts:
        text += part.text if part.HasField("text") else f" {render_part(part)} "
    return excerpt(text)


def excerpt(text: str) -> str:
    """Return the beginning of a text on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _EXCERPT_LENGTH else f"{line[: _EXCERPT_LENGTH - 1]}…"


def _trace_id(snapshot: snapshot_pb2.TaskSnapshot) -> str:
    """Return the id of the trace in which the task was created, or ""."""
    return "".join(snapshot.traceparent.split("-")[1:2])


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
