"""The connection of an MCP session: to a child process over stdio, or to a URL over HTTP."""

import asyncio
import logging
from contextvars import Context, ContextVar
from dataclasses import dataclass
from typing import ClassVar, Final

from trunkline.tools.pace import Pace

logger = logging.getLogger(__name__)

STDERR_SEPARATOR: Final = "; its stderr ends with: "
"""Separates a problem from the tail of stderr, which may differ at each start."""

OPEN_CALL_PREFIX: Final = "open-call:"
"""Begins the handles of calls that stay open in their session. Other handles are of tasks."""


PACED: Final = "tool_server.paced"
"""The event of the log when a server is read more slowly than it sends."""

# A server that repeats a fault must not fill the log.
_WARNING_PAUSE_S = 3600.0


class ServerWarnings:
    """The warnings about what one server sends. Each kind is logged at most once an hour."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._times: dict[str, float] = {}

    def warn(self, event: str, problem: str) -> None:
        """Log a warning, unless one of this event and problem was logged within the hour.

        The problem quotes nothing that the server sent.
        """
        now = asyncio.get_running_loop().time()
        key = f"{event} {problem}"
        if now - self._times.get(key, -_WARNING_PAUSE_S) < _WARNING_PAUSE_S:
            return
        self._times[key] = now
        # In an empty context: the SDK's reader runs in the context that opened the session.
        extra = {"server": self._server, "problem": problem}
        Context().run(logger.warning, event, extra=extra)


class ServerConnection:
    """A connection to one MCP server, from its start to its end."""

    transport: ClassVar[str]
    """The name of the network transport in metrics, by OpenTelemetry's conventions."""

    def __init__(self, name: str, warnings: ServerWarnings) -> None:
        self.name = name
        self.warnings = warnings
        self.pace = Pace(lambda: warnings.warn(PACED, "it sends more than is read"))
        """Bounds how fast the messages of the server are read."""
        self.has_ended = asyncio.Event()
        """Set as soon as the server will send nothing more."""
        self.is_expired = False
        """The server dropped the session. A new session may be opened at once."""
        self.problem = ""
        """The reason why the connection was declared broken, in one line, or ""."""
        self.transport_error = ""
        """The problem with the latest response that was no MCP message, in one line, or ""."""

    @property
    def pid(self) -> int | None:
        """The id of the server's process, or None for a server that we did not start."""
        return None

    def mark_broken(self, problem: str) -> None:
        """Declare the connection broken, and set `has_ended`."""
        self.problem = self.problem or problem
        self.has_ended.set()

    def expire(self) -> None:
        """Record that the server dropped the session."""
        self.is_expired = True
        self.mark_broken("its session has expired")

    async def describe_end(self, when: str = "") -> str:
        """Return why the connection ended, in one line. `when` is appended if it adds anything."""
        return self.problem

    async def describe_failed_start(self) -> str:
        """Return why it ended before it was ready, in one line, with the tail of stderr."""
        return self.problem


@dataclass(slots=True, weakref_slot=True)
class RequestOutcome:
    """The outcome of the latest request of a call.

    The SDK reports its own errors as errors of JSON-RPC with codes that servers use as well, so an
    answer alone does not show the outcome.
    """

    is_answered: bool = False
    """A response arrived. Over HTTP, `is_server_down` marks responses that the SDK made."""
    is_undelivered: bool = False
    """The request reached no tool."""
    is_server_down: bool = False
    """The server went down, or its response broke off. It may have received the request."""
    problem: str = ""
    is_unacceptable: bool = False
    """The answer exceeds a limit, which `problem` names."""


request_outcome: ContextVar[RequestOutcome | None] = ContextVar("request_outcome", default=None)
"""Set around a call. The MCP SDK sends each message in the context of its caller."""


class CallNotDeliveredError(Exception):
    """A call reached no tool: there is no connection, or the session expired. It may be retried."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


def raise_if_cancelled() -> None:
    """Raise CancelledError if this task was cancelled and another error replaced it."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
