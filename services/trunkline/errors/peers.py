"""Errors of another hop: trying again may help."""

from dataclasses import dataclass
from typing import ClassVar

from trunkline.errors.error import Code, TrunklineError


@dataclass(eq=False)
class PeerError(TrunklineError):
    """Another hop failed; trying again may help."""


@dataclass(eq=False)
class OverloadedError(PeerError):
    """The admission queue is full."""

    agent: str
    retry_after_s: str
    code: ClassVar[Code] = Code.RESOURCE_EXHAUSTED
    reason: ClassVar[str] = "OVERLOADED"
    retryable: ClassVar[bool] = True
    template: ClassVar[str] = "agent {agent!r} is full; try again in {retry_after_s} s"


@dataclass(eq=False)
class PeerUnavailableError(PeerError):
    """The peer can't be reached, or is going away."""

    peer: str
    problem: str
    code: ClassVar[Code] = Code.UNAVAILABLE
    reason: ClassVar[str] = "PEER_UNAVAILABLE"
    retryable: ClassVar[bool] = True
    template: ClassVar[str] = "{peer} can't be reached: {problem}"


@dataclass(eq=False)
class ToolServerUnavailableError(PeerError):
    """The MCP server is down; it is being started again."""

    server: str
    problem: str
    code: ClassVar[Code] = Code.UNAVAILABLE
    reason: ClassVar[str] = "TOOL_SERVER_UNAVAILABLE"
    retryable: ClassVar[bool] = True
    template: ClassVar[str] = "tool server {server!r} is down: {problem}"


@dataclass(eq=False)
class JournalUnavailableError(PeerError):
    """The journal can't be opened, read or written."""

    path: str
    problem: str
    code: ClassVar[Code] = Code.UNAVAILABLE
    reason: ClassVar[str] = "JOURNAL_UNAVAILABLE"
    template: ClassVar[str] = "journal {path}: {problem}"


@dataclass(eq=False)
class PeerTimeoutError(PeerError):
    """The peer didn't answer in time."""

    peer: str
    problem: str
    code: ClassVar[Code] = Code.DEADLINE_EXCEEDED
    reason: ClassVar[str] = "PEER_TIMEOUT"
    retryable: ClassVar[bool] = True
    template: ClassVar[str] = "{peer} did not answer in time: {problem}"


@dataclass(eq=False)
class FencedError(PeerError):
    """The writer has lost its lease: somebody else owns the task now."""

    task_id: str
    code: ClassVar[Code] = Code.ABORTED
    reason: ClassVar[str] = "FENCED"
    template: ClassVar[str] = "task {task_id!r} has another owner now; this write is refused"


@dataclass(eq=False)
class PeerRefusedError(PeerError):
    """A peer outside the mesh said no; trying again won't help."""

    peer: str
    problem: str
    refusal: str
    """Its own reason, as A2A's ErrorInfo names it."""
    code: ClassVar[Code] = Code.FAILED_PRECONDITION
    reason: ClassVar[str] = "PEER_REFUSED"
    template: ClassVar[str] = "{peer} refused: {problem}"


@dataclass(eq=False)
class PeerProtocolError(PeerError):
    """The peer answered nonsense."""

    peer: str
    problem: str
    code: ClassVar[Code] = Code.INTERNAL
    reason: ClassVar[str] = "PEER_PROTOCOL"
    template: ClassVar[str] = "{peer} broke the protocol: {problem}"
