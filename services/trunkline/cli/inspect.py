"""`trunkline agents`, `tasks`, `task` and `cancel`: shows agents and tasks."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format

from trunkline.cli.exits import ExitCode
from trunkline.cli.mesh_view import open_mesh_view, query_hosts
from trunkline.cli.terminal import print_json, print_table, state_name
from trunkline.client import HostClient
from trunkline.tasks.approvals import render_decision
from trunkline.v1 import (
    artifact_pb2,
    event_pb2,
    part_pb2,
    registry_service_pb2,
    snapshot_pb2,
    task_pb2,
    task_service_pb2,
)

_PAGE_SIZE = 100
# The limit on the characters of a text that is part of a line.
_EXCERPT_LENGTH = 160


async def list_agents(mesh: str | None, *, as_json: bool) -> ExitCode:
    """Print the agents on the mesh with their hosts and descriptions."""
    async with open_mesh_view(mesh) as view:
        agents = [_agent_json(host, agent.card) for host in view.hosts for agent in host.agents]
    agents.sort(key=lambda agent: agent["name"])
    if as_json:
        print_json(agents)
    else:
        rows = [(agent["name"], agent["address"], agent["description"]) for agent in agents]
        print_table(("AGENT", "HOST", "DESCRIPTION"), rows)
    return ExitCode.OK


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """Selects the tasks of an account. An empty agent or context matches all."""

    account: str
    agent: str
    context_id: str
    limit: int


async def list_tasks(mesh: str | None, query: TaskQuery, *, as_json: bool) -> ExitCode:
    """Print the latest tasks of all hosts, newest status first.

    An error of a host is printed to stderr and sets the exit code.
    """
    request = task_service_pb2.ListTasksRequest(
        account=query.account, agent=query.agent, context_id=query.context_id
    )
    async with open_mesh_view(mesh) as view:
        tasks, code = await query_hosts(
            view, lambda host: _fetch_tasks(host, request, limit=query.limit)
        )
    tasks.sort(key=lambda task: task.status.timestamp.ToNanoseconds(), reverse=True)
    latest = [_task_json(task) for task in tasks[: query.limit]]
    if as_json:
        print_json(latest)
    else:
        rows = [
            tuple(
                task[key] for key in ("task_id", "agent", "state", "status_time", "parent_task_id")
            )
            for task in latest
        ]
        print_table(("TASK", "AGENT", "STATE", "SINCE", "PARENT"), rows)
    return code


async def _fetch_tasks(
    host: HostClient,
    query: task_service_pb2.ListTasksRequest,
    *,
    limit: int,
) -> list[snapshot_pb2.TaskSummary]:
    tasks: list[snapshot_pb2.TaskSummary] = []
    request = task_service_pb2.ListTasksRequest()
    request.CopyFrom(query)
    while len(tasks) < limit:
        request.page_size = min(_PAGE_SIZE, limit - len(tasks))
        page = await host.list_tasks(request)
        tasks += page.tasks
        request.page_token = page.next_page_token
        if not page.next_page_token:
            break
    return tasks


def _agent_json(host: registry_service_pb2.Host, card: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "name": card.name,
        "description": card.description,
        "version": card.version,
        "skills": [skill.name for skill in card.skills],
        "tags": sorted({tag for skill in card.skills for tag in skill.tags}),
        "host": host.host_id,
        "address": host.address,
    }


def _task_json(task: snapshot_pb2.TaskSummary) -> dict[str, str]:
    return {
        "task_id": task.task_id,
        "context_id": task.context_id,
        "agent": task.agent,
        "state": _state_name(task.status.state),
        "status_time": task.status.timestamp.ToJsonString(),
        "create_time": task.create_time.ToJsonString(),
        "parent_task_id": task.parent_task_id,
    }


async def show_task(task_id: str, mesh: str | None, *, account: str, as_json: bool) -> ExitCode:
    """Print a task of an account: its state, route, calls and artifacts.

    Raises:
        TaskNotFoundError: no running host has it, or it is another account's.
    """
    async with open_mesh_view(mesh) as view:
        snapshot = await view.task_host_client(task_id).get_task(task_id, account=account)
    if as_json:
        print_json(json_format.MessageToDict(snapshot, preserving_proto_field_name=True))
    else:
        print("\n".join(describe(snapshot)))
    return ExitCode.OK


async def cancel_task(task_id: str, mesh: str | None, *, account: str, as_json: bool) -> ExitCode:
    """Cancel a task of an account with its children; print its final state.

    Raises:
        TaskNotFoundError: no running host has it, or it is another account's.
        TaskNotCancelableError: it has ended.
    """
    async with open_mesh_view(mesh) as view:
        client = view.task_host_client(task_id)
        snapshot = await client.cancel_task(task_id, account=account, reason="by the command line")
    state = _state_name(snapshot.task.status.state)
    if as_json:
        print_json({"task_id": task_id, "state": state})
    else:
        print(f"{task_id} {state}")
    return ExitCode.OK


def describe(snapshot: snapshot_pb2.TaskSnapshot) -> Iterator[str]:
    """Yield the lines that describe a task: a label in ten columns, then its value."""
    status = snapshot.task.status
    text = _text(status.message.parts)
    yield f"task      {snapshot.task.id}"
    yield f"state     {_state_name(status.state)}" + (f": {text}" if text else "")
    yield f"agent     {snapshot.agent}, turn {snapshot.turn}"
    yield f"context   {snapshot.task.context_id}"
    yield f"created   {snapshot.create_time.ToJsonString()}"
    if snapshot.HasField("parent"):
        yield f"parent    {snapshot.parent.task_id} ({snapshot.parent.agent})"
    yield from _plans(snapshot.plans)
    yield from _routes(snapshot.routes)
    for child in snapshot.children:
        started = child.started
        state = _state_name(child.finished.state) if child.HasField("finished") else "working"
        yield f"child     {started.task_id} {started.agent} {state}"
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
            earlier = ", ".join(str(numbers.get(step_id, step_id)) for step_id in step.after)
            order = f" (after {earlier})" if earlier else ""
            agent = step.agent or "no agent"
            yield f"plan      {numbers[step.step_id]}. {agent}: {_excerpt(step.text)}{order}"


def _routes(routes: Iterable[event_pb2.RouteDecided]) -> Iterator[str]:
    for route in routes:
        reasons = "; ".join(route.reasons)
        agent = route.agent or "no agent"
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
    requested, answered = approval.requested, approval.answered
    state = render_decision(answered.decision) if approval.HasField("answered") else "waits"
    reason = f" ({_excerpt(answered.reason)})" if answered.reason else ""
    return f"{requested.approval_id} {requested.tool} {state}{reason}"


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
    return line if len(line) <= _EXCERPT_LENGTH else f"{line[: _EXCERPT_LENGTH - 1]}…"


def _state_name(state: int) -> str:
    return state_name(task_pb2.TaskState.Name(task_pb2.TaskState.ValueType(state)))
