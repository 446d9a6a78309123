"""A remote A2A agent as an agent of this mesh: `remote_agent`."""

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

from trunkline import FunctionAgent, TaskContext, agent, get_turn_runtime
from trunkline.client import Backoff
from trunkline.errors import (
    ConfigurationError,
    PeerProtocolError,
    PeerRefusedError,
    PeerUnavailableError,
    TaskNotCancelableError,
    TaskNotFoundError,
    TrunklineError,
)
from trunkline.v1 import agent_card_pb2
from trunkline_bridge.client.a2a_client import A2AClient
from trunkline_bridge.client.agent_card import build_local_card, derive_agent_name
from trunkline_bridge.client.remote_turn import RemoteTurn
from trunkline_bridge.client.settings import RemoteSettings

logger = logging.getLogger(__name__)

# Delays between attempts to read the card of an agent that has not been reached yet.
_FIRST_RETRY_S: Final = 1.0
_MAX_RETRY_S: Final = 30.0


class RemoteAgent:
    """An agent of this mesh that delegates its tasks to a remote agent."""

    def __init__(self, peer: A2AClient, name: str) -> None:
        peer.rename(name)
        self.agent: FunctionAgent = self._build_agent(name)
        """Runs on a host. Its card is a local copy of the remote agent's card."""
        self.card_known = asyncio.Event()
        """Set when the card has been read."""
        self._peer = peer

    async def read_card(self) -> bool:
        """Read the remote agent's card; return whether the local card changed.

        Raises:
            PeerProtocolError: There is no card, or its interfaces are not supported.
            PeerUnavailableError, PeerTimeoutError, PeerRefusedError: The request failed.
        """
        return self.update_card((await self._peer.read_card()).card)

    def update_card(self, remote: agent_card_pb2.AgentCard) -> bool:
        """Update the local card from the remote one; return whether it changed."""
        card = build_local_card(remote, self.agent.card.name)
        has_changed = not self.card_known.is_set() or card != self.agent.card
        self.agent.card.CopyFrom(card)
        self.card_known.set()
        return has_changed

    async def refresh_card(self, on_change: Callable[[], None]) -> None:
        """Read the card until it succeeds, then every `refresh_s`; never returns.

        `on_change` is called when the local card has changed.
        """
        if self.card_known.is_set():
            await asyncio.sleep(self._peer.settings.refresh_s)
        backoff = Backoff(first_s=_FIRST_RETRY_S, limit_s=_MAX_RETRY_S)
        last_problem = ""
        while True:
            try:
                if await self.read_card():
                    on_change()
                last_problem = ""
            except TrunklineError as error:
                if str(error) != last_problem:
                    logger.warning(
                        "remote.no_card",
                        extra={"agent": self.agent.card.name, "problem": str(error)},
                    )
                last_problem = str(error)
            if self.card_known.is_set():
                await asyncio.sleep(self._peer.settings.refresh_s)
            else:
                await backoff.pause()

    def _build_agent(self, name: str) -> FunctionAgent:
        @agent(
            name=name,
            description="A remote agent that has not been reached yet.",
            input_modes=("*/*",),
            direct_replies=True,
            resumable=True,
        )
        async def delegate(task: TaskContext) -> None:
            """Run the turn on the remote agent. After a takeover the turn continues there."""
            await self._wait_for_card()
            await RemoteTurn(get_turn_runtime(task), self._peer).run()

        return replace(delegate, cancel_remote=self._cancel_task)

    async def _cancel_task(self, task_id: str) -> None:
        """Cancel a remote task.

        Raises:
            TaskNotFoundError, TaskNotCancelableError: The remote agent can't cancel the task.
            PeerUnavailableError, PeerTimeoutError: The caller should try again.
        """
        await self._wait_for_card()
        try:
            await self._peer.cancel_task(task_id)
        except PeerRefusedError as error:
            if error.refusal == "TASK_NOT_FOUND":
                raise TaskNotFoundError(task_id) from None
            raise TaskNotCancelableError(task_id, error.problem) from None
        except PeerProtocolError as error:
            raise TaskNotCancelableError(task_id, error.problem) from None

    async def _wait_for_card(self) -> None:
        try:
            async with asyncio.timeout(self._peer.settings.patience_s):
                await self.card_known.wait()
        except TimeoutError:
            raise PeerUnavailableError(self._peer.name, "its card could not be read") from None


@asynccontextmanager
async def open_remote_agent(
    settings: RemoteSettings, *, ssl_context: ssl.SSLContext | None = None
) -> AsyncIterator[RemoteAgent]:
    """Open a remote agent under the name of its settings, without calling it.

    Call `read_card` or `refresh_card` next.

    Raises:
        ConfigurationError: The name is not valid for an agent.
    """
    async with A2AClient(settings, ssl_context=ssl_context) as peer:
        yield RemoteAgent(peer, settings.name)


@asynccontextmanager
async def connect_remote_agent(
    remote: str | RemoteSettings,
    *,
    name: str = "",
    headers: Mapping[str, str] | None = None,
    ssl_context: ssl.SSLContext | None = None,
) -> AsyncIterator[RemoteAgent]:
    """Read a remote A2A agent's card and open the agent.

    The remote task's states, messages and artifacts become the local task's as they stream. The
    remote task is canceled with the local one, gets its next turn, and is resumed after a broken
    connection or the death of the host.

    Args:
        remote: The URL of the agent or of its card, or settings that include all other arguments.
        name: The agent's name on this mesh; if empty, derived from the card's name.
        headers: Sent with every request.
        ssl_context: Trusted certificates; the system's if None.

    Raises:
        PeerProtocolError: There is no card, or its interfaces are not supported.
        PeerUnavailableError, PeerTimeoutError, PeerRefusedError: The card can't be read.
        ConfigurationError: The card's name is not valid for an agent; pass `name`.
    """
    if isinstance(remote, str):
        remote = RemoteSettings(url=remote, name=name, headers=dict(headers or {}))
    async with A2AClient(remote, ssl_context=ssl_context) as peer:
        card = (await peer.read_card()).card
        agent_name = remote.name or derive_agent_name(card)
        if not agent_name:
            problem = f"no agent name can be derived from {card.name[:100]!r}; pass a name"
            raise ConfigurationError(peer.name, problem)
        opened = RemoteAgent(peer, agent_name)
        opened.update_card(card)
        yield opened
