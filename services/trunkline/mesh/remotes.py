"""Remote A2A agents on the mesh: one in a process of its own, or those of the settings."""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from trunkline.agents.hosting import Attendance
from trunkline.agents.joining import join_mesh
from trunkline.client import running
from trunkline.client.breaker import BreakerSettings
from trunkline.runtime import Serving
from trunkline.settings import Remote, Settings
from trunkline.tasks.agent import Agent

if TYPE_CHECKING:
    from trunkline_bridge.outbound import RemoteAgent


@asynccontextmanager
async def serve_remote(settings: Settings, remote: Remote, *, name: str) -> AsyncIterator[Serving]:
    """Serve one remote agent as a process of its own; an empty name is its card's.

    Raises:
        ConfigurationError: an address can't be listened on, or the name is none for an agent.
        JournalUnavailableError: the data directory can't be used.
        PeerProtocolError: there is no card, or it has no interface that we speak.
        PeerUnavailableError, PeerTimeoutError, PeerRefusedError: it can't be asked for its card.
    """
    from trunkline_bridge.outbound import RemoteSettings, remote_agent

    given = RemoteSettings.of(name, remote, BreakerSettings.of(settings))
    attendance = Attendance()
    async with remote_agent(given) as found:
        note = partial(attendance.note, found.agent.card.name)
        agents: Sequence[Agent] = (found.agent,)
        async with (
            join_mesh(lambda _: agents, settings, attendance=attendance) as serving,
            running(found.keep(note)),
        ):
            yield serving


@dataclass(frozen=True, slots=True)
class Remotes:
    """The remote agents that settings name."""

    found: "Sequence[RemoteAgent]"
    attendance: Attendance
    """Who of them has been reached."""

    @property
    def agents(self) -> Sequence[Agent]:
        """What stands for them on a host."""
        return [one.agent for one in self.found]

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Read their cards for the length of a block: of those that are away, until they come."""
        async with AsyncExitStack() as stack:
            for one in self.found:
                note = partial(self.attendance.note, one.agent.card.name)
                await stack.enter_async_context(running(one.keep(note)))
            yield


@asynccontextmanager
async def open_remotes(settings: Settings) -> AsyncIterator[Remotes]:
    """Make agents of the remote ones that settings name, which needn't be there yet.

    Raises:
        ConfigurationError: a name is none for an agent, or credentials aren't there.
    """
    if not settings.remotes:
        # What dials out takes some memory.
        yield Remotes((), Attendance())
        return
    from trunkline_bridge.outbound import RemoteSettings, open_remote

    breaker = BreakerSettings.of(settings)
    async with AsyncExitStack() as stack:
        found = [
            await stack.enter_async_context(open_remote(RemoteSettings.of(name, remote, breaker)))
            for name, remote in settings.remotes.items()
        ]
        yield Remotes(found, Attendance(settings.remotes))
