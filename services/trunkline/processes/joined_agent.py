"""Serves one remote A2A agent in a process of its own: `trunkline join`."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from trunkline.a2a_client.remote_agent import build_settings, connect_remote_agent
from trunkline.core.backoff import Backoff
from trunkline.core.runtime import ServiceStatus
from trunkline.core.settings import RemoteAgentSettings, Settings
from trunkline.errors import PeerTimeoutError, PeerUnavailableError, TrunklineError
from trunkline.processes.database import open_small_files
from trunkline.processes.hosting import join_mesh


@asynccontextmanager
async def serve_remote(
    settings: Settings,
    remote: RemoteAgentSettings,
    *,
    name: str,
    on_waiting: Callable[[TrunklineError], None],
) -> AsyncIterator[ServiceStatus]:
    """Serve one remote agent in this process. If `name` is empty, its card has the name.

    Waits until the remote agent can be reached; `on_waiting` gets each new reason why not.

    Raises:
        ConfigurationError: an address can't be listened on, or the name is not an agent name.
        JournalUnavailableError: the data directory can't be used.
        PeerProtocolError: there is no card, or it has no supported interface.
        PeerRefusedError: it refuses to send its card.
    """
    backoff = Backoff()
    problem = ""
    async with AsyncExitStack() as stack:
        files = await stack.enter_async_context(open_small_files(settings))
        options = build_settings(name, remote, settings, files)
        while True:
            try:
                opened = await stack.enter_async_context(connect_remote_agent(options))
                break
            except (PeerUnavailableError, PeerTimeoutError) as error:
                if str(error) != problem:
                    on_waiting(error)
                problem = str(error)
                await backoff.pause()
        yield await stack.enter_async_context(join_mesh(lambda _: [opened.agent], settings))
