"""The commands that inspect a mesh: its agents and its traces."""

from typing import TYPE_CHECKING, Annotated, Any

from trunkline.cli.exits import ExitCode
from trunkline.cli.options import JsonOption, MeshOption, argument
from trunkline.cli.terminal import print_json, print_stderr, print_table
from trunkline.errors import PeerUnavailableError, TaskNotFoundError

if TYPE_CHECKING:
    from trunkline.v1 import registry_service_pb2


async def agents(mesh: MeshOption = None, *, json: JsonOption = False) -> ExitCode:
    """List the agents on the mesh."""
    from trunkline.cli.directory import open_directory, print_lost_hosts

    async with open_directory(mesh) as directory:
        found = [_agent_fields(host, agent) for host in directory.hosts for agent in host.agents]
    found.sort(key=lambda agent: agent["name"])
    if json:
        print_json(found)
    else:
        titles = ["AGENT", "HOST", "DESCRIPTION"]
        rows = [[agent["name"], agent["address"], agent["description"]] for agent in found]
        if any(agent["breaker"] for agent in found):
            # Only agents outside the mesh have one.
            titles.insert(2, "BREAKER")
            for row, agent in zip(rows, found, strict=True):
                row.insert(2, agent["breaker"])
        print_table(titles, rows, empty="no agents")
    return print_lost_hosts(directory.missing_hosts)


def _agent_fields(
    host: "registry_service_pb2.Host", agent: "registry_service_pb2.AgentRegistration"
) -> dict[str, Any]:
    card = agent.card
    return {
        "name": card.name,
        "description": card.description,
        "version": card.version,
        "skills": [skill.name for skill in card.skills],
        "tags": sorted({tag for skill in card.skills for tag in skill.tags}),
        "host": host.host_id,
        "address": host.address,
        "breaker": agent.breaker,
    }


async def trace(
    trace_or_task_id: Annotated[str, argument("ID", "The id of a trace or a task.")] = "",
    mesh: MeshOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Show a trace as a tree of spans. Without an ID, list the latest traces."""
    from trunkline.cli.directory import open_directory
    from trunkline.cli.trace import (
        build_trees,
        fetch_trace,
        print_latest_traces,
        render_trace,
        to_fields,
    )

    async with open_directory(mesh) as directory:
        client = directory.trace_stub()
        if not trace_or_task_id:
            await print_latest_traces(client, as_json=json)
            return
        spans = await fetch_trace(client, trace_or_task_id)
        try:
            directory.get_task_host(trace_or_task_id)
        except PeerUnavailableError as error:
            # What the host did last may be missing.
            print_stderr(f"warning: {error}")
        except TaskNotFoundError:
            # It is a trace's id, or the task was deleted.
            pass
    trees = build_trees(spans)
    if json:
        print_json([row for tree in trees for row in to_fields(tree)])
    else:
        print("\n\n".join("\n".join(render_trace(tree)) for tree in trees))
