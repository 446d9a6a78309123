"""Records the operations of A2A in the audit log, with the objects that their messages name."""

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar

from trunkline.a2a.v1 import a2a_pb2
from trunkline.observe.audit import Action, AuditLog
from trunkline.v1 import message_pb2, push_notification_pb2, task_pb2
from trunkline_bridge.callers.audit import recorded
from trunkline_bridge.callers.caller import Caller


class _Audited(Protocol):
    """An object whose methods are recorded."""

    audit: AuditLog | None


_Self = TypeVar("_Self", bound=_Audited)
_Result = TypeVar("_Result")
_Params = ParamSpec("_Params")
_Call: TypeAlias = Callable[Concatenate[_Self, Caller, _Params], Coroutine[Any, Any, _Result]]


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
                record.add_objects(named_objects(args[0] if args else None))
                result = await method(self, caller, *args, **kwargs)
                record.add_objects(named_objects(result))
                return result

        return call

    return decorate


def named_objects(message: object) -> dict[str, str]:
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
