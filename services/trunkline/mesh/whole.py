"""A whole mesh in one process: `trunkline up`."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from trunkline.agents.hosting import Attendance, on_mesh, open_hosts, serve_host
from trunkline.client import Channels, Directory, RegistryClient, running
from trunkline.errors import ConfigurationError
from trunkline.mesh.agents import make_agents, prewarm
from trunkline.mesh.bridge import check_addresses, open_bridge
from trunkline.mesh.registry import STOP_GRACE_S, add_registry
from trunkline.mesh.remotes import remotes_of
from trunkline.mesh.tools import add_tools, load_tools
from trunkline.runtime import Serving
from trunkline.server import MeshServer
from trunkline.server.socket_folder import socket_address
from trunkline.settings import Settings, advertised, check_exposure, reachable
from trunkline_bridge.webhooks.signatures import keep_secret

logger = logging.getLogger(__name__)

# How long a mesh may take until its own registry shows its own agents.
_READY_TIMEOUT_S = 30.0


@asynccontextmanager
async def open_mesh(settings: Settings) -> AsyncIterator[Serving]:
    """Bring a mesh up for the length of a block; when entered, everything serves.

    On leaving, nothing new is taken, what runs has `drain_grace_s` to end, and every process and
    file of the mesh is closed.

    Raises:
        ConfigurationError: an address, a file or an agent is wrong.
        JournalUnavailableError: the data directory can't be used.
    """
    check_addresses(settings)
    check_exposure("mesh", settings.mesh, is_allowed=settings.insecure)
    config = load_tools(settings)
    async with AsyncExitStack() as stack:
        local = stack.enter_context(socket_address())
        channels = Channels.of(settings)
        directory = Directory(channels, local)
        attendance = Attendance()
        agents = make_agents(settings, config, directory, others=remotes_of(settings))
        names = [agent.card.name for agent in agents]
        if settings.default_agent not in names:
            problem = f"no such agent; there are: {', '.join(names)}"
            raise ConfigurationError(f"--default {settings.default_agent}", problem)
        server = MeshServer()
        await stack.enter_async_context(add_registry(server, settings, name="trunkline"))
        await stack.enter_async_context(channels)
        hosts = await stack.enter_async_context(
            open_hosts(agents, directory=directory, settings=settings, attendance=attendance)
        )
        serve_host(server, hosts)
        (mesh_address, _) = server.bind(str(settings.mesh), local)
        reached = reachable(mesh_address)
        told = _told(settings, reached)
        adapter = add_tools(server, config, settings, directory, mesh_address=reached)
        await server.start()
        stack.push_async_callback(server.stop, STOP_GRACE_S)
        # Inside the server's life: the MCP servers send it their last spans.
        await stack.enter_async_context(adapter)
        # Calls from this process to its own host don't leave it.
        channels.alias(told, local)
        await stack.enter_async_context(directory)
        secret = settings.webhook_secret or keep_secret(settings.data_dir)
        bridge = open_bridge(directory, settings, webhook_secret=secret)
        public = await stack.enter_async_context(bridge)
        membership = await stack.enter_async_context(
            on_mesh(
                hosts,
                RegistryClient(channels.get(local)),
                directory,
                address=told,
                settings=settings,
                services=server.services,
                attendance=attendance,
            )
        )
        if attendance.is_here(settings.default_agent):
            await directory.wait_until(
                lambda known: settings.default_agent in known.agents(), timeout_s=_READY_TIMEOUT_S
            )
        if settings.prewarm:
            await stack.enter_async_context(running(prewarm(agents)))
        yield Serving(
            [{"http": public["http"], "mesh": mesh_address, "a2a-grpc": public["a2a-grpc"]}],
            joined=membership.registered,
            failed=hosts.lost,
            standby=membership.standby,
        )


def _told(settings: Settings, reached: str) -> str:
    """Return where others are told to reach the mesh's agents; alone, a mesh needs no others."""
    if settings.advertise or not settings.mesh.is_any:
        told = advertised(settings.mesh, settings.advertise, mesh=settings.mesh)
        return told.with_port_of(reached)
    problem = "from other machines its agents can't be reached; give --advertise HOST"
    logger.warning("mesh.not_advertised", extra={"problem": problem})
    return reached
