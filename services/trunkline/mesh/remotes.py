"""Remote A2A agents on the mesh: from the settings, from user code, and by `trunkline join`."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from trunkline.agents.authoring import FunctionAgent, agent
from trunkline.errors import PeerUnavailableError
from trunkline.runtime import ServiceStatus
from trunkline.settings import RemoteAgentSettings, Settings, parse_remote
from trunkline.tasks.context import TaskContext, get_turn_runtime


def from_a2a(  # noqa: PLR0913  options of a remote agent, each by name
    url: str,
    *,
    name: str,
    token_env: str = "",
    api_key_env: str = "",
    api_key_header: str = "X-API-Key",
    headers: Mapping[str, str] | None = None,
    hosts: Sequence[str] = (),
) -> FunctionAgent:
    """Make an agent of a remote A2A agent, given by its URL or the URL of its card.

    The remote agent is first contacted when this agent is served. Once reached, it is registered
    with its own card under `name`. Its states, messages and streaming artifacts become those of our
    task. Its task is canceled with ours, and continued by our next turn.

    `token_env` and `api_key_env` name environment variables with its bearer token or its key, which
    is sent in `api_key_header`. `headers` are sent with each request. The URLs of its card must be
    on its own host or on one of `hosts`.

    Raises:
        ConfigurationError: the name is no agent name, or the URL is no HTTP URL.
    """
    options: dict[str, object] = {
        "url": url,
        "token_env": token_env,
        "api_key_env": api_key_env,
        "api_key_header": api_key_header,
        "headers": dict(headers or {}),
        "hosts": list(hosts),
    }
    return build_proxy_agent(name, parse_remote(options, where=f"from_a2a({name!r})"))


def build_remote_agents(settings: Settings) -> Sequence[FunctionAgent]:
    """Make the agents for the remote agents of the settings, which need not be reachable yet.

    Raises:
        ConfigurationError: a name is no agent name.
    """
    return [build_proxy_agent(name, remote) for name, remote in settings.remotes.items()]


def build_proxy_agent(name: str, remote: RemoteAgentSettings) -> FunctionAgent:
    """Make the local agent of a remote one, which is connected while the local one is served.

    Raises:
        ConfigurationError: the name is no agent name.
    """
    return _RemoteProxy(name, remote).agent


class _RemoteProxy:
    """A local agent, and the connection to its remote agent while the local one is served."""

    def __init__(self, name: str, remote: RemoteAgentSettings) -> None:
        local = agent(
            name=name,
            description="A remote agent that has not been reached yet.",
            input_modes=("*/*",),
            direct_replies=True,
            resumable=True,
        )(self._run)
        self.agent = replace(local, lifespan=self._connect, cancel_remote=self._cancel)
        self._remote = remote
        self._remote_agent: FunctionAgent | None = None

    async def _run(self, task: TaskContext) -> None:
        await self._require_remote().run(get_turn_runtime(task))

    async def _cancel(self, task_id: str) -> None:
        if cancel := self._require_remote().cancel_remote:
            await cancel(task_id)

    def _require_remote(self) -> FunctionAgent:
        if self._remote_agent is None:
            raise PeerUnavailableError(f"agent {self.agent.card.name!r}", "it is not being served")
        return self._remote_agent

    @asynccontextmanager
    async def _connect(
        self, settings: Settings, on_change: Callable[[], None]
    ) -> AsyncIterator[None]:
        # gRPC and the A2A client are loaded only in the process that serves.
        from trunkline.client import run_in_background
        from trunkline.client.breaker import BreakerSettings
        from trunkline_bridge.client.remote_agent import open_remote_agent
        from trunkline_bridge.client.settings import RemoteSettings

        def update_card() -> None:
            self.agent.card.CopyFrom(remote_agent.agent.card)
            on_change()

        name = self.agent.card.name
        options = RemoteSettings.from_settings(
            name, self._remote, BreakerSettings.from_settings(settings)
        )
        async with open_remote_agent(options) as remote_agent:
            self._remote_agent = remote_agent.agent
            async with run_in_background(remote_agent.refresh_card(update_card)):
                yield


@asynccontextmanager
async def serve_remote(
    settings: Settings, remote: RemoteAgentSettings, *, name: str
) -> AsyncIterator[ServiceStatus]:
    """Serve one remote agent alone in this process, by default under its card's name.

    Raises:
        ConfigurationError: an address can't be listened on, or the name is no agent name.
        JournalUnavailableError: the data directory can't be used.
        PeerProtocolError: there is no card, or it has no supported interface.
        PeerUnavailableError, PeerTimeoutError, PeerRefusedError: its card can't be fetched.
    """
    from trunkline.agents.hosting import join_mesh
    from trunkline.client import run_in_background
    from trunkline.client.breaker import BreakerSettings
    from trunkline_bridge.client.remote_agent import connect_remote_agent
    from trunkline_bridge.client.settings import RemoteSettings

    @asynccontextmanager
    async def lifespan(_: Settings, on_change: Callable[[], None]) -> AsyncIterator[None]:
        on_change()
        async with run_in_background(remote_agent.refresh_card(on_change)):
            yield

    options = RemoteSettings.from_settings(name, remote, BreakerSettings.from_settings(settings))
    async with connect_remote_agent(options) as remote_agent:
        served = replace(remote_agent.agent, lifespan=lifespan)
        async with join_mesh(lambda _: [served], settings) as serving:
            yield serving
