"""`trunkline task` and `cancel`: one task, from inside."""

from collections.abc import Iterable, Iterator

from google.protobuf import json_format

from trunkline.cli.inside.mesh import open_view
from trunkline.cli.outcome import Exit
from trunkline.cli.terminal import print_json, state_name
from trunkline.tasks.approvals import render_decision
from trunkline.v1 import artifact_pb2, event_pb2, part_pb2, snapshot_pb2, task_pb2

# Of a text, on one line.
_EXCERPT = 160


async def task(task_id: str, mesh: str | None, *, account: str, as_json: bool) -> Exit:
    """Print a task of an account: its state, how it was routed, what it called, what it made.

    Raises:
        TaskNotFoundError: no living host has it.
    """
    async with open_view(mesh) as view:
        snapshot = await view.host_of(task_id).get_task(task_id, account=account)
    if as_json:
        print_json(json_format.MessageToDict(snapshot, preserving_proto_field_name=True))
    else:
        print("\n".join(describe(snapshot)))
    return Exit.OK


async def cancel(task_id: str, mesh: str | None, *, account: str, as_json: bool) -> Exit:
    """Cancel a task of an account and all that it called; print the state it ended in.

    Raises:
        TaskNotFoundError: no living host has it.
        TaskNotCancelableError: it had ended.
    """
    async with open_view(mesh) as view:
        client = view.host_of(task_id)
        snapshot = await client.cancel_task(task_id, account=account, reason="by the command line")
    state = _state(snapshot.task.status.state)
    if as_json:
        print_json({"task_id": task_id, "state": state})
    else:
        print(f"{task_id} {state}")
    return Exit.OK


def describe(snapshot: snapshot_pb2.TaskSnapshot) -> Iterator[str]:
    """Yield the lines that tell about a task."""
    status = snapshot.task.status
    said = _text(status.message.parts)
    yield f"task      {snapshot.task.id}"
    yield f"state     {_state(status.state)}" + (f": {said}" if said else "")
    yield f"agent     {snapshot.agent}, turn {snapshot.turn}"
    yield f"context   {snapshot.task.context_id}"
    yield f"created   {snapshot.create_time.ToJsonString()}"
    if snapshot.HasField("parent"):
        yield f"parent    {snapshot.parent.task_id} ({snapshot.parent.agent})"
    yield from _plans(snapshot.plans)
    yield from _routes(snapshot.routes)
    for child in snapshot.children:
        began = child.started
        state = _state(child.finished.state) if child.HasField("finished") else "working"
        yield f"child     {began.task_id} {began.agent} {state}"
    for call in snapshot.tool_calls:
        yield f"tool      {_tool_call(call)}"
    for approval in snapshot.approvals:
        yield f"approval  {_approval(approval)}"
    for artifact in snapshot.task.artifacts:
        yield f"artifact  {_artifact(artifact)}"


def _plans(plans: Iterable[snapshot_pb2.PlanInfo]) -> Iterator[str]:
    for plan in plans:
        numbers = {step.step_id: number for number, step in enumerate(plan.steps, start=1)}
        for step in plan.steps:
            earlier = ", ".join(str(numbers.get(one, one)) for one in step.after)
            behind = f" (after {earlier})" if earlier else ""
            agent = step.agent or "nobody"
            yield f"plan      {numbers[step.step_id]}. {agent}: {_excerpt(step.text)}{behind}"


def _routes(routes: Iterable[event_pb2.RouteDecided]) -> Iterator[str]:
    for route in routes:
        reasons = "; ".join(route.reasons)
        agent = route.agent or "nobody"
        yield f"route     {agent}, confidence {route.confidence:.2f}: {reasons or 'no reason'}"
        others = [score for score in route.scores if score.agent != route.agent and score.score]
        if others:
            scores = ", ".join(f"{score.agent} {score.confidence:.2f}" for score in others)
            yield f"          also considered: {scores}"


def _tool_call(call: snapshot_pb2.ToolCallInfo) -> str:
    if not call.HasField("finished"):
        return f"{call.started.tool} running"
    outcome = "failed" if call.finished.is_error else "done"
    return f"{call.started.tool} {outcome}: {_excerpt(call.finished.summary)}".rstrip(": ")


def _approval(approval: snapshot_pb2.ApprovalInfo) -> str:
    asked, answered = approval.requested, approval.answered
    state = render_decision(answered.decision) if approval.HasField("answered") else "waits"
    why = f" ({_excerpt(answered.reason)})" if answered.reason else ""
    return f"{asked.approval_id} {asked.tool} {state}{why}"


def _artifact(artifact: artifact_pb2.Artifact) -> str:
    name = artifact.name or artifact.artifact_id
    return f"{name}: {_text(artifact.parts)}"


def _text(parts: Iterable[part_pb2.Part]) -> str:
    text = ""
    for part in parts:
        match part.WhichOneof("content"):
            case "text":
                text += part.text
            case "raw":
                text += f" [file {part.filename or 'unnamed'}, {len(part.raw)} bytes] "
            case "url":
                text += f" [file {part.filename or 'unnamed'} at {part.url}] "
            case _:
                text += " [data] "
    return _excerpt(text)


def _excerpt(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _EXCERPT else f"{line[: _EXCERPT - 1]}…"


def _state(state: int) -> str:
    return state_name(task_pb2.TaskState.Name(task_pb2.TaskState.ValueType(state)))
