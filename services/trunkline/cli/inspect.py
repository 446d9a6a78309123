"""`trunkline agents` and `tools`: shows the agents and the tools of a mesh."""

from typing import Any

from trunkline.cli.exits import ExitCode
from trunkline.cli.mesh_view import open_mesh_view, print_lost_hosts
from trunkline.cli.terminal import print_json, print_table
from trunkline.client.mesh_words import tool_server_state
from trunkline.json_values import message_to_dict
from trunkline.v1 import registry_service_pb2, tool_service_pb2

# The wait for MCP servers that are starting.
_START_TIMEOUT_S = 10.0


async def list_agents(mesh: str | None, *, as_json: bool) -> ExitCode:
    """Print the agents on the mesh with their hosts and descriptions, and the hosts that died."""
    async with open_mesh_view(mesh) as view:
        agents = [_agent_json(host, agent) for host in view.hosts for agent in host.agents]
    agents.sort(key=lambda agent: agent["name"])
    if as_json:
        print_json(agents)
    else:
        titles = ["AGENT", "HOST", "DESCRIPTION"]
        rows = [[agent["name"], agent["address"], agent["description"]] for agent in agents]
        if any(agent["breaker"] for agent in agents):
            # Only agents outside the mesh have one.
            titles.insert(2, "BREAKER")
            for row, agent in zip(rows, agents, strict=True):
                row.insert(2, agent["breaker"])
        print_table(titles, rows, empty="no agents")
    return print_lost_hosts(view.lost_hosts)


async def list_tools(mesh: str | None, *, as_json: bool) -> ExitCode:
    """Print the tools of ready servers, what their lists lack, and the other servers' errors.

    Servers that nothing has used yet are started, and get some time for that.
    """
    async with open_mesh_view(mesh) as view:
        listing = await view.tool_client().wait_for_tools(timeout_s=_START_TIMEOUT_S)
    if as_json:
        print_json(message_to_dict(listing, with_proto_names=True))
        return ExitCode.OK
    rows = [
        (
            f"{tool.server}/{tool.name}",
            "ready",
            "asks" if tool.needs_approval else "",
            tool.description,
        )
        for tool in listing.tools
    ]
    rows += [
        (server.name, server_state(server), "", server.error)
        for server in listing.servers
        if server_state(server) != "ready"
    ]
    rows += [
        (server.name, "incomplete", "", problem)
        for server in listing.servers
        for problem in server.listing_problems
    ]
    empty = "no tools; `trunkline up --mcp FILE` adds MCP servers"
    print_table(("TOOL", "STATE", "APPROVAL", "DESCRIPTION"), rows, empty=empty)
    return ExitCode.OK


def _agent_json(
    host: registry_service_pb2.Host, agent: registry_service_pb2.AgentRegistration
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


def server_state(server: tool_service_pb2.ToolServer) -> str:
    """Return the state of a server, or that of its circuit breaker unless it is closed."""
    if server.breaker not in ("", "closed"):
        return server.breaker
    return tool_server_state(server)
