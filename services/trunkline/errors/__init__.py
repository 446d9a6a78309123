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
│  ├─ HostNotFoundError              NOT_FOUND            HOST_NOT_FOUND
│  ├─ ApprovalNotFoundError          NOT_FOUND            APPROVAL_NOT_FOUND
│  ├─ AgentNameTakenError            FAILED_PRECONDITION  AGENT_NAME_TAKEN
│  ├─ TaskNotCancelableError         FAILED_PRECONDITION  TASK_NOT_CANCELABLE
│  ├─ TaskEndedError                 FAILED_PRECONDITION  TASK_ENDED
│  ├─ ApprovalAnsweredError          FAILED_PRECONDITION  APPROVAL_ANSWERED
│  ├─ ConfigurationError             FAILED_PRECONDITION  CONFIGURATION_INVALID
│  ├─ UnsupportedOperationError      UNIMPLEMENTED        UNSUPPORTED_OPERATION
│  └─ CursorExpiredError             OUT_OF_RANGE         CURSOR_EXPIRED
├─ PeerError                         another process failed; a retry may help
│  ├─ OverloadedError                RESOURCE_EXHAUSTED   OVERLOADED
│  ├─ PeerUnavailableError           UNAVAILABLE          PEER_UNAVAILABLE
│  ├─ ToolServerUnavailableError     UNAVAILABLE          TOOL_SERVER_UNAVAILABLE
│  ├─ JournalUnavailableError        UNAVAILABLE          JOURNAL_UNAVAILABLE
│  ├─ PeerTimeoutError               DEADLINE_EXCEEDED    PEER_TIMEOUT
│  ├─ FencedError                    ABORTED              FENCED
│  ├─ PeerRefusedError               FAILED_PRECONDITION  PEER_REFUSED
│  └─ PeerProtocolError              INTERNAL             PEER_PROTOCOL
├─ AgentError                        the agent's code or its model failed
│  ├─ InvalidAgentResponseError      INTERNAL             INVALID_AGENT_RESPONSE
│  ├─ StepLimitError                 FAILED_PRECONDITION  STEP_LIMIT
│  ├─ TokenLimitError                FAILED_PRECONDITION  TOKEN_LIMIT
│  └─ ModelUnavailableError          UNAVAILABLE          MODEL_UNAVAILABLE
└─ InternalError                     INTERNAL             INTERNAL   a defect; never shown
"""

from trunkline.errors.agents import (
    AgentError,
    InvalidAgentResponseError,
    ModelOverflowError,
    ModelUnavailableError,
    StepLimitError,
    TokenLimitError,
)
from trunkline.errors.error import (
    ERROR_DOMAIN,
    Code,
    InternalError,
    TrunklineError,
    error_classes,
)
from trunkline.errors.peers import (
    FencedError,
    JournalUnavailableError,
    OverloadedError,
    PeerError,
    PeerProtocolError,
    PeerRefusedError,
    PeerTimeoutError,
    PeerUnavailableError,
    ToolServerUnavailableError,
)
from trunkline.errors.requests import (
    AgentNameTakenError,
    AgentNotFoundError,
    ApprovalAnsweredError,
    ApprovalNotFoundError,
    ArtifactNotFoundError,
    ConfigurationError,
    ContentTypeNotSupportedError,
    CursorExpiredError,
    HostNotFoundError,
    InvalidArgumentError,
    MessageKeyReusedError,
    RequestError,
    TaskEndedError,
    TaskNotCancelableError,
    TaskNotFoundError,
    ToolNotFoundError,
    TraceNotFoundError,
    UnsupportedOperationError,
    WebhookNotFoundError,
)

__all__ = [
    "ERROR_DOMAIN",
    "AgentError",
    "AgentNameTakenError",
    "AgentNotFoundError",
    "ApprovalAnsweredError",
    "ApprovalNotFoundError",
    "ArtifactNotFoundError",
    "Code",
    "ConfigurationError",
    "ContentTypeNotSupportedError",
    "CursorExpiredError",
    "FencedError",
    "HostNotFoundError",
    "InternalError",
    "InvalidAgentResponseError",
    "InvalidArgumentError",
    "JournalUnavailableError",
    "MessageKeyReusedError",
    "ModelOverflowError",
    "ModelUnavailableError",
    "OverloadedError",
    "PeerError",
    "PeerProtocolError",
    "PeerRefusedError",
    "PeerTimeoutError",
    "PeerUnavailableError",
    "RequestError",
    "StepLimitError",
    "TaskEndedError",
    "TaskNotCancelableError",
    "TaskNotFoundError",
    "TokenLimitError",
    "ToolNotFoundError",
    "ToolServerUnavailableError",
    "TraceNotFoundError",
    "TrunklineError",
    "UnsupportedOperationError",
    "WebhookNotFoundError",
    "error_classes",
]
