"""A mesh whose page needs no credentials, so that every caller is an operator."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.a2a.bridged_mesh import BridgedMesh
from harness.a2a.page_mesh import open_page_mesh
from harness.agents.shop import Orders
from harness.agents.stepped_agent import SteppedAgent
from trunkline_agents.echo.agent import echo

_LOCAL = ("127.0.0.1",)


@dataclass(frozen=True, slots=True)
class OpenPage:
    """The mesh, the agent `tested` that a test commands, and the orders of the agent `apples`."""

    bridged: BridgedMesh
    stepped: SteppedAgent
    orders: Orders


@asynccontextmanager
async def serve_open_page(folder: Path) -> AsyncIterator[OpenPage]:
    """Open a page mesh with the agents `echo` and `tested`, which may call local addresses."""
    stepped = SteppedAgent()
    async with open_page_mesh(
        folder,
        echo,
        stepped.agent(),
        default_agent="echo",
        api_keys_file=None,
        allow_webhook=_LOCAL,
        page={"inspect_allow": _LOCAL},
    ) as page:
        yield OpenPage(page.bridged, stepped, page.orders)
