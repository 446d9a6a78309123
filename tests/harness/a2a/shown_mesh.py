"""A mesh that a test makes up, which the page of a tab shows instead of the real one."""

import json
from collections.abc import Mapping, Sequence

from playwright.async_api import Route

from harness.a2a.bridged_mesh import Json
from harness.browser import Tab


def make_host(name: str, agents: Sequence[str], state: str = "ready") -> Json:
    """Return a host with agents, as the page's API sends it."""
    address = f"{name}.test:50051"
    services = ["trunkline.v1.TaskService"]
    return {
        **{"id": name, "address": address, "agents": [*agents]},
        **{"services": services, "state": state},
    }


def make_edge(source: str, target: str, kind: str = "call", **numbers: float) -> Json:
    """Return the calls on an edge, as the page's API sends them."""
    usual = {"count": 30, "ratePerS": 0.5, "errorRatio": 0, "p50Ms": 10, "p95Ms": 20}
    return {"from": source, "to": target, "kind": kind, "breaker": "", **usual, **numbers}


async def show_mesh(
    tab: Tab,
    hosts: Sequence[Json],
    edges: Sequence[Json] = (),
    rooms: Mapping[str, Sequence[str]] | None = None,
    path: str = "mesh",
) -> None:
    """Open a view on a mesh of these hosts, their agents, and rooms by name."""
    agents = [
        {"name": agent, "kind": "agent", "host": host["id"], "skills": [], "breaker": ""}
        for host in hosts
        for agent in host["agents"]
    ]
    listed = [{"name": name, "members": [*some]} for name, some in (rooms or {}).items()]
    parts = {"hosts": [*hosts], "agents": agents, "toolServers": []}
    state = json.dumps({**parts, "rooms": listed, "edges": [*edges]})

    async def respond(route: Route) -> None:
        body = f"event: mesh\ndata: {state}\n\n"
        await route.fulfill(status=200, content_type="text/event-stream", body=body)

    await tab.page.route("**/ui/api/mesh:watch*", respond)
    await tab.go(path)
