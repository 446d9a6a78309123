"""A mesh whose page needs no credentials, so that everybody is an operator, with an audit log."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from harness.agents.shop import Orders, shop
from harness.agents.stepped_agent import SteppedAgent
from trunkline.audit import open_audit_log
from trunkline.settings import PageSettings, Settings
from trunkline_agents.echo.agent import echo
from trunkline_bridge.settings import BridgeSettings

_LOCAL = ("127.0.0.1",)


@dataclass(frozen=True, slots=True)
class OpenPage:
    """The mesh, the agent `tested` that a test commands, and the orders of the agent `apples`."""

    bridged: BridgedMesh
    stepped: SteppedAgent
    orders: Orders


@asynccontextmanager
async def serve_open_page(folder: Path) -> AsyncIterator[OpenPage]:
    """Open a mesh with the agents `echo`, `apples` and `tested`, which may call local addresses."""
    page: dict[str, Any] = {"inspect_allow": _LOCAL}
    settings = BridgeSettings(default_agent="echo", allow_webhook=_LOCAL, page=PageSettings(**page))
    stepped, orders = SteppedAgent(), Orders()
    async with (
        open_audit_log(Settings(data_dir=folder / "data"), process="test") as audit,
        open_bridged_mesh(folder, settings, audit=audit) as bridged,
    ):
        await bridged.mesh.join(echo, shop("apples", orders), stepped.agent())
        yield OpenPage(bridged, stepped, orders)
