"""Agents as a process of their own that joins a mesh, whenever that is there."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from trunkline.agents.hosting import Attendance, on_mesh, open_hosts, serve_host
from trunkline.client import Channels, Directory, RegistryClient
from trunkline.runtime import Serving
from trunkline.server import MeshServer
from trunkline.settings import Settings, advertised, check_exposure, reachable
from trunkline.tasks.agent import Agent
from trunkline.traces import configure

_STOP_GRACE_S = 1.0


@asynccontextmanager
async def join_mesh(
    make: Callable[[Directory], Sequence[Agent]], settings: Settings
) -> AsyncIterator[Serving]:
    """Serve agents at `settings.listen` and put them on the mesh at `settings.mesh`.

    An agent that another living host has is on standby until that is gone: then it takes its place.
    On leaving, nothing new is taken, and what runs has `drain_grace_s` to end.

    Raises:
        ConfigurationError: the address can't be listened on, or what is set of an agent is wrong.
        JournalUnavailableError: the data directory can't be used.
    """
    check_exposure("listen", settings.listen, is_allowed=settings.insecure)
    told = advertised(settings.listen, settings.advertise, mesh=settings.mesh)
    mesh = str(settings.mesh)
    channels = Channels.of(settings)
    directory = Directory(channels, mesh)
    agents = make(directory)
    name = agents[0].card.name
    attendance = Attendance()
    async with AsyncExitStack() as stack:
        stack.callback(configure(name, mesh_address=mesh).shutdown)
        await stack.enter_async_context(channels)
        await stack.enter_async_context(directory)
        hosts = await stack.enter_async_context(
            open_hosts(agents, directory=directory, settings=settings, attendance=attendance)
        )
        server = MeshServer()
        serve_host(server, hosts)
        (address,) = await server.start(str(settings.listen))
        stack.push_async_callback(server.stop, _STOP_GRACE_S)
        # Calls to itself need not find the way that others take.
        channels.alias(told.with_port_of(address), reachable(address))
        registry = RegistryClient(channels.get(mesh))
        membership = await stack.enter_async_context(
            on_mesh(
                hosts,
                registry,
                directory,
                address=told.with_port_of(address),
                settings=settings,
                attendance=attendance,
            )
        )
        ready = [{"agent": agent.card.name, "grpc": address} for agent in agents]
        yield Serving(
            ready,
            joined=membership.registered,
            failed=hosts.lost,
            standby=membership.standby,
        )
