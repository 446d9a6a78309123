"""Remote A2A agents on the mesh: from the settings, from user code, and by `trunkline join`."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from trunkline.agents.authoring import FunctionAgent, agent
from trunkline.errors import PeerTimeoutError, PeerUnavailableError, TrunklineError
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
    """Make a local agent of the remote A2A agent at `url`, which may also be the URL of its card.

    The remote agent is first contacted when the local one is served. The local agent then has the
    remote agent's card, under `name`. States, messages and streaming artifacts of the remote task
    are copied to the local task. To cancel the local task cancels the remote one, and the next turn
    of the local task continues it.

    `token_env` and `api_key_env` name the environment variables with the bearer token or the API
    key for the remote agent. The key is sent in `api_key_header`, and `headers` with each request.
    The URLs of the remote agent's card must be on the host of `url` or on one of `hosts`.

    Raises:
        ConfigurationError: the name is not an agent name, or the URL is not an HTTP URL.
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
    """Make the local agents for the remote agents of the settings. It connects to none of them.

    Raises:
        ConfigurationError: a name is not an agent name.
    """
    return [build_proxy_agent(name, remote) for name, remote in settings.remotes.items()]


def build_proxy_agent(name: str, remote: RemoteAgentSettings) -> FunctionAgent:
    """Make the local agent for a remote one. The connection is open while the local one is served.

    Raises:
        ConfigurationError: the name is not an agent name.
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
        self.agent = replace(
            local, lifespan=self._connect, cancel_remote=self._cancel, kind="remote"
        )
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
        # Imported here, so that a script that defines an agent does not load gRPC.
        from trunkline.client import run_in_background
        from trunkline.client.breaker import BreakerSettings
        from trunkline_bridge.client.remote_agent import open_remote_agent
        from trunkline_bridge.client.settings import RemoteSettings

        def update_card() -> None:
            self.agent.card.CopyFrom(remote_agent.agent.card)
            on_change()

        name = self.agent.card.name
        options = RemoteSettings.from_settings(
            name,
            self._remote,
            BreakerSettings.from_settings(settings),
            data_dir=settings.data_dir,
        )
        async with open_remote_agent(options) as remote_agent:
            self._remote_agent = remote_agent.agent
            async with run_in_background(remote_agent.refresh_card(update_card)):
                yield


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
    from trunkline.agents.hosting import join_mesh
    from trunkline.client import run_in_background
    from trunkline.client.backoff import Backoff
    from trunkline.client.breaker import BreakerSettings
    from trunkline_bridge.client.remote_agent import connect_remote_agent
    from trunkline_bridge.client.settings import RemoteSettings

    @asynccontextmanager
    async def lifespan(_: Settings, on_change: Callable[[], None]) -> AsyncIterator[None]:
        on_change()
        async with run_in_background(remote_agent.refresh_card(on_change)):
            yield

    options = RemoteSettings.from_settings(
        name, remote, BreakerSettings.from_settings(settings), data_dir=settings.data_dir
    )
    backoff = Backoff()
    problem = ""
    async with AsyncExitStack() as stack:
        while True:
            try:
                remote_agent = await stack.enter_async_context(connect_remote_agent(options))
                break
            except (PeerUnavailableError, PeerTimeoutError) as error:
                if str(error) != problem:
                    on_waiting(error)
                problem = str(error)
                await backoff.pause()
        local = replace(remote_agent.agent, lifespan=lifespan)
        yield await stack.enter_async_context(join_mesh(lambda _: [local], settings))
