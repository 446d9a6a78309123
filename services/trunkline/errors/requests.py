"""Errors that the caller fixes by changing the request."""

from dataclasses import dataclass
from typing import ClassVar

from trunkline.errors.error import Code, TrunklineError


@dataclass(eq=False)
class RequestError(TrunklineError):
    """The caller must change the request."""


@dataclass(eq=False)
class InvalidArgumentError(RequestError):
    """A field of the request is missing or wrong."""

    field: str
    problem: str
    code: ClassVar[Code] = Code.INVALID_ARGUMENT
    reason: ClassVar[str] = "INVALID_ARGUMENT"
    template: ClassVar[str] = "{field}: {problem}"


@dataclass(eq=False)
class ContentTypeNotSupportedError(RequestError):
    """The agent does not accept parts of this media type."""

    media_type: str
    supported: str
    code: ClassVar[Code] = Code.INVALID_ARGUMENT
    reason: ClassVar[str] = "CONTENT_TYPE_NOT_SUPPORTED"
    template: ClassVar[str] = "media type {media_type!r} is not supported; send one of: {supported}"


@dataclass(eq=False)
class MessageKeyReusedError(RequestError):
    """The message id was used for another message before."""

    message_id: str
    code: ClassVar[Code] = Code.INVALID_ARGUMENT
    reason: ClassVar[str] = "MESSAGE_KEY_REUSED"
    template: ClassVar[str] = (
        "message id {message_id!r} was used for another message; choose a new one"
    )


@dataclass(eq=False)
class AgentNotFoundError(RequestError):
    """No living host has this agent."""

    agent: str
    code: ClassVar[Code] = Code.NOT_FOUND
    reason: ClassVar[str] = "AGENT_NOT_FOUND"
    template: ClassVar[str] = "no agent {agent!r} is on the mesh"
    hint: ClassVar[str] = "`trunkline agents` lists all agents"


@dataclass(eq=False)
class TaskNotFoundError(RequestError):
    """No such task: it never existed, was purged, or belongs to another account."""

    task_id: str
    code: ClassVar[Code] = Code.NOT_FOUND
    reason: ClassVar[str] = "TASK_NOT_FOUND"
    template: ClassVar[str] = "no task {task_id!r} here"
    hint: ClassVar[str] = "`trunkline tasks` lists your tasks"


@dataclass(eq=False)
class WebhookNotFoundError(RequestError):
    """The task has no such webhook, which A2A calls a push notification config."""

    task_id: str
    config_id: str
    code: ClassVar[Code] = Code.NOT_FOUND
    reason: ClassVar[str] = "WEBHOOK_NOT_FOUND"
    template: ClassVar[str] = "task {task_id!r} has no push notification config {config_id!r}"


@dataclass(eq=False)
class ArtifactNotFoundError(RequestError):
    """The task has no such artifact."""

    task_id: str
    artifact_id: str
    code: ClassVar[Code] = Code.NOT_FOUND
    reason: ClassVar[str] = "ARTIFACT_NOT_FOUND"
    template: ClassVar[str] = "task {task_id!r} has no artifact {artifact_id!r}"


@dataclass(eq=False)
class ToolNotFoundError(RequestError):
    """The configuration has no such server, or the server has no such tool."""

    server: str
    tool: str
    code: ClassVar[Code] = Code.NOT_FOUND
    reason: ClassVar[str] = "TOOL_NOT_FOUND"
    template: ClassVar[str] = "no tool {server}/{tool}"
    hint: ClassVar[str] = "`trunkline tools` lists the tools"


@dataclass(eq=False)
class TraceNotFoundError(RequestError):
    """The span store has no spans of this trace or task."""

    trace_id: str
    code: ClassVar[Code] = Code.NOT_FOUND
    reason: ClassVar[str] = "TRACE_NOT_FOUND"
    template: ClassVar[str] = "no trace of {trace_id!r}; spans arrive up to a second after the work"


@dataclass(eq=False)
class HostNotFoundError(RequestError):
    """The host never registered, or its lease has run out."""

    host_id: str
    code: ClassVar[Code] = Code.NOT_FOUND
    reason: ClassVar[str] = "HOST_NOT_FOUND"
    template: ClassVar[str] = (
        "host {host_id!r} is not registered, or its lease ran out; register again"
    )


@dataclass(eq=False)
class ApprovalNotFoundError(RequestError):
    """The task never requested this approval."""

    approval_id: str
    code: ClassVar[Code] = Code.NOT_FOUND
    reason: ClassVar[str] = "APPROVAL_NOT_FOUND"
    template: ClassVar[str] = "no approval {approval_id!r} here"
    hint: ClassVar[str] = "`trunkline approvals` lists the pending approvals"


@dataclass(eq=False)
class AgentNameTakenError(RequestError):
    """Another living host has an agent of this name."""

    agent: str
    address: str
    code: ClassVar[Code] = Code.FAILED_PRECONDITION
    reason: ClassVar[str] = "AGENT_NAME_TAKEN"
    template: ClassVar[str] = "agent {agent!r} is already served at {address}; choose another name"


@dataclass(eq=False)
class TaskNotCancelableError(RequestError):
    """The task has ended."""

    task_id: str
    state: str
    code: ClassVar[Code] = Code.FAILED_PRECONDITION
    reason: ClassVar[str] = "TASK_NOT_CANCELABLE"
    template: ClassVar[str] = "task {task_id!r} can't be canceled: it is {state}"


@dataclass(eq=False)
class TaskEndedError(RequestError):
    """The task has ended and takes no more messages or subscribers."""

    task_id: str
    state: str
    code: ClassVar[Code] = Code.FAILED_PRECONDITION
    reason: ClassVar[str] = "TASK_ENDED"
    template: ClassVar[str] = (
        "task {task_id!r} has ended ({state}); send a message without a task id"
    )


@dataclass(eq=False)
class ApprovalAnsweredError(RequestError):
    """The approval already has a different answer."""

    approval_id: str
    decision: str
    code: ClassVar[Code] = Code.FAILED_PRECONDITION
    reason: ClassVar[str] = "APPROVAL_ANSWERED"
    template: ClassVar[str] = "approval {approval_id!r} was answered before: it is {decision}"


@dataclass(eq=False)
class ConfigurationError(RequestError):
    """A setting, a file or a flag is wrong."""

    where: str
    problem: str
    code: ClassVar[Code] = Code.FAILED_PRECONDITION
    reason: ClassVar[str] = "CONFIGURATION_INVALID"
    template: ClassVar[str] = "{where}: {problem}"


@dataclass(eq=False)
class UnsupportedOperationError(RequestError):
    """This agent or this mesh does not support the operation."""

    operation: str
    problem: str
    code: ClassVar[Code] = Code.UNIMPLEMENTED
    reason: ClassVar[str] = "UNSUPPORTED_OPERATION"
    template: ClassVar[str] = "{operation} is not supported: {problem}"


@dataclass(eq=False)
class CursorExpiredError(RequestError):
    """The cursor is past retention, in a compacted range, or from another epoch."""

    task_id: str
    after: str
    snapshot_sequence: str
    code: ClassVar[Code] = Code.OUT_OF_RANGE
    reason: ClassVar[str] = "CURSOR_EXPIRED"

    template: ClassVar[str] = (
        "events of task {task_id!r} after {after} are gone; "
        "read the snapshot at {snapshot_sequence} and continue from there"
    )
