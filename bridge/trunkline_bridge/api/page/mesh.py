"""The mesh for the page: hosts, agents, tool servers, rooms, and the calls between them."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from trunkline.a2a_wire.json_values import Json
from trunkline.mesh.client import Directory, run_in_background
from trunkline.mesh.client.mesh_words import (
    agent_kind,
    edge_kind,
    error_ratio,
    follow_updates,
    tool_server_state,
)
from trunkline.mesh.client.methods import read_responses
from trunkline.v1 import (
    messaging_service_pb2,
    registry_service_pb2,
    tool_service_pb2,
    trace_service_pb2,
)
from trunkline_bridge.api.messages.operations import ALL, MessageOperations
from trunkline_bridge.api.page.access import PageAccess, may_see, may_use
from trunkline_bridge.api.page.binding import API_PATH, PageEvent, PageStreams, Paths
from trunkline_bridge.callers.caller import Caller
from trunkline_bridge.http.sse import EventStreamResponse

_INTERVAL_S: Final = 1.0
# The first state waits so long for services that are slow to answer.
_FIRST_TIMEOUT_S: Final = 1.0
# Short texts are enough for a graph. The whole texts are in agent cards and lists of tools.
_TEXT_CHARS: Final = 200


_StartReader: TypeAlias = Callable[[asyncio.Event], Coroutine[None, None, None]]


@dataclass(slots=True)
class _Sources:
    """The latest updates of the mesh's services, for one reader."""

    tools: tool_service_pb2.WatchToolsResponse = field(
        default_factory=tool_service_pb2.WatchToolsResponse
    )
    edges: Sequence[trace_service_pb2.Edge] = ()
    rooms: Sequence[messaging_service_pb2.Room] | None = None
    """None means that the reader may not see them."""

    def set_tools(self, update: tool_service_pb2.WatchToolsResponse) -> None:
        self.tools = update

    def set_edges(self, update: trace_service_pb2.WatchEdgesResponse) -> None:
        self.edges = update.edges

    def set_rooms(self, update: Sequence[messaging_service_pb2.Room]) -> None:
        self.rooms = update


class PageMesh:
    """The state of the mesh.

    Operators see all of it, other callers only the agents that they may call.
    """

    def __init__(
        self,
        directory: Directory,
        messages: MessageOperations,
        access: PageAccess,
        streams: PageStreams,
    ) -> None:
        self._directory = directory
        self._messages = messages
        self._access = access
        self._streams = streams

    def paths(self) -> Paths:
        """Return the handlers of the paths."""
        return {f"{API_PATH}/mesh:watch": {"GET": self._watch}}

    async def _watch(
        self, caller: Caller, _params: Json, _path: Mapping[str, str]
    ) -> EventStreamResponse[PageEvent]:
        return self._streams.respond(caller, self._changes(caller))

    async def _changes(self, caller: Caller) -> AsyncGenerator[PageEvent, None]:
        """Yield the whole state now and after changes, at most once a second.

        Breakers change without a notice, so the state is built each second from local data. The
        first state has what all services answered.
        """
        sources = _Sources()
        async with AsyncExitStack() as stack:
            answers: list[asyncio.Event] = []
            for start_reader in self._readers(caller, sources):
                answers.append(asyncio.Event())
                await stack.enter_async_context(run_in_background(start_reader(answers[-1])))
            with suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_TIMEOUT_S):
                    for answered in answers:
                        await answered.wait()
            last: Json = {}
            while True:
                state = self._build(caller, sources)
                if state != last:
                    yield PageEvent("mesh", state)
                    last = state
                await asyncio.sleep(_INTERVAL_S)

    def _readers(self, caller: Caller, sources: _Sources) -> "Iterator[_StartReader]":
        """Yield functions that start readers of the changes that the caller may see."""
        directory = self._directory

        def watch_tools() -> AsyncGenerator[tool_service_pb2.WatchToolsResponse, None]:
            return directory.tool_client().watch_tools()

        def watch_edges() -> AsyncGenerator[trace_service_pb2.WatchEdgesResponse, None]:
            return read_responses(
                directory.trace_stub().WatchEdges(trace_service_pb2.WatchEdgesRequest())
            )

        if self._access.is_operator(caller):
            yield lambda answered: follow_updates(watch_tools, sources.set_tools, answered)
            yield lambda answered: follow_updates(watch_edges, sources.set_edges, answered)
        if may_use(caller, ALL, "ListRooms"):
            sources.rooms = ()
            yield lambda answered: follow_updates(
                lambda: self._messages.watch_rooms(caller), sources.set_rooms, answered
            )

    def _build(self, caller: Caller, sources: _Sources) -> Json:
        directory, is_operator = self._directory, self._access.is_operator(caller)
        breakers, host_breakers = directory.agent_breaker_states(), directory.breaker_states()
        if is_operator:
            agents = [
                _render_agent(agent, host.host_id, host_breakers.get(host.address, ""))
                for host in directory.hosts
                for agent in host.agents
                if may_see(caller, agent.card.name)
            ]
        else:
            # Only operators see which replicas an agent has.
            agents = [
                _render_agent(agent, "", breakers.get(name, ""))
                for name, agent in directory.list_agents().items()
                if may_see(caller, name)
            ]
        return {
            "hosts": [_render_host(*host) for host in directory.list_host_states() if is_operator],
            "agents": agents,
            "toolServers": list(_render_tools(sources.tools)),
            "rooms": None if sources.rooms is None else list(_render_rooms(sources.rooms)),
            "edges": [_render_edge(edge, breakers) for edge in sources.edges],
        }


def _render_host(host: registry_service_pb2.Host, state: str) -> Json:
    return {
        "id": host.host_id,
        "address": host.address,
        "agents": [agent.card.name for agent in host.agents],
        "services": list(host.services),
        "leaseUntil": host.lease_expire_time.ToJsonString(),
        "state": state,
        "openTurns": host.load.open_turns,
    }


def _render_agent(
    agent: registry_service_pb2.AgentRegistration, host_id: str, breaker: str
) -> Json:
    card = agent.card
    return {
        "name": card.name,
        "version": card.version,
        "description": card.description[:_TEXT_CHARS],
        "skills": [{"name": skill.name, "tags": list(skill.tags)} for skill in card.skills],
        "host": host_id,
        "kind": agent_kind(agent),
        # A breaker of an agent outside the mesh says more than the breaker of its host.
        "breaker": agent.breaker or breaker,
    }


def _render_tools(listing: tool_service_pb2.WatchToolsResponse) -> Iterator[Json]:
    for server in listing.servers:
        yield {
            "name": server.name,
            "state": tool_server_state(server),
            "error": server.error,
            "listingProblems": list(server.listing_problems),
            "agents": list(server.agents),
            "tools": [
                {
                    "name": tool.name,
                    "description": tool.description[:_TEXT_CHARS],
                    "readOnly": tool.read_only,
                }
                for tool in listing.tools
                if tool.server == server.name
            ],
            "breaker": server.breaker,
        }


def _render_rooms(rooms: Sequence[messaging_service_pb2.Room]) -> Iterator[Json]:
    for room in rooms:
        yield {"name": room.name, "members": list(room.members)}


def _render_edge(edge: trace_service_pb2.Edge, breakers: Mapping[str, str]) -> Json:
    return {
        "from": edge.source,
        "to": edge.target,
        "kind": edge_kind(edge),
        "count": edge.count,
        "ratePerS": edge.rate_per_s,
        "errorRatio": error_ratio(edge),
        "p50Ms": edge.p50_ms,
        "p95Ms": edge.p95_ms,
        "breaker": breakers.get(edge.target, ""),
    }
