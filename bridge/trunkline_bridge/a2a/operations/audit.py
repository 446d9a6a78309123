"""Records the operations of callers in the audit log."""

from collections.abc import Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Protocol, Self, TypeAlias, TypeVar

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.errors import to_wire_error
from trunkline.observe.audit import OK, Action, AuditLog, outcome_of
from trunkline.v1 import message_pb2, push_notification_pb2, task_pb2
from trunkline_bridge.callers.caller import Caller, caller_actor

_CANCELED: Final = "CANCELLED"


class _Audited(Protocol):
    """An object whose methods are recorded."""

    audit: AuditLog | None


_Self = TypeVar("_Self", bound=_Audited)
_Result = TypeVar("_Result")
_Params = ParamSpec("_Params")
_Call: TypeAlias = Callable[Concatenate[_Self, Caller, _Params], Coroutine[Any, Any, _Result]]


class OperationRecord:
    """Records one operation when its block ends, or earlier if the block calls `write`."""

    __slots__ = ("_action", "_audit", "_caller", "_objects")

    def __init__(
        self, audit: AuditLog | None, caller: Caller, action: Action, objects: dict[str, str]
    ) -> None:
        """Without an audit log, nothing is recorded."""
        self._audit = audit
        self._caller = caller
        self._action = action
        self._objects = objects

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.write(OK if exc_val is None else _outcome(exc_val))

    def add_objects(self, message: object) -> None:
        """Add the objects that a request or a result names. Later ones replace earlier ones."""
        if self._audit is not None:
            self._objects.update(_named_objects(message))

    def write(self, outcome: str) -> None:
        """Write the record, unless it is written already."""
        audit, self._audit = self._audit, None
        if audit is not None:
            actor = caller_actor(self._caller)
            audit.record(self._action, actor, outcome=outcome, **self._objects)


def recorded(
    audit: AuditLog | None, caller: Caller, action: Action, **objects: str
) -> OperationRecord:
    """Return the record of an operation on these objects, for the block that performs it."""
    is_recorded = audit is not None and audit.covers(action)
    return OperationRecord(audit if is_recorded else None, caller, action, objects)


def audited(
    action: Action,
) -> Callable[[_Call[_Self, _Params, _Result]], _Call[_Self, _Params, _Result]]:
    """Return the decorator that records an operation with one result when it has ended."""

    def decorate(method: _Call[_Self, _Params, _Result]) -> _Call[_Self, _Params, _Result]:
        @wraps(method)
        async def call(
            self: _Self, caller: Caller, /, *args: _Params.args, **kwargs: _Params.kwargs
        ) -> _Result:
            with recorded(self.audit, caller, action, agent=caller.agent) as record:
                record.add_objects(args[0] if args else None)
                result = await method(self, caller, *args, **kwargs)
                record.add_objects(result)
                return result

        return call

    return decorate


def _named_objects(message: object) -> dict[str, str]:
    """Return the ids of the objects of a request or a result, without unset ones."""
    match message:
        case a2a_pb2.SendMessageRequest():
            ids = {"task": message.message.task_id, "context": message.message.context_id}
        case task_pb2.Task():
            ids = {"task": message.id, "context": message.context_id}
        case message_pb2.Message():
            ids = {"context": message.context_id}
        case push_notification_pb2.TaskPushNotificationConfig():
            ids = {"task": message.task_id, "webhook": message.id}
        case (
            a2a_pb2.GetTaskPushNotificationConfigRequest()
            | a2a_pb2.DeleteTaskPushNotificationConfigRequest()
        ):
            ids = {"task": message.task_id, "webhook": message.id}
        case a2a_pb2.ListTaskPushNotificationConfigsRequest():
            ids = {"task": message.task_id}
        case (
            a2a_pb2.GetTaskRequest()
            | a2a_pb2.CancelTaskRequest()
            | a2a_pb2.SubscribeToTaskRequest()
        ):
            ids = {"task": message.id}
        case _:
            ids = {}
    return {kind: text for kind, text in ids.items() if text}


def _outcome(error: BaseException) -> str:
    if not isinstance(error, Exception):
        # The client has gone, or this process stops.
        return _CANCELED
    return outcome_of(to_wire_error(error).kind.reason)
