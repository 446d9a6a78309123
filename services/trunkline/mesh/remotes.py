"""Remote A2A agents on the mesh: those of the settings, of the user's code, and a joined one."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from trunkline.agents.authoring import FunctionAgent, agent
from trunkline.errors import PeerUnavailableError
from trunkline.runtime import ServiceStatus
from trunkline.settings import RemoteAgentSettings, Settings, parse_remote
from trunkline.tasks.context import TaskContext, get_turn_runtime


def from_a2a(  # noqa: PLR0913  what can be said of a remote agent, each by name
    url: str,
    *,
    name: str,
    token_env: str = "",
    api_key_env: str = "",
    api_key_header: str = "X-API-Key",
    headers: Mapping[str, str] | None = None,
    hosts: Sequence[str] = (),
) -> FunctionAgent:
    """Make an agent of a remote A2A agent, given by its URL or that of its card.

    Nothing is asked of it before it is served: it is on the mesh, with its own card under `name`,
    from when it could be reached. What it says becomes our task: states, messages, artifacts as
    they stream; its task is canceled with ours, and continued by our next turn.

    `token_env` and `api_key_env` name the variables that hold its bearer token, or its key, which
    goes in `api_key_header`; `headers` go with each request. Its card may lead to its own host, or
    to one of `hosts`.

    Raises:
        ConfigurationError: the name is none for an agent, or the URL is none of an HTTP server.
    """
    given: dict[str, object] = {
        "url": url,
        "token_env": token_env,
        "api_key_env": api_key_env,
        "api_key_header": api_key_header,
        "headers": dict(headers or {}),
        "hosts": list(hosts),
    }
    return build_proxy_agent(name, parse_remote(given, where=f"from_a2a({name!r})"))


def build_remote_agents(settings: Settings) -> Sequence[FunctionAgent]:
    """Make agents of the remote ones that settings name, which needn't be there yet.

    Raises:
        ConfigurationError: a name is none for an agent.
    """
    return [build_proxy_agent(name, remote) for name, remote in settings.remotes.items()]


def build_proxy_agent(name: str, remote: RemoteAgentSettings) -> FunctionAgent:
    """Make the agent that stands for a remote one: while it is served, what dials out is open.

    Raises:
        ConfigurationError: the name is none for an agent.
    """
    return _StandIn(name, remote).agent


class _StandIn:
    """An agent of this mesh, and what dials the remote one while somebody serves it."""

    def __init__(self, name: str, remote: RemoteAgentSettings) -> None:
        made = agent(
            name=name,
            description="A remote agent that has not been reached yet.",
            input_modes=("*/*",),
            direct_replies=True,
            resumable=True,
        )(self._run)
        self.agent = replace(made, lifespan=self._keep, cancel_remote=self._cancel)
        self._remote = remote
        self._found: FunctionAgent | None = None

    async def _run(self, task: TaskContext) -> None:
        await self._opened().run(get_turn_runtime(task))

    async def _cancel(self, task_id: str) -> None:
        if cancel := self._opened().cancel_remote:
            await cancel(task_id)

    def _opened(self) -> FunctionAgent:
        if self._found is None:
            raise PeerUnavailableError(f"agent {self.agent.card.name!r}", "nobody serves it")
        return self._found

    @asynccontextmanager
    async def _keep(self, settings: Settings, on_change: Callable[[], None]) -> AsyncIterator[None]:
        # gRPC and what dials are loaded by the process that serves, not by whoever defines agents.
        from trunkline.client import run_in_background
        from trunkline.client.breaker import BreakerSettings
        from trunkline_bridge.client.remote_agent import open_remote_agent
        from trunkline_bridge.client.settings import RemoteSettings

        def take_card() -> None:
            self.agent.card.CopyFrom(found.agent.card)
            on_change()

        name = self.agent.card.name
        given = RemoteSettings.from_settings(
            name, self._remote, BreakerSettings.from_settings(settings)
        )
        async with open_remote_agent(given) as found:
            self._found = found.agent
            async with run_in_background(found.refresh_card(take_card)):
                yield


@asynccontextmanager
async def serve_remote(
    settings: Settings, remote: RemoteAgentSettings, *, name: str
) -> AsyncIterator[ServiceStatus]:
    """Serve one remote agent as a process of its own; an empty name is its card's.

    Raises:
        ConfigurationError: an address can't be listened on, or the name is none for an agent.
        JournalUnavailableError: the data directory can't be used.
        PeerProtocolError: there is no card, or it has no interface that we speak.
        PeerUnavailableError, PeerTimeoutError, PeerRefusedError: it can't be asked for its card.
    """
    from trunkline.agents.hosting import join_mesh
    from trunkline.client import run_in_background
    from trunkline.client.breaker import BreakerSettings
    from trunkline_bridge.client.remote_agent import connect_remote_agent
    from trunkline_bridge.client.settings import RemoteSettings

    @asynccontextmanager
    async def keep(_: Settings, on_change: Callable[[], None]) -> AsyncIterator[None]:
        on_change()
        async with run_in_background(found.refresh_card(on_change)):
            yield

    given = RemoteSettings.from_settings(name, remote, BreakerSettings.from_settings(settings))
    async with connect_remote_agent(given) as found:
        kept = replace(found.agent, lifespan=keep)
        async with join_mesh(lambda _: [kept], settings) as serving:
            yield serving
