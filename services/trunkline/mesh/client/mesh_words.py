"""The words for the state of a mesh, and readers of it, which the page and the commands share."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Final, TypeVar

from trunkline.core.backoff import Backoff
from trunkline.errors import PeerError, TrunklineError
from trunkline.v1 import registry_service_pb2, tool_service_pb2, trace_service_pb2

logger = logging.getLogger(__name__)

TOOL_SERVICE: Final = "trunkline.v1.ToolService"
TRACE_SERVICE: Final = "trunkline.v1.TraceService"

_Update = TypeVar("_Update")


def edge_kind(edge: trace_service_pb2.Edge) -> str:
    """Return what the calls of an edge are: `call`, `tool`, `model` or `message`."""
    if edge.kind == trace_service_pb2.EDGE_KIND_UNSPECIFIED:
        return ""
    return trace_service_pb2.EdgeKind.Name(edge.kind).removeprefix("EDGE_KIND_").lower()


def error_ratio(edge: trace_service_pb2.Edge) -> float:
    """Return the share of an edge's calls that failed, from 0 to 1."""
    return edge.error_count / edge.count if edge.count else 0.0


def tool_server_state(server: tool_service_pb2.ToolServer) -> str:
    """Return the state of an MCP server: its name in the contract."""
    if server.state == tool_service_pb2.TOOL_SERVER_STATE_UNSPECIFIED:
        return ""
    name = tool_service_pb2.ToolServerState.Name(server.state)
    return name.removeprefix("TOOL_SERVER_STATE_").lower()


def agent_kind(agent: registry_service_pb2.AgentRegistration) -> str:
    """Return what an agent is: `agent`, `supervisor`, `workflow`, `remote` or `participant`."""
    return agent.kind or "agent"


async def follow_updates(
    watch: Callable[[], AsyncGenerator[_Update, None]],
    apply: Callable[[_Update], None],
    answered: asyncio.Event | None = None,
) -> None:
    """Apply the updates of a service; begin again when its watch ends.

    `answered` is set after the first update, or when it is known that none comes at once.
    """
    backoff = Backoff()
    answered = answered or asyncio.Event()
    while True:
        try:
            async with aclosing(watch()) as updates:
                async for update in updates:
                    backoff.reset()
                    apply(update)
                    answered.set()
        except PeerError as error:
            # No host serves it, or it restarts.
            logger.debug("mesh.watch_ended", extra={"problem": str(error)})
        except TrunklineError as error:
            # A process that joined the mesh by a token reads neither traces nor tools.
            logger.info("mesh.watch_refused", extra={"problem": str(error)})
            answered.set()
            return
        answered.set()
        await backoff.pause()
