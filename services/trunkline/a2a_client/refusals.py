"""Converts refusals of an A2A agent to the errors that a caller inside a mesh would get."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Final

from trunkline.a2a_client.errors import RpcError, ServerBusyError
from trunkline.a2a_wire import errors as kinds
from trunkline.a2a_wire.errors import mesh_metadata
from trunkline.errors import (
    AgentNotFoundError,
    InternalError,
    LimitExceededError,
    OverloadedError,
    PeerError,
    PeerUnavailableError,
    QueueFullError,
    TaskNotCancelableError,
    TaskNotFoundError,
    TreeLimitError,
    TrunklineError,
)

CREDENTIALS_REFUSALS: Final = frozenset({kinds.UNAUTHENTICATED.reason, kinds.FORBIDDEN.reason})
"""Refusals of the caller, not of the request."""
_OVERLOADS: Final[tuple[type[TrunklineError], ...]] = (
    LimitExceededError,
    OverloadedError,
    QueueFullError,
)
"""The errors of the mesh that are one kind of A2A, RESOURCE_EXHAUSTED: only their fields tell them
apart. LimitExceededError has all fields of QueueFullError, so it comes first."""
_AGENT_REFUSALS: Final = frozenset({kinds.INVALID_PARAMS.reason, kinds.AGENT_NOT_FOUND.reason})


def to_mesh_error(error: TrunklineError, *, peer: str, task_id: str = "") -> TrunklineError:
    """Return the mesh's own error for a refusal; `error` itself if the mesh has no such error.

    `task_id` is the task that the refused request named.
    """
    match error:
        case ServerBusyError(status=429):
            return _overload_error(mesh_metadata(error.error.metadata), peer)
        case ServerBusyError():
            return PeerUnavailableError(peer, error.error.text or error.problem)
        case RpcError():
            return _rpc_error(error, peer, task_id)
    return error


def _overload_error(metadata: dict[str, str], peer: str) -> TrunklineError:
    """Return the error of `_OVERLOADS` whose fields the metadata has; without any, of the peer."""
    for cls in _OVERLOADS:
        if all(metadata.get(field.name) for field in fields(cls)):
            return cls.from_metadata(metadata)
    return OverloadedError(peer, metadata.get("retry_after_s", "a few"))


def _rpc_error(error: RpcError, peer: str, task_id: str) -> TrunklineError:
    metadata = error.error.metadata
    match error.refusal:
        case TreeLimitError.reason:
            return TreeLimitError.from_metadata(dict(metadata))
        case kinds.TASK_NOT_FOUND.reason:
            return TaskNotFoundError(task_id)
        case kinds.TASK_NOT_CANCELABLE.reason:
            return TaskNotCancelableError(task_id, metadata.get("state", "over"))
        case kinds.INTERNAL_ERROR.reason if metadata.get("traceId"):
            return InternalError(metadata["traceId"])
        case reason if reason in _AGENT_REFUSALS and list(metadata) == ["agent"]:
            return AgentNotFoundError(metadata["agent"])
        case reason if reason in CREDENTIALS_REFUSALS:
            return error
    if error.error.code == kinds.UNAVAILABLE.rpc_code:
        return PeerUnavailableError(peer, error.error.text or error.problem)
    return error


@contextmanager
def mesh_errors(peer: str, *, task_id: str = "") -> Iterator[None]:
    """Raise refusals within the block as the errors of `to_mesh_error`."""
    try:
        yield
    except PeerError as error:
        converted = to_mesh_error(error, peer=peer, task_id=task_id)
        if converted is error:
            raise
        raise converted from error
