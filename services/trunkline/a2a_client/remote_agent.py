"""Remote A2A agents as agents of this mesh: from the settings, from code, and by `trunkline join`.

A script that defines an agent does not load gRPC, so the client is imported where it is opened.
"""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from trunkline.agents.authoring import FunctionAgent, agent
from trunkline.core.settings import RemoteAgentSettings, Settings, parse_remote
from trunkline.core.small_files import SmallFiles
from trunkline.errors import (
    ConfigurationError,
    PeerProtocolError,
    PeerRefusedError,
    PeerUnavailableError,
    TaskNotCancelableError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.tasks.context import TaskContext
from trunkline.tasks.turn_runtime import get_turn_runtime

if TYPE_CHECKING:
    from trunkline.a2a_client.a2a_client import A2AClient
    from trunkline.a2a_client.settings import RemoteSettings
    from trunkline.v1 import agent_card_pb2

logger = logging.getLogger(__name__)

# Delays between attempts to read the card of an agent that has not been reached yet.
_FIRST_RETRY_S: Final = 1.0
_MAX_RETRY_S: Final = 30.0


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
    return RemoteAgent(name, parse_remote(options, where=f"from_a2a({name!r})")).agent


def build_remote_agents(settings: Settings) -> Sequence[FunctionAgent]:
    """Make the local agents for the remote agents of the settings, without a connection.

    Raises:
        ConfigurationError: a name is not an agent name.
    """
    return [RemoteAgent(name, remote).agent for name, remote in settings.remotes.items()]


class RemoteAgent:
    """An agent of this mesh that delegates its tasks to a remote agent."""

    def __init__(
        self, name: str, remote: RemoteAgentSettings, peer: "A2AClient | None" = None
    ) -> None:
        """Make the local agent. Without an open `peer`, it connects while it is served.

        Raises:
            ConfigurationError: the name is not an agent name.
        """
        local = agent(
            name=name,
            description="A remote agent that has not been reached yet.",
            input_modes=("*/*",),
            direct_replies=True,
            resumable=True,
        )(self._run)
        self.agent: FunctionAgent = replace(
            local, lifespan=self._serve, cancel_remote=self._cancel_task, kind="remote"
        )
        """Runs on a host. Its card is a local copy of the remote agent's card."""
        self._remote = remote
        self._peer = peer
        self._card_known = asyncio.Event()
        if peer is not None:
            peer.rename(name)

    async def read_card(self) -> bool:
        """Read the remote agent's card; return whether the local card changed.

        Raises:
            PeerProtocolError: there is no card, or its interfaces are not supported.
            PeerUnavailableError, PeerTimeoutError, PeerRefusedError: the request failed.
        """
        return self.update_card((await self._require_peer().read_card()).card)

    def update_card(self, remote: "agent_card_pb2.AgentCard") -> bool:
        """Update the local card from the remote one; return whether it changed."""
        from trunkline.a2a_client.agent_card import build_local_card

        card = build_local_card(remote, self.agent.card.name)
        has_changed = not self._card_known.is_set() or card != self.agent.card
        self.agent.card.CopyFrom(card)
        self._card_known.set()
        return has_changed

    @asynccontextmanager
    async def _serve(
        self, settings: Settings, files: SmallFiles, on_change: Callable[[], None]
    ) -> AsyncIterator[None]:
        """Keep the connection open, and the card up to date, while the local agent is served."""
        from trunkline.a2a_client.a2a_client import A2AClient
        from trunkline.mesh.client import run_in_background

        async with AsyncExitStack() as stack:
            if self._peer is None:
                options = build_settings(self.agent.card.name, self._remote, settings, files)
                self._peer = await stack.enter_async_context(A2AClient(options))
                stack.callback(setattr, self, "_peer", None)
            else:
                on_change()
            await stack.enter_async_context(run_in_background(self._refresh_card(on_change)))
            yield

    async def _refresh_card(self, on_change: Callable[[], None]) -> None:
        """Read the card until it succeeds, then every `refresh_s`; never return.

        `on_change` is called when the local card has changed.
        """
        from trunkline.core.backoff import Backoff

        refresh_s = self._require_peer().settings.refresh_s
        if self._card_known.is_set():
            await asyncio.sleep(refresh_s)
        backoff = Backoff(first_s=_FIRST_RETRY_S, limit_s=_MAX_RETRY_S)
        last_problem = ""
        while True:
            try:
                if await self.read_card():
                    on_change()
                last_problem = ""
            except TrunklineError as error:
                if str(error) != last_problem:
                    extra = {"agent": self.agent.card.name, "problem": str(error)}
                    logger.warning("remote.no_card", extra=extra)
                last_problem = str(error)
            if self._card_known.is_set():
                await asyncio.sleep(refresh_s)
            else:
                await backoff.pause()

    async def _run(self, task: TaskContext) -> None:
        """Run the turn on the remote agent. After a takeover the turn continues there."""
        from trunkline.a2a_client.remote_turn import RemoteTurn

        peer = await self._wait_for_card()
        await RemoteTurn(get_turn_runtime(task), peer).run()

    async def _cancel_task(self, task_id: str) -> None:
        """Cancel a remote task.

        Raises:
            TaskNotFoundError, TaskNotCancelableError: the remote agent can't cancel the task.
            PeerUnavailableError, PeerTimeoutError: the caller should try again.
        """
        peer = await self._wait_for_card()
        try:
            await peer.cancel_task(task_id)
        except PeerRefusedError as error:
            if error.refusal == "TASK_NOT_FOUND":
                raise TaskNotFoundError(task_id) from None
            raise TaskNotCancelableError(task_id, error.problem) from None
        except PeerProtocolError as error:
            raise TaskNotCancelableError(task_id, error.problem) from None

    def _require_peer(self) -> "A2AClient":
        if self._peer is None:
            raise PeerUnavailableError(f"agent {self.agent.card.name!r}", "it is not being served")
        return self._peer

    async def _wait_for_card(self) -> "A2AClient":
        peer = self._require_peer()
        try:
            async with asyncio.timeout(peer.settings.patience_s):
                await self._card_known.wait()
        except TimeoutError:
            raise PeerUnavailableError(peer.name, "its card could not be read") from None
        return peer


def build_settings(
    name: str, remote: RemoteAgentSettings, settings: Settings, files: SmallFiles
) -> "RemoteSettings":
    """Return the client's settings, with credentials from the environment.

    The pin of the agent's card is in `files`.

    Raises:
        ConfigurationError: a variable that holds credentials isn't set.
    """
    from trunkline.a2a_client.settings import RemoteSettings
    from trunkline.mesh.client.breaker import BreakerSettings

    breaker = BreakerSettings.from_settings(settings)
    return RemoteSettings.from_settings(name, remote, breaker, files=files)


@asynccontextmanager
async def connect_remote_agent(
    remote: "RemoteSettings", *, ssl_context: ssl.SSLContext | None = None
) -> AsyncIterator[RemoteAgent]:
    """Read a remote A2A agent's card and open the agent.

    The remote task's states, messages and artifacts become the local task's as they stream. The
    remote task is canceled with the local one, gets its next turn, and is resumed after a broken
    connection or the death of the host. If the settings have no name, the card's name is derived.

    Raises:
        PeerProtocolError: there is no card, or its interfaces are not supported.
        PeerUnavailableError, PeerTimeoutError, PeerRefusedError: the card can't be read.
        ConfigurationError: the card's name is not valid for an agent; give a name.
    """
    from trunkline.a2a_client.a2a_client import A2AClient
    from trunkline.a2a_client.agent_card import derive_agent_name

    async with A2AClient(remote, ssl_context=ssl_context) as peer:
        card = (await peer.read_card()).card
        name = remote.name or derive_agent_name(card)
        if not name:
            problem = f"no agent name can be derived from {card.name[:100]!r}; pass a name"
            raise ConfigurationError(peer.name, problem)
        opened = RemoteAgent(name, RemoteAgentSettings(url=remote.url), peer)
        opened.update_card(card)
        yield opened
