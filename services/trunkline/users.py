"""The user that the current code works for, and the accounts that requests of the mesh name."""

from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from google.protobuf.message import Message

from trunkline.accounts import ANONYMOUS_ACCOUNT
from trunkline.v1 import (
    artifact_service_pb2,
    message_service_pb2,
    messaging_service_pb2,
    task_service_pb2,
    tool_service_pb2,
)

USER_METADATA: Final = "trunkline-user"
"""The key of the user's signed statement in the metadata of a gRPC call."""

STATEMENT_CHARS: Final = 6144
"""The largest size of a statement: gRPC refuses more than 8 KiB of metadata."""


@dataclass(frozen=True, slots=True)
class User:
    """A user whom a bridge or a process of the mesh's owner has authenticated."""

    account: str
    name: str = ""
    """The user within the account; empty for the bridge's own work, such as webhooks."""
    is_read_only: bool = False
    """True if the user's credentials permit nothing that changes anything."""
    approved: frozenset[str] = frozenset()
    """The digests of the tool calls that the user approves with this request."""
    statement: str = field(default="", repr=False)
    """The signed statement that names the user; empty in the process that signs it."""


current_user: ContextVar[User | None] = ContextVar("current_user", default=None)
"""The user of the current call or task, or None for the owner of the mesh or no user."""

requires_proof: ContextVar[bool] = ContextVar("requires_proof", default=False)
"""True if the calling process alone can't prove that a user approved a call."""

may_sign: ContextVar[bool] = ContextVar("may_sign", default=False)
"""True in a process of the mesh's owner. It signs a new statement when it continues work later.
It does not store statements with tasks, because a statement is ten times as large as a short
message."""

current_actor: ContextVar[str] = ContextVar("current_actor", default="")
"""The SPIFFE id of the process whose call is being answered: provenance, never a permission."""


approving_users: ContextVar[Sequence[User]] = ContextVar("approving_users", default=())
"""The users whose answers to approvals a parent passes on, besides the current user."""


def find_approving_user(call_digest: str) -> User | None:
    """Return the user whose statement approves a call, or else the current user."""
    for user in approving_users.get():
        if call_digest in user.approved:
            return user
    return current_user.get()


def current_statement() -> str:
    """Return the signed statement of the current user, or an empty string."""
    user = current_user.get()
    return "" if user is None else user.statement


def stored_statement() -> str:
    """Return the statement that this process needs to continue the current work later, or ""."""
    return "" if may_sign.get() else current_statement()


def continue_for(account: str, name: str, statement: str) -> None:
    """Work for the user of a stored statement in the rest of this asyncio task.

    No effect if the task works for a user already, or without a statement.
    """
    if statement and current_user.get() is None:
        current_user.set(User(account, name, statement=statement))


def _of_request(request: Any) -> str:  # noqa: ANN401  requests have no type in common
    account: str = request.account
    return account


def _of_submission(request: Any) -> str:  # noqa: ANN401
    account: str = request.submission.account
    return account


_SUBMISSIONS: Final = (
    message_service_pb2.SendMessageRequest,
    message_service_pb2.StreamMessageRequest,
)
_READERS: Final[Mapping[type[Message], Callable[[Any], str]]] = {
    **dict.fromkeys(_SUBMISSIONS, _of_submission),
    **dict.fromkeys(
        (
            artifact_service_pb2.DownloadArtifactRequest,
            artifact_service_pb2.ListArtifactsRequest,
            artifact_service_pb2.UploadArtifactRequest,
            task_service_pb2.AnswerApprovalRequest,
            task_service_pb2.CancelTaskRequest,
            task_service_pb2.DeletePushNotificationConfigRequest,
            task_service_pb2.GetPushNotificationConfigRequest,
            task_service_pb2.GetTaskRequest,
            task_service_pb2.ListPushNotificationConfigsRequest,
            task_service_pb2.ListTasksRequest,
            task_service_pb2.PauseTaskRequest,
            task_service_pb2.ResolveTaskAliasRequest,
            task_service_pb2.ResumeTaskRequest,
            task_service_pb2.SetPushNotificationConfigRequest,
            task_service_pb2.SetTaskAliasRequest,
            task_service_pb2.WatchTaskRequest,
            task_service_pb2.WatchTasksRequest,
            tool_service_pb2.CallToolRequest,
            message_service_pb2.DeliverMessagesRequest,
            messaging_service_pb2.GetEnvelopeRequest,
            messaging_service_pb2.JoinRoomRequest,
            messaging_service_pb2.LeaveRoomRequest,
            messaging_service_pb2.ListEnvelopesRequest,
            messaging_service_pb2.ListRoomsRequest,
            messaging_service_pb2.PurgeEnvelopesRequest,
            messaging_service_pb2.RedriveEnvelopesRequest,
            messaging_service_pb2.ReplayEnvelopesRequest,
            messaging_service_pb2.SendEnvelopesRequest,
            messaging_service_pb2.WatchEnvelopesRequest,
        ),
        _of_request,
    ),
}


def named_account(request: Message) -> str | None:
    """Return the account that a request is for, or None if its type names no account."""
    read = _READERS.get(type(request))
    if read is None:
        return None
    if isinstance(request, artifact_service_pb2.UploadArtifactRequest) and not request.task_id:
        # Only the first request of an upload names its task.
        return None
    return read(request) or ANONYMOUS_ACCOUNT


_MESSAGE_ACTS: Final = (
    messaging_service_pb2.JoinRoomRequest,
    messaging_service_pb2.LeaveRoomRequest,
    messaging_service_pb2.ReplayEnvelopesRequest,
    messaging_service_pb2.SendEnvelopesRequest,
)


def named_user(request: Message) -> str:
    """Return the user that a request names within its account, or an empty text.

    A message of an agent names no user. It is sent for the user of the agent's task, which the
    statement of the call names.
    """
    if isinstance(request, _SUBMISSIONS):
        return request.submission.caller
    if isinstance(request, message_service_pb2.DeliverMessagesRequest):
        return request.caller
    if isinstance(request, _MESSAGE_ACTS) and not getattr(request, "agent", ""):
        return request.caller
    return ""


def is_child(request: Message) -> bool:
    """Return True if a request submits a message to a child of another task."""
    return isinstance(request, _SUBMISSIONS) and request.submission.HasField("parent")


_READS: Final = (
    artifact_service_pb2.DownloadArtifactRequest,
    artifact_service_pb2.ListArtifactsRequest,
    task_service_pb2.GetPushNotificationConfigRequest,
    task_service_pb2.GetTaskRequest,
    task_service_pb2.ListPushNotificationConfigsRequest,
    task_service_pb2.ListTasksRequest,
    task_service_pb2.ResolveTaskAliasRequest,
    task_service_pb2.WatchTaskRequest,
    task_service_pb2.WatchTasksRequest,
    messaging_service_pb2.GetEnvelopeRequest,
    messaging_service_pb2.ListEnvelopesRequest,
    messaging_service_pb2.ListRoomsRequest,
    messaging_service_pb2.WatchEnvelopesRequest,
)


def changes_nothing(request: Message) -> bool:
    """Return True if a request that names an account only reads."""
    return isinstance(request, _READS)


def sets_webhook(request: Message) -> bool:
    """Return True if a message sets a webhook of its task."""
    return isinstance(request, _SUBMISSIONS) and request.submission.HasField(
        "push_notification_config"
    )


_STARTS_WORK: Final = (
    *_SUBMISSIONS,
    message_service_pb2.DeliverMessagesRequest,
    task_service_pb2.AnswerApprovalRequest,
)


def starts_work(request: Message) -> bool:
    """Return True if a request can start work that outlives the call."""
    return isinstance(request, _STARTS_WORK)
