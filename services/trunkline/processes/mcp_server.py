"""The agents of a mesh as an MCP server."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from trunkline.core.identity import open_credentials
from trunkline.core.runtime import ServiceStatus
from trunkline.core.settings import HostPort, Settings
from trunkline.errors import ConfigurationError
from trunkline.mesh.client import ChannelPool, Directory
from trunkline.observe.traces import MeshTarget, configure_tracing
from trunkline_bridge.http.server import serve_http
from trunkline_bridge.mcp.agent_clients import AgentClients, CallerCredentials
from trunkline_bridge.mcp.agent_sources import MeshAgents, NamedAgents
from trunkline_bridge.mcp.server import AgentServer

# The time for calls in flight when the server stops.
_GRACE_S: Final = 2
_JOIN_TIMEOUT_S: Final = 10.0


@asynccontextmanager
async def open_agent_server(
    settings: Settings,
    *,
    url: str,
    names: Sequence[str],
    api_key: str,
    lends_key: bool,
    state_key: str = "",
) -> AsyncIterator[AgentServer]:
    """Open an MCP server for the agents behind the bridge at `url`.

    Without names, all agents of the mesh `settings.mesh` are offered, as they come and go. The key
    reads their cards, and with `lends_key` is for callers without credentials of their own.
    `state_key` seals the questions of agents; without it, a random key does.

    Raises:
        PeerUnavailableError: the mesh can't be reached.
        TrunklineError: the card of a named agent can't be read.
    """
    own = CallerCredentials((("authorization", f"Bearer {api_key}"),) if api_key else ())
    async with AsyncExitStack() as stack:
        lent = own if lends_key else CallerCredentials()
        clients = await stack.enter_async_context(AgentClients(url, lent))
        source: MeshAgents | NamedAgents
        if names:
            source = await NamedAgents.read(names, clients, own)
        else:
            mesh = settings.mesh.addresses
            credentials = await stack.enter_async_context(open_credentials(settings))
            tracing = configure_tracing("mcp-server", mesh=MeshTarget(mesh, credentials))
            stack.callback(tracing.shutdown)
            channels = ChannelPool.from_settings(settings, credentials)
            await stack.enter_async_context(channels)
            directory = await stack.enter_async_context(Directory(channels, *mesh))
            await directory.wait_until(
                lambda known: bool(known.list_agents()), timeout_s=_JOIN_TIMEOUT_S
            )
            source = MeshAgents(directory)
        server = AgentServer(source, clients, state_key=state_key)
        yield await stack.enter_async_context(server.running())


@asynccontextmanager
async def serve_agents_over_http(
    settings: Settings,
    http: HostPort,
    *,
    url: str,
    names: Sequence[str],
    api_key: str,
    state_key: str = "",
) -> AsyncIterator[ServiceStatus]:
    """Serve MCP over streamable HTTP at `/mcp` of an address.

    Raises:
        ConfigurationError: the address is public and `insecure` is not set, or can't be used.
        TrunklineError: see `open_agent_server`.
    """
    if not (http.is_loopback or settings.insecure):
        problem = (
            f"{http} can be reached from other machines, and MCP is not encrypted here; use "
            "127.0.0.1 with a proxy that has TLS before it, or give --insecure if that is what you "
            "want"
        )
        raise ConfigurationError(where="--http", problem=problem)
    async with (
        # Over HTTP, any client that reaches the address would act with the key.
        open_agent_server(
            settings,
            url=url,
            names=names,
            api_key=api_key,
            lends_key=False,
            state_key=state_key,
        ) as server,
        server.http_app(http.host) as app,
        serve_http(app, host=http.host, port=http.port, grace_s=_GRACE_S) as address,
    ):
        serving = ServiceStatus([{"mcp": f"{address}/mcp"}])
        serving.joined.set()
        yield serving
