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

# How often a remote agent that was away from the start is looked for.
_FIRST_RETRY_S: Final = 1.0
_MAX_RETRY_S: Final = 30.0


class RemoteAgent:
    """A remote agent on this mesh: the agent that stands for it, and its card's keeper."""

    def __init__(self, peer: A2AClient, name: str) -> None:
        peer.rename(name)
        self.agent: FunctionAgent = self._build_agent(name)
        """What runs on a host. Its card is the remote agent's, as it was read last."""
        self.card_known = asyncio.Event()
        """Set once the card was read."""
        self._peer = peer

    async def read_card(self) -> bool:
        """Read the remote agent's card; return whether ours is another one now.

        Raises:
            PeerProtocolError: what is there is no card, or names no interface that we speak.
            PeerUnavailableError, PeerTimeoutError, PeerRefusedError.
        """
        return self.update_card((await self._peer.read_card()).card)

    def update_card(self, remote: agent_card_pb2.AgentCard) -> bool:
        """Make a card that was read ours; return whether ours is another one now."""
        card = build_local_card(remote, self.agent.card.name)
        is_other = not self.card_known.is_set() or card != self.agent.card
        self.agent.card.CopyFrom(card)
        self.card_known.set()
        return is_other

    async def refresh_card(self, on_change: Callable[[], None]) -> None:
        """Read the card until it is there, and then again now and then; never returns.

        `on_change` is called whenever ours is another one.
        """
        if self.card_known.is_set():
            await asyncio.sleep(self._peer.settings.refresh_s)
        backoff = Backoff(first_s=_FIRST_RETRY_S, limit_s=_MAX_RETRY_S)
        told = ""
        while True:
            try:
                if await self.read_card():
                    on_change()
                told = ""
            except TrunklineError as error:
                if str(error) != told:
                    logger.warning(
                        "remote.no_card",
                        extra={"agent": self.agent.card.name, "problem": str(error)},
                    )
                told = str(error)
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
        async def pass_on(task: TaskContext) -> None:
            """Have the remote agent do it. What was written stays: it is gone on from."""
            await self._wait_for_card()
            await RemoteTurn(get_turn_runtime(task), self._peer).run()

        return replace(pass_on, cancel_remote=self._cancel_task)

    async def _cancel_task(self, task_id: str) -> None:
        """Cancel a remote task.

        Raises:
            TaskNotFoundError, TaskNotCancelableError: there is nothing more to cancel, or no way.
            PeerUnavailableError, PeerTimeoutError: that is to be tried again.
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
    """Make an agent of a remote one without asking it anything: call `read_card` or `keep` next.

    Raises:
        ConfigurationError: the name is none that an agent can have.
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
    """Make an agent of a remote A2A agent, given by its URL, or that of its card.

    What it says becomes our task: states, messages, artifacts as they stream. Its task is canceled
    with ours, continued by our next turn, and found again after a broken connection or the death
    of our host. `name` is what it is called here, if empty as its card has it; `headers` go with
    each request. Settings stand for a URL and all of these.

    Raises:
        PeerProtocolError: there is no card, or it has no interface that we speak.
        PeerUnavailableError, PeerTimeoutError, PeerRefusedError: it can't be asked for its card.
        ConfigurationError: its name is none for an agent; give another one.
    """
    if isinstance(remote, str):
        remote = RemoteSettings(url=remote, name=name, headers=dict(headers or {}))
    async with A2AClient(remote, ssl_context=ssl_context) as peer:
        card = (await peer.read_card()).card
        found = remote.name or derive_agent_name(card)
        if not found:
            problem = f"no name for an agent can be made of {card.name[:100]!r}; give one"
            raise ConfigurationError(peer.name, problem)
        known = RemoteAgent(peer, found)
        known.update_card(card)
        yield known
