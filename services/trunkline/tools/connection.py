"""What a session with an MCP server runs over: a process of ours, or an address elsewhere."""

import asyncio
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, Protocol

STDERR_SEPARATOR: Final = "; its last words: "
"""Stands between a problem at a server's start and what that said of it, differently each time."""


class ServerConnection(Protocol):
    """A way to one MCP server, as long as it lasts."""

    name: str
    has_ended: asyncio.Event
    """Set as soon as nothing more will come from it."""
    is_expired: bool
    """It ended only since the server has forgotten the session: a new one may be opened at once."""

    transport_error: str
    """What was wrong with its latest answer that was no message, in a line; empty: nothing."""

    @property
    def pid(self) -> int | None:
        """The id of its process, if it is one of ours."""
        ...

    def mark_broken(self, problem: str) -> None:
        """Declare it broken: whoever waits for `has_ended` ends it."""
        ...

    async def describe_end(self, when: str = "") -> str:
        """Say in a line why it has ended; `when` is added where that says more."""
        ...

    async def describe_failed_start(self) -> str:
        """Say in a line why it has ended before it was ready, and what it said itself of that."""
        ...


@dataclass(slots=True)
class RequestOutcome:
    """What became of the message of a call on its way."""

    is_undelivered: bool = False
    """It came to no tool."""
    is_server_down: bool = False
    """The server was there, and is not now; the call may have been taken."""
    problem: str = ""


request_outcome: ContextVar[RequestOutcome | None] = ContextVar("sending", default=None)
"""Set around a call: the SDK sends each message in the context of whoever has asked for it."""


class CallNotDeliveredError(Exception):
    """A call came to no tool: no connection, or the session had expired. It may be made again."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem


def raise_if_cancelled() -> None:
    """Raise CancelledError again where something else has come in its place."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
