"""Records the operations of callers in the audit log."""

from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import ContextVar
from functools import partial, wraps
from types import TracebackType
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.errors import WireError, to_wire_error
from trunkline.observe.audit import DENIED, OK, Action, AuditLog, outcome_of
from trunkline.v1 import message_pb2, push_notification_pb2, task_pb2
from trunkline_bridge.callers.caller import Caller, caller_actor

_CANCELED: Final = "CANCELLED"
# The task that the operation in progress has created, which only the operation knows.
_new_task: ContextVar[task_pb2.Task | None] = ContextVar("new_task", default=None)


class _Audited(Protocol):
    """An object whose methods are recorded."""

    audit: AuditLog | None


_Self = TypeVar("_Self", bound=_Audited)
_Result = TypeVar("_Result")
_Params = ParamSpec("_Params")
_Call: TypeAlias = Callable[Concatenate[_Self, Caller, _Params], Coroutine[Any, Any, _Result]]
_Open: TypeAlias = Callable[
    Concatenate[_Self, Caller, _Params], AbstractAsyncContextManager[_Result]
]


def audited(
    action: Action,
) -> Callable[[_Call[_Self, _Params, _Result]], _Call[_Self, _Params, _Result]]:
    """Return the decorator that records an operation when it has ended."""

    def decorate(method: _Call[_Self, _Params, _Result]) -> _Call[_Self, _Params, _Result]:
        @wraps(method)
        def call(
            self: _Self, caller: Caller, /, *args: _Params.args, **kwargs: _Params.kwargs
        ) -> Coroutine[Any, Any, _Result]:
            work = method(self, caller, *args, **kwargs)
            if self.audit is None or not self.audit.covers(action):
                return work
            record = partial(_record, self.audit, action, caller, args[0] if args else None)
            return _record_result(work, record)

        return call

    return decorate


def audited_stream(
    action: Action,
) -> Callable[[_Open[_Self, _Params, _Result]], _Open[_Self, _Params, _Result]]:
    """Return the decorator that records an operation with a stream when the stream is open."""

    def decorate(method: _Open[_Self, _Params, _Result]) -> _Open[_Self, _Params, _Result]:
        @wraps(method)
        def open_stream(
            self: _Self, caller: Caller, /, *args: _Params.args, **kwargs: _Params.kwargs
        ) -> AbstractAsyncContextManager[_Result]:
            stream = method(self, caller, *args, **kwargs)
            if self.audit is None or not self.audit.covers(action):
                return stream
            record = partial(_record, self.audit, action, caller, args[0] if args else None)
            return _RecordedStream(stream, record)

        return open_stream

    return decorate


def check_permission(
    audit: AuditLog | None, caller: Caller, agent: str, method: str, task_id: str = ""
) -> None:
    """Check that a caller may use a method at an agent, and record a refusal.

    Raises:
        WireError: the caller may not (PERMISSION_DENIED).
    """
    try:
        caller.permissions.check(agent, method)
    except WireError:
        if audit is not None:
            objects = {"agent": agent, "method": method, "task": task_id}
            audit.record(Action.CALLER_AUTHORIZE, caller_actor(caller), outcome=DENIED, **objects)
        raise


@contextmanager
def recorded(
    audit: AuditLog | None, caller: Caller, action: Action, **objects: str
) -> Iterator[None]:
    """Record the operation in the block, on these objects, when it has ended."""
    outcome = _CANCELED
    try:
        yield
        outcome = OK
    except Exception as error:
        outcome = _outcome(error)
        raise
    finally:
        if audit is not None and audit.covers(action):
            audit.record(action, caller_actor(caller), outcome=outcome, **objects)


def note_new_task(task: task_pb2.Task) -> None:
    """Note the task that the current operation has created, for its record."""
    _new_task.set(task)


_Record: TypeAlias = Callable[[object, str], None]
"""Records the result of an operation and its outcome."""


async def _record_result(work: Coroutine[Any, Any, _Result], record: _Record) -> _Result:
    try:
        result = await work
    except BaseException as error:
        record(None, _outcome(error))
        raise
    record(result, OK)
    return result


class _RecordedStream(AbstractAsyncContextManager[_Result]):
    """Opens a stream and records that. A class, because it lives as long as the stream."""

    def __init__(self, stream: AbstractAsyncContextManager[_Result], record: _Record) -> None:
        self._stream = stream
        self._record = record

    async def __aenter__(self) -> _Result:
        token = _new_task.set(None)
        try:
            events = await self._stream.__aenter__()
        except BaseException as error:
            self._record(None, _outcome(error))
            raise
        else:
            self._record(_new_task.get(), OK)
        finally:
            _new_task.reset(token)
        return events

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> bool | None:
        return await self._stream.__aexit__(exc_type, exc_val, exc_tb)


def _record(
    audit: AuditLog, action: Action, caller: Caller, request: object, result: object, outcome: str
) -> None:
    objects = {"agent": caller.agent, **_objects(request), **_objects(result)}
    audit.record(action, caller_actor(caller), outcome=outcome, **objects)


def _objects(message: object) -> dict[str, str]:
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
