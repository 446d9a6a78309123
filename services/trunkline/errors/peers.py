"""Errors of another process on the path of a call; a retry may help."""

from dataclasses import dataclass
from typing import ClassVar

from trunkline.errors.error import Code, TrunklineError


@dataclass(eq=False)
class PeerError(TrunklineError):
    """Another process failed; a retry may help."""


@dataclass(eq=False)
class OverloadedError(PeerError):
    """The agent's queue is full."""

    agent: str
    retry_after_s: str
    code: ClassVar[Code] = Code.RESOURCE_EXHAUSTED
    reason: ClassVar[str] = "OVERLOADED"
    retryable: ClassVar[bool] = True
    template: ClassVar[str] = "agent {agent!r} is full; try again in {retry_after_s} s"


@dataclass(eq=False)
class PeerUnavailableError(PeerError):
    """The peer can't be reached, or is shutting down."""

    peer: str
    problem: str
    code: ClassVar[Code] = Code.UNAVAILABLE
    reason: ClassVar[str] = "PEER_UNAVAILABLE"
    retryable: ClassVar[bool] = True
    template: ClassVar[str] = "{peer} can't be reached: {problem}"


@dataclass(eq=False)
class ToolServerUnavailableError(PeerError):
    """The MCP server is down and is being restarted."""

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
    """The writer has lost its lease, and another host owns the task."""

    task_id: str
    code: ClassVar[Code] = Code.ABORTED
    reason: ClassVar[str] = "FENCED"
    template: ClassVar[str] = "task {task_id!r} has another owner now; this write is refused"


@dataclass(eq=False)
class PeerRefusedError(PeerError):
    """A peer outside the mesh refused the call; a retry does not help."""

    peer: str
    problem: str
    refusal: str
    """The peer's reason, as in A2A's ErrorInfo."""
    code: ClassVar[Code] = Code.FAILED_PRECONDITION
    reason: ClassVar[str] = "PEER_REFUSED"
    template: ClassVar[str] = "{peer} refused: {problem}"


@dataclass(eq=False)
class PeerProtocolError(PeerError):
    """The peer's response violates the protocol."""

    peer: str
    problem: str
    code: ClassVar[Code] = Code.INTERNAL
    reason: ClassVar[str] = "PEER_PROTOCOL"
    template: ClassVar[str] = "{peer} broke the protocol: {problem}"
