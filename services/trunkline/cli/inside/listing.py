"""`trunkline agents`, `tools` and `tasks`: what there is on the mesh."""

from dataclasses import dataclass
from typing import Any

from google.protobuf import json_format

from trunkline.cli.inside.mesh import ask_all, open_view
from trunkline.cli.outcome import Exit
from trunkline.cli.terminal import print_json, print_table, state_name
from trunkline.client import HostClient
from trunkline.v1 import (
    registry_service_pb2,
    snapshot_pb2,
    task_pb2,
    task_service_pb2,
    tool_service_pb2,
)

_PAGE = 100


async def agents(mesh: str | None, *, as_json: bool) -> Exit:
    """Print the agents on the mesh, where they run, and what they do."""
    async with open_view(mesh) as view:
        found = [_agent(host, agent.card) for host in view.hosts for agent in host.agents]
    found.sort(key=lambda agent: agent["name"])
    if as_json:
        print_json(found)
    else:
        rows = [(one["name"], one["address"], one["description"]) for one in found]
        print_table(("AGENT", "HOST", "DESCRIPTION"), rows)
    return Exit.OK


async def tools(mesh: str | None, *, as_json: bool) -> Exit:
    """Print the tools that can be called, and the servers that are down."""
    async with open_view(mesh) as view:
        found = await view.tools().list_tools()
    if as_json:
        print_json(json_format.MessageToDict(found, preserving_proto_field_name=True))
        return Exit.OK
    rows = [(f"{tool.server}/{tool.name}", "ready", tool.description) for tool in found.tools]
    rows += [
        (server.name, _server_state(server), server.error)
        for server in found.servers
        if _server_state(server) != "ready"
    ]
    print_table(("TOOL", "STATE", "DESCRIPTION"), rows)
    return Exit.OK


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which tasks to list; empty names filter nothing, but for the account."""

    account: str
    agent: str
    context_id: str
    limit: int


async def tasks(mesh: str | None, which: Wanted, *, as_json: bool) -> Exit:
    """Print the latest tasks of all hosts. A host that doesn't answer is named on stderr."""
    wanted = task_service_pb2.ListTasksRequest(
        account=which.account, agent=which.agent, context_id=which.context_id
    )
    async with open_view(mesh) as view:
        found, code = await ask_all(view, lambda host: _tasks_of(host, wanted, limit=which.limit))
    found.sort(key=lambda task: task.status.timestamp.ToNanoseconds(), reverse=True)
    latest = [_task(task) for task in found[: which.limit]]
    if as_json:
        print_json(latest)
    else:
        rows = [
            (one["task_id"], one["agent"], one["state"], one["status_time"], one["parent_task_id"])
            for one in latest
        ]
        print_table(("TASK", "AGENT", "STATE", "SINCE", "PARENT"), rows)
    return code


async def _tasks_of(
    host: HostClient,
    wanted: task_service_pb2.ListTasksRequest,
    *,
    limit: int,
) -> list[snapshot_pb2.TaskSummary]:
    found: list[snapshot_pb2.TaskSummary] = []
    request = task_service_pb2.ListTasksRequest()
    request.CopyFrom(wanted)
    while len(found) < limit:
        request.page_size = min(_PAGE, limit - len(found))
        page = await host.list_tasks(request)
        found += page.tasks
        request.page_token = page.next_page_token
        if not page.next_page_token:
            break
    return found


def _agent(host: registry_service_pb2.Host, card: Any) -> dict[str, Any]:  # noqa: ANN401
    return {
        "name": card.name,
        "description": card.description,
        "version": card.version,
        "skills": [skill.name for skill in card.skills],
        "tags": sorted({tag for skill in card.skills for tag in skill.tags}),
        "host": host.host_id,
        "address": host.address,
    }


def _task(task: snapshot_pb2.TaskSummary) -> dict[str, str]:
    return {
        "task_id": task.task_id,
        "context_id": task.context_id,
        "agent": task.agent,
        "state": state_name(task_pb2.TaskState.Name(task.status.state)),
        "status_time": task.status.timestamp.ToJsonString(),
        "create_time": task.create_time.ToJsonString(),
        "parent_task_id": task.parent_task_id,
    }


def _server_state(server: tool_service_pb2.ToolServer) -> str:
    """Return the state of its breaker while it isn't closed: that decides about calls."""
    if server.breaker not in ("", "closed"):
        return server.breaker
    name = tool_service_pb2.ToolServerState.Name(server.state)
    return name.removeprefix("TOOL_SERVER_STATE_").lower()
