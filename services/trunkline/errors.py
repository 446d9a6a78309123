"""Every deliberate error of the mesh. Each protocol maps them once, in its own table.

TrunklineError                       .code .reason .retryable .metadata()
├─ RequestError                      the caller must change the request
│  ├─ InvalidArgumentError           INVALID_ARGUMENT     INVALID_ARGUMENT
│  ├─ ContentTypeNotSupportedError   INVALID_ARGUMENT     CONTENT_TYPE_NOT_SUPPORTED
│  ├─ MessageKeyReusedError          INVALID_ARGUMENT     MESSAGE_KEY_REUSED
│  ├─ AgentNotFoundError             NOT_FOUND            AGENT_NOT_FOUND
│  ├─ TaskNotFoundError              NOT_FOUND            TASK_NOT_FOUND
│  ├─ WebhookNotFoundError           NOT_FOUND            WEBHOOK_NOT_FOUND
│  ├─ ArtifactNotFoundError          NOT_FOUND            ARTIFACT_NOT_FOUND
│  ├─ ToolNotFoundError              NOT_FOUND            TOOL_NOT_FOUND
│  ├─ TraceNotFoundError             NOT_FOUND            TRACE_NOT_FOUND
│  ├─ EnvelopeNotFoundError          NOT_FOUND            ENVELOPE_NOT_FOUND
│  ├─ HostNotFoundError              NOT_FOUND            HOST_NOT_FOUND
│  ├─ ApprovalNotFoundError          NOT_FOUND            APPROVAL_NOT_FOUND
│  ├─ TaskExistsError                ALREADY_EXISTS       TASK_EXISTS
│  ├─ TaskNotCancelableError         FAILED_PRECONDITION  TASK_NOT_CANCELABLE
│  ├─ TaskEndedError                 FAILED_PRECONDITION  TASK_ENDED
│  ├─ ApprovalAnsweredError          FAILED_PRECONDITION  APPROVAL_ANSWERED
│  ├─ ConfigurationError             FAILED_PRECONDITION  CONFIGURATION_INVALID
│  ├─ TreeLimitError                 FAILED_PRECONDITION  TREE_LIMIT
│  ├─ UnauthenticatedError           UNAUTHENTICATED      UNAUTHENTICATED
│  ├─ UserNotProvenError             UNAUTHENTICATED      USER_NOT_PROVEN
│  ├─ PermissionDeniedError          PERMISSION_DENIED    PERMISSION_DENIED
│  ├─ UnsupportedOperationError      UNIMPLEMENTED        UNSUPPORTED_OPERATION
│  └─ CursorExpiredError             OUT_OF_RANGE         CURSOR_EXPIRED
├─ PeerError                         another process failed; a retry may help
│  ├─ OverloadedError                RESOURCE_EXHAUSTED   OVERLOADED
│  ├─ QueueFullError                 RESOURCE_EXHAUSTED   QUEUE_FULL
│  ├─ LimitExceededError             RESOURCE_EXHAUSTED   LIMIT_EXCEEDED
│  ├─ PeerUnavailableError           UNAVAILABLE          PEER_UNAVAILABLE
│  │  ├─ PeerHandshakeError          UNAVAILABLE          PEER_HANDSHAKE
│  │  ├─ PeerCircuitOpenError        UNAVAILABLE          PEER_CIRCUIT_OPEN
│  │  └─ TaskHostGoneError           UNAVAILABLE          TASK_HOST_GONE
│  ├─ ToolServerUnavailableError     UNAVAILABLE          TOOL_SERVER_UNAVAILABLE
│  ├─ JournalUnavailableError        UNAVAILABLE          JOURNAL_UNAVAILABLE
│  ├─ PeerTimeoutError               DEADLINE_EXCEEDED    PEER_TIMEOUT
│  ├─ FencedError                    ABORTED              FENCED
│  ├─ PeerRefusedError               FAILED_PRECONDITION  PEER_REFUSED
│  ├─ SignInFailedError              FAILED_PRECONDITION  SIGN_IN_FAILED
│  └─ PeerProtocolError              INTERNAL             PEER_PROTOCOL
├─ AgentError                        the agent's code or its model failed
│  ├─ InvalidAgentResponseError      INTERNAL             INVALID_AGENT_RESPONSE
│  ├─ AgentCallError                 FAILED_PRECONDITION  AGENT_CALL
│  ├─ StepLimitError                 FAILED_PRECONDITION  STEP_LIMIT
│  ├─ WorkflowFailedError            FAILED_PRECONDITION  WORKFLOW_FAILED
│  ├─ TokenLimitError                FAILED_PRECONDITION  TOKEN_LIMIT
│  └─ ModelUnavailableError          UNAVAILABLE          MODEL_UNAVAILABLE
│     └─ ModelOverflowError          UNAVAILABLE          MODEL_UNAVAILABLE
└─ InternalError                     INTERNAL             INTERNAL   a defect
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import ClassVar, Final, Self

ERROR_DOMAIN: Final = "trunkline.dev"
"""The domain of our errors in google.rpc.ErrorInfo."""


class Code(StrEnum):
    """Status codes by their google.rpc names."""

    CANCELLED = "CANCELLED"
    UNKNOWN = "UNKNOWN"
    INVALID_ARGUMENT = "INVALID_ARGUMENT"
    DEADLINE_EXCEEDED = "DEADLINE_EXCEEDED"
    NOT_FOUND = "NOT_FOUND"
    ALREADY_EXISTS = "ALREADY_EXISTS"
    PERMISSION_DENIED = "PERMISSION_DENIED"
    RESOURCE_EXHAUSTED = "RESOURCE_EXHAUSTED"
    FAILED_PRECONDITION = "FAILED_PRECONDITION"
    ABORTED = "ABORTED"
    OUT_OF_RANGE = "OUT_OF_RANGE"
    UNIMPLEMENTED = "UNIMPLEMENTED"
    INTERNAL = "INTERNAL"
    UNAVAILABLE = "UNAVAILABLE"
    DATA_LOSS = "DATA_LOSS"
    UNAUTHENTICATED = "UNAUTHENTICATED"


_PASSING: Final = frozenset({Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED, Code.UNAVAILABLE})


@dataclass(eq=False)
class TrunklineError(Exception):
    """The base class. Subclasses are dataclasses whose fields are sent as metadata, as text."""

    code: ClassVar[Code] = Code.INTERNAL
    reason: ClassVar[str] = "INTERNAL"
    # One line that names the problem and the next step, with the fields in braces.
    template: ClassVar[str] = "unknown error"
    # The next step for users of the command line, the only place that shows it.
    hint: ClassVar[str] = ""

    @property
    def retryable(self) -> bool:
        """The code says that the failure may pass, so that the same call may succeed later."""
        return self.code in _PASSING

    def metadata(self) -> dict[str, str]:
        """Return the fields by name, for google.rpc.ErrorInfo."""
        return {field.name: str(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_metadata(cls, metadata: dict[str, str]) -> Self:
        """Build the error from the result of `metadata`; a missing field is an empty string."""
        return cls(**{field.name: metadata.get(field.name, "") for field in fields(cls)})

    def __str__(self) -> str:
        return self.template.format_map(self.metadata())


def find_cause(error: Exception) -> Exception:
    """Return the error to report: of a group, the first TrunklineError, else the first error.

    A task group wraps the errors of its tasks.
    """
    if not isinstance(error, ExceptionGroup):
        return error
    causes = [find_cause(inner) for inner in error.exceptions]
    return next((cause for cause in causes if isinstance(cause, TrunklineError)), causes[0])


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
class EnvelopeNotFoundError(RequestError):
    """The account has no message between agents with this id."""

    envelope_id: str
    code: ClassVar[Code] = Code.NOT_FOUND
    reason: ClassVar[str] = "ENVELOPE_NOT_FOUND"
    template: ClassVar[str] = "there is no message {envelope_id!r}"
    hint: ClassVar[str] = "`trunkline messages list` shows those that are stored"


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
class TaskExistsError(RequestError):
    """An earlier submission of the message created a task, which another host may have."""

    task_id: str
    code: ClassVar[Code] = Code.ALREADY_EXISTS
    reason: ClassVar[str] = "TASK_EXISTS"
    template: ClassVar[str] = "the message has created task {task_id} before"


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
class TreeLimitError(RequestError):
    """A task is over a limit of its tree of calls."""

    limit: str
    """The setting in the table `[tree]`, or `time` for the deadline."""
    chain: str
    """The agents from the root of the tree down to the refused agent."""
    problem: str
    code: ClassVar[Code] = Code.FAILED_PRECONDITION
    reason: ClassVar[str] = "TREE_LIMIT"
    template: ClassVar[str] = "{chain} is over the limit of {limit}: {problem}"


@dataclass(eq=False)
class UnauthenticatedError(RequestError):
    """The process has no identity on the mesh, or an identity of another mesh."""

    problem: str
    code: ClassVar[Code] = Code.UNAUTHENTICATED
    reason: ClassVar[str] = "UNAUTHENTICATED"
    template: ClassVar[str] = "{problem}"
    hint: ClassVar[str] = (
        "processes of the user who runs a mesh are on it, others join: "
        "`trunkline mesh token` there, then `trunkline mesh join TOKEN` here"
    )

    @classmethod
    def for_mesh(cls, address: str) -> Self:
        """Return the error of a process that is not on the mesh at an address."""
        return cls(
            f"{address} serves only processes of its mesh, and this one has no identity there"
        )


@dataclass(eq=False)
class UserNotProvenError(RequestError):
    """The call names an account, and no valid statement proves that it is for a user of it."""

    problem: str
    code: ClassVar[Code] = Code.UNAUTHENTICATED
    reason: ClassVar[str] = "USER_NOT_PROVEN"
    template: ClassVar[str] = (
        "{problem}; pass on the statement of the call that this work is for, unchanged, or let the "
        "user send another message"
    )


@dataclass(eq=False)
class PermissionDeniedError(RequestError):
    """The caller is known, but may not do this."""

    caller: str
    action: str
    code: ClassVar[Code] = Code.PERMISSION_DENIED
    reason: ClassVar[str] = "PERMISSION_DENIED"
    template: ClassVar[str] = "{caller} may not {action}"


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
    template: ClassVar[str] = "agent {agent!r} is full; try again in {retry_after_s} s"


@dataclass(eq=False)
class QueueFullError(PeerError):
    """Too many messages between agents wait to be delivered."""

    limit: str
    code: ClassVar[Code] = Code.RESOURCE_EXHAUSTED
    reason: ClassVar[str] = "QUEUE_FULL"
    template: ClassVar[str] = "{limit} deliveries wait already; send the messages again later"


@dataclass(eq=False)
class LimitExceededError(PeerError):
    """The caller's account has reached a limit, or a budget is used up."""

    limit: str
    """The limit, and how much of it is used."""
    retry_after_s: str
    code: ClassVar[Code] = Code.RESOURCE_EXHAUSTED
    reason: ClassVar[str] = "LIMIT_EXCEEDED"
    template: ClassVar[str] = "{limit}; try again in {retry_after_s} s"


@dataclass(eq=False)
class PeerUnavailableError(PeerError):
    """The peer can't be reached, or is shutting down."""

    peer: str
    problem: str
    code: ClassVar[Code] = Code.UNAVAILABLE
    reason: ClassVar[str] = "PEER_UNAVAILABLE"
    template: ClassVar[str] = "{peer} can't be reached: {problem}"


@dataclass(eq=False)
class PeerHandshakeError(PeerUnavailableError):
    """One process does not accept the other's certificate. A retry may help: both are renewed."""

    reason: ClassVar[str] = "PEER_HANDSHAKE"
    hint: ClassVar[str] = (
        "`trunkline mesh show` prints your identity; to join another mesh, run "
        "`trunkline mesh token` there and `trunkline mesh join TOKEN` here"
    )


@dataclass(eq=False)
class PeerCircuitOpenError(PeerUnavailableError):
    """The peer kept failing, so its circuit breaker refuses calls for a while."""

    retry_after_s: str
    reason: ClassVar[str] = "PEER_CIRCUIT_OPEN"


@dataclass(eq=False)
class TaskHostGoneError(PeerUnavailableError):
    """A task can't be changed until another host has taken its journal over."""

    retry_after_s: str
    reason: ClassVar[str] = "TASK_HOST_GONE"


@dataclass(eq=False)
class ToolServerUnavailableError(PeerError):
    """The MCP server is down and is being restarted."""

    server: str
    problem: str
    code: ClassVar[Code] = Code.UNAVAILABLE
    reason: ClassVar[str] = "TOOL_SERVER_UNAVAILABLE"
    template: ClassVar[str] = "tool server {server!r} is down: {problem}"


@dataclass(eq=False)
class SignInFailedError(PeerError):
    """The sign-in to an MCP server did not succeed."""

    server: str
    problem: str
    code: ClassVar[Code] = Code.FAILED_PRECONDITION
    reason: ClassVar[str] = "SIGN_IN_FAILED"
    template: ClassVar[str] = "the sign-in to tool server {server!r} failed: {problem}"


@dataclass(eq=False)
class JournalUnavailableError(PeerError):
    """The journal can't be opened, read or written."""

    path: str
    problem: str
    code: ClassVar[Code] = Code.UNAVAILABLE
    reason: ClassVar[str] = "JOURNAL_UNAVAILABLE"
    template: ClassVar[str] = "journal {path}: {problem}"


@dataclass(eq=False)
class JournalUnusableError(JournalUnavailableError):
    """The journal stays unavailable until an operator acts, so waiting is of no use.

    What is stored can't be read, or the database refuses the settings of this process.
    """


@dataclass(eq=False)
class JournalDamagedError(JournalUnusableError):
    """What is stored can't be read: it is damaged, it was altered, or its key is missing."""


@dataclass(eq=False)
class PeerTimeoutError(PeerError):
    """The peer didn't answer in time."""

    peer: str
    problem: str
    code: ClassVar[Code] = Code.DEADLINE_EXCEEDED
    reason: ClassVar[str] = "PEER_TIMEOUT"
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


@dataclass(eq=False)
class AgentError(TrunklineError):
    """The agent's code or its model failed."""


@dataclass(eq=False)
class InvalidAgentResponseError(AgentError):
    """The agent broke the rules of its declaration or of the task lifecycle."""

    agent: str
    problem: str
    code: ClassVar[Code] = Code.INTERNAL
    reason: ClassVar[str] = "INVALID_AGENT_RESPONSE"
    template: ClassVar[str] = "agent {agent!r} broke its contract: {problem}"


@dataclass(eq=False)
class AgentCallError(AgentError):
    """An agent that another one asked did not complete its task."""

    agent: str
    state: str
    """A `TaskState`: `input-required` if the agent asks something; `failed` also if its host can't
    be reached; `completed` if it handled a message that requests a reply, and sent no reply."""
    text: str
    """The question, or the reason."""
    task_id: str
    code: ClassVar[Code] = Code.FAILED_PRECONDITION
    reason: ClassVar[str] = "AGENT_CALL"
    template: ClassVar[str] = "agent {agent!r} {verb}: {text}"
    _verbs: ClassVar[Mapping[str, str]] = {
        "completed": "sent no reply",
        "failed": "failed",
        "rejected": "rejected the request",
        "canceled": "was canceled",
        "input-required": "asks",
        "auth-required": "needs credentials",
    }

    def __str__(self) -> str:
        verb = self._verbs.get(self.state, f"is {self.state}")
        text = self.template.format(agent=self.agent, verb=verb, text=self.text)
        if self.state in ("input-required", "auth-required"):
            return f"{text} (a call with check=False gets the question)"
        # Some reasons name the agent themselves.
        return self.text if self.text.startswith(f"agent {self.agent!r} ") else text


@dataclass(eq=False)
class WorkflowFailedError(AgentError):
    """A node of a workflow failed, and no edge says what follows."""

    workflow: str
    node: str
    problem: str
    code: ClassVar[Code] = Code.FAILED_PRECONDITION
    reason: ClassVar[str] = "WORKFLOW_FAILED"
    template: ClassVar[str] = "workflow {workflow!r} failed at {node!r}: {problem}"


@dataclass(eq=False)
class StepLimitError(AgentError):
    """The reasoning loop reached its limit of steps."""

    agent: str
    limit: str
    code: ClassVar[Code] = Code.FAILED_PRECONDITION
    reason: ClassVar[str] = "STEP_LIMIT"
    template: ClassVar[str] = (
        "agent {agent!r} found no answer within {limit} messages; ask for less at once, or "
        "more precisely"
    )


@dataclass(eq=False)
class TokenLimitError(AgentError):
    """A turn reached its limit of tokens read and written."""

    agent: str
    limit: str
    code: ClassVar[Code] = Code.FAILED_PRECONDITION
    reason: ClassVar[str] = "TOKEN_LIMIT"
    template: ClassVar[str] = (
        "agent {agent!r} found no answer within {limit} tokens; ask more narrowly, or raise "
        "turn_tokens of its model"
    )


@dataclass(eq=False)
class ModelUnavailableError(AgentError):
    """The model can't be reached, or is not configured."""

    model: str
    problem: str
    code: ClassVar[Code] = Code.UNAVAILABLE
    reason: ClassVar[str] = "MODEL_UNAVAILABLE"
    template: ClassVar[str] = "model {model!r}: {problem}"


@dataclass(eq=False)
class ModelOverflowError(ModelUnavailableError):
    """The conversation is too long for the model; the caller can shorten the request."""


@dataclass(eq=False)
class InternalError(TrunklineError):
    """A defect. Only the host's log has the cause, under the trace id."""

    trace_id: str
    code: ClassVar[Code] = Code.INTERNAL
    reason: ClassVar[str] = "INTERNAL"
    template: ClassVar[str] = "internal error; the host's log has the cause"

    def __str__(self) -> str:
        return super().__str__() + (f" under trace {self.trace_id}" if self.trace_id else "")


def error_classes() -> Iterator[type[TrunklineError]]:
    """Yield every subclass of TrunklineError that defines a reason."""
    pending = list(TrunklineError.__subclasses__())
    while pending:
        cls = pending.pop()
        pending += cls.__subclasses__()
        if "reason" in vars(cls):
            yield cls
