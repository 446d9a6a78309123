"""Handlers of messages between agents: `@agent.on(TYPE)`.

A handler is the code of a turn. Its task is the delivery of the message, and completes when the
handler's replies are in the journal.
"""

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from pydantic import BaseModel

from trunkline.core.json_values import struct_json
from trunkline.core.runtime import load_in_thread
from trunkline.errors import ConfigurationError, InvalidArgumentError
from trunkline.messages.conversion import build_reply, read_message
from trunkline.messages.types import TYPES, MessageType
from trunkline.tasks.context import TaskContext
from trunkline.tasks.delivered_messages import build_part, describe_reply, find_delivered
from trunkline.tasks.messages import HandlerResult, MeshMessage, Payload, Reply
from trunkline.tasks.turn_runtime import TurnRuntime

Handler: TypeAlias = (
    Callable[[TaskContext[Any], Any], Awaitable[HandlerResult]]
    | Callable[[TaskContext[Any], Any], AsyncIterator[Payload | Reply]]
    | Callable[[TaskContext[Any], Any], HandlerResult]
)
_Result: TypeAlias = Awaitable[HandlerResult] | AsyncIterator[Payload | Reply]
ANY_TYPE: Final = "*"
"""The name of a handler for all types without a handler of their own."""
_REPLY_TYPES: Final = (str, BaseModel, Reply, dict)


@dataclass(frozen=True, slots=True)
class MessageHandlers:
    """The handlers of an agent, by type."""

    handlers: dict[str, Callable[[TaskContext[Any], Any], _Result]] = field(default_factory=dict)
    _of_models: set[str] = field(default_factory=set)
    """The types whose handlers were registered by a model. They get objects of the model."""

    def __bool__(self) -> bool:
        return bool(self.handlers)

    @property
    def types(self) -> list[str]:
        """The types that are handled, each `TYPE` or `TYPE@VERSION`, sorted."""
        return sorted(self.handlers)

    def add(self, agent: str, message_type: type[BaseModel] | str, handler: Handler) -> None:
        """Add a handler.

        Raises:
            ConfigurationError: the type has a handler already, the model is not declared, or the
                function is a generator that is not asynchronous.
        """
        where = f"agent {agent!r}"
        if isinstance(message_type, str):
            name = message_type
        else:
            declared: MessageType | None = TYPES.of_model(message_type)
            if declared is None:
                problem = f"{message_type.__name__} is no type; declare it by @message_type"
                raise ConfigurationError(where, problem)
            name = str(declared)
            self._of_models.add(name)
        function = make_async(handler, where, f"its handler of {name!r}")
        if name in self.handlers:
            raise ConfigurationError(where, f"it has two handlers of {name!r}")
        self.handlers[name] = function

    def find(self, message: MeshMessage) -> str | None:
        """Return the type of the handler of a message, if it has a handler."""
        names = (f"{message.type}@{message.version}", message.type, ANY_TYPE)
        return next((name for name in names if name in self.handlers), None)

    def call(self, name: str, task: TaskContext[Any], message: MeshMessage) -> _Result:
        """Call the handler of a type: by a model with the payload, by a name with the message.

        Raises:
            InvalidArgumentError: the handler takes a model, and the payload is plain text.
        """
        argument: MeshMessage | BaseModel | str = message
        if name in self._of_models:
            argument = message.payload
            if not isinstance(argument, BaseModel):
                raise InvalidArgumentError(f"{message.type}.payload", "is text; give its fields")
        return self.handlers[name](task, argument)


def make_async(function: Callable[..., Any], where: str, name: str) -> Callable[..., Any]:
    """Return an asynchronous function unchanged, and wrap a plain one: it runs in its own thread.

    The thread has the caller's context variables. Cancellation abandons it.

    Raises:
        ConfigurationError: the function is a generator that is not asynchronous.
    """
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return function
    if inspect.isgeneratorfunction(function):
        raise ConfigurationError(where, f"{name} yields, so it must be `async def`")

    @functools.wraps(function)
    async def run(*args: Any) -> Any:  # noqa: ANN401  the arguments and result of any function
        return await load_in_thread(function, *args)

    return run


def read_incoming(turn: TurnRuntime) -> MeshMessage | None:
    """Return the message that a turn delivers, unless the turn handles a request.

    Raises:
        InvalidArgumentError: its payload does not fit its type.
    """
    envelope = find_delivered(turn.snapshot)
    return None if envelope is None else read_message(envelope)


async def write_replies(turn: TurnRuntime, result: _Result) -> None:
    """Run a handler that was called, and write its replies.

    Raises:
        InvalidArgumentError: a reply does not fit its type.
    """
    count = 0
    if isinstance(result, AsyncIterator):
        async for reply in result:
            count += 1
            await _write_reply(turn, reply, count)
        return
    returned = await result
    replies: Sequence[Any]
    if returned is None:
        replies = ()
    elif isinstance(returned, Sequence) and not isinstance(returned, str):
        replies = returned
    else:
        replies = (returned,)
    for reply in replies:
        count += 1
        await _write_reply(turn, reply, count)


async def _write_reply(turn: TurnRuntime, reply: object, number: int) -> None:
    if not isinstance(reply, _REPLY_TYPES):
        kinds = "a text, an object of a declared type, a mapping or a Reply"
        problem = f"reply {number} is a value of type {type(reply).__name__}, not {kinds}"
        raise InvalidArgumentError("reply", problem)
    envelope = build_reply(reply)
    artifact = turn.artifact(
        # A handler that asked a person runs again, in another turn.
        id=f"reply-{turn.number}-{number}",
        metadata=struct_json(describe_reply(envelope)),
    )
    await artifact.append(build_part(envelope), last=True)
