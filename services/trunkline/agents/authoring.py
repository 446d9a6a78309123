"""The `@agent` decorator, and the agent that it builds from a function."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar, overload

from pydantic import BaseModel

from trunkline.agents.message_handlers import (
    Handler,
    MessageHandlers,
    make_async,
    read_incoming,
    write_replies,
)
from trunkline.agents.options import validate_options_type
from trunkline.calls.turn_calls import MeshCallees, ResultModel
from trunkline.errors import ConfigurationError, InvalidArgumentError
from trunkline.messaging.addresses import check_agent_name
from trunkline.settings import Settings
from trunkline.tasks.calls import TaskCalls
from trunkline.tasks.content import PIECE_TYPES, RESULT_TYPES, Content, Piece, invalid_content
from trunkline.tasks.context import SettingsT, TaskContext, get_task_calls
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import agent_card_pb2, artifact_pb2, message_pb2

AgentResult: TypeAlias = Content | None
_AsyncFunction: TypeAlias = (
    Callable[[TaskContext[SettingsT]], Awaitable[AgentResult]]
    | Callable[[TaskContext[SettingsT]], AsyncIterator[Piece]]
)
AgentFunction: TypeAlias = (
    _AsyncFunction[SettingsT] | Callable[[TaskContext[SettingsT]], AgentResult]
)
_HandlerT = TypeVar("_HandlerT", bound=Handler)
Lifespan: TypeAlias = Callable[[Settings, Callable[[], None]], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class FunctionAgent:
    """An agent whose turns are calls of a function."""

    card: agent_card_pb2.AgentCard
    function: _AsyncFunction[Any]
    direct_replies: bool
    repeatable: bool
    resumable: bool
    routable: bool
    concurrency: int | None
    timeout_s: float | None
    extended_skills: Sequence[agent_card_pb2.AgentSkill] = ()
    cancel_remote: Callable[[str], Awaitable[None]] | None = None
    """Cancels work that the agent has delegated outside the mesh. Such work is a child task called
    `NAME:ID`, with the agent's name; the function gets the ID, and may get it more than once."""
    settings_type: type[Any] | None = None
    """The type of the agent's settings; None: it has none."""
    settings: object = None
    """The agent's settings, once its host or `with_settings` has set them."""
    is_pausable: bool = False
    """Its tasks may be paused: it waits for `TurnRuntime.pause` before each step."""
    is_workflow: bool = False
    """It runs a workflow, which the spans of its turns say."""
    time_limit_s: Callable[[message_pb2.Message], float | None] | None = None
    """Returns the longest lifetime of the task that a message begins, instead of `timeout_s`."""
    lifespan: Lifespan | None = None
    """Opened while the agent is served. It gets a function that reports a changed card; the agent
    joins the mesh at its first call."""
    callees: MeshCallees | None = None
    """The agents and tools that it may call, once its host has set them."""
    model: ResultModel | None = None
    """The model of `TaskContext.ask_model`; None: its host takes the model of the settings."""
    handlers: MessageHandlers = field(default_factory=MessageHandlers)
    """The handlers of messages between agents."""
    kind: str = ""
    """Its kind in the registry: `workflow`, `remote` or `participant`; empty: another one."""

    @property
    def message_types(self) -> Sequence[str]:
        """The types of messages that it handles. Empty: messages come as requests."""
        return self.handlers.types

    def find_time_limit_s(self, message: message_pb2.Message) -> float | None:
        """Return the longest lifetime of the task that a message begins; None: no limit."""
        return self.timeout_s if self.time_limit_s is None else self.time_limit_s(message)

    def on(self, message_type: type[BaseModel] | str) -> Callable[[_HandlerT], _HandlerT]:
        """Register a handler of messages between agents, by the model or the name of their type.

            @teacher.on(EvaluationRequest)
            async def evaluate(task, request):
                return EvaluationResult(approved=True, proposal=request.proposal)

        It gets the turn's `TaskContext`, and an object of the model; a handler by a name gets the
        `MeshMessage`, which is also `task.incoming`. It returns an answer (a text, an
        object of a declared type or a `Reply`), a list of them, or None, or yields them. It may do
        all that the function of an agent does; after `task.require_input`, the answer, which is
        `task.text`, calls it again. Raising makes the mesh try again, and
        `task.reject` makes the message a dead letter. `"*"` is for all other types.

        Raises:
            ConfigurationError: there is one for the type already, the model is not declared by
                `@message_type`, or the function is a generator that is not asynchronous.
        """

        def register(handler: _HandlerT) -> _HandlerT:
            self.handlers.add(self.card.name, message_type, handler)
            return handler

        return register

    def with_settings(self, settings: object) -> "FunctionAgent":
        """Return the agent with these settings; its host then reads none.

        Raises:
            ConfigurationError: they are not of the type that the agent declares.
        """
        if self.settings_type is None or not isinstance(settings, self.settings_type):
            expected = "none" if self.settings_type is None else self.settings_type.__name__
            problem = f"its settings are {expected}, not {type(settings).__name__}"
            raise ConfigurationError(f"agent {self.card.name!r}", problem)
        return replace(self, settings=settings)

    async def run(self, turn: TurnRuntime) -> None:
        """Call the function, and write what it returns or yields."""
        turn.settings = self.settings
        if self.callees is None:
            await self._run_function(turn)
            return
        async with self.callees.open(turn) as calls:
            with turn.use_calls(calls):
                await self._run_function(turn)

    async def cancel_waiting(self, turn: TurnRuntime) -> None:
        """Cancel what calls of a waiting task left elsewhere, because the task is canceled."""
        if self.callees is not None:
            await self.callees.cancel_waiting(turn)

    async def _run_function(self, turn: TurnRuntime) -> None:
        if self.handlers and await self._run_handler(turn):
            return
        result = self.function(turn)
        if isinstance(result, AsyncIterator):
            await _write_pieces(turn, result, get_task_calls(turn))
        else:
            await _write_result(turn, await result)

    async def _run_handler(self, turn: TurnRuntime) -> bool:
        """Run the handler of the message that the turn delivers; return False for a request."""
        try:
            message = read_incoming(turn)
        except InvalidArgumentError as error:
            await turn.reject(str(error))
            return True
        if message is None:
            return False
        name = self.handlers.find(message)
        if name is None:
            types = ", ".join(self.handlers.types)
            await turn.reject(f"it has no handler of {message.type!r}; it takes: {types}")
            return True
        turn.incoming = message
        try:
            result = self.handlers.call(name, turn, message)
        except InvalidArgumentError as error:
            await turn.reject(str(error))
            return True
        await write_replies(turn, result)
        return True


@overload
def agent(function: AgentFunction[None], /) -> FunctionAgent: ...


@overload
def agent(
    *,
    name: str | None = None,
    description: str | None = None,
    tags: Sequence[str] = (),
    examples: Sequence[str] = (),
    version: str = "0.1.0",
    skills: Sequence[agent_card_pb2.AgentSkill] = (),
    extended_skills: Sequence[agent_card_pb2.AgentSkill] = (),
    input_modes: Sequence[str] = ("text/plain",),
    output_modes: Sequence[str] = ("text/plain",),
    concurrency: int | None = None,
    repeatable: bool = False,
    resumable: bool = False,
    timeout_s: float | None = None,
    direct_replies: bool = False,
    routable: bool = True,
    settings: type[SettingsT] | None = None,
) -> Callable[[AgentFunction[SettingsT]], FunctionAgent]: ...


def agent(
    function: AgentFunction[Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    tags: Sequence[str] = (),
    examples: Sequence[str] = (),
    version: str = "0.1.0",
    skills: Sequence[agent_card_pb2.AgentSkill] = (),
    extended_skills: Sequence[agent_card_pb2.AgentSkill] = (),
    input_modes: Sequence[str] = ("text/plain",),
    output_modes: Sequence[str] = ("text/plain",),
    concurrency: int | None = None,
    repeatable: bool = False,
    resumable: bool = False,
    timeout_s: float | None = None,
    direct_replies: bool = False,
    routable: bool = True,
    settings: type[Any] | None = None,
) -> FunctionAgent | Callable[[AgentFunction[Any]], FunctionAgent]:
    """Make an agent of a function that takes a `TaskContext`.

    A plain `def` function runs in its own thread, so that it may block. It reads the task, and
    can't await its methods. A cancel ends the task at once, but can't stop the thread.

    The result of the function ends the turn: a text, a JSON object or a Part becomes one artifact,
    a Message a direct reply, and None completes the task. An asynchronous generator yields pieces
    of one artifact. Any other result fails the task with an error that lists these.

    Args:
        function: the function itself, for `@agent` without arguments.
        name: up to 63 letters, digits, `_`, `-` and `.`, of which the last two stand between
            others; by default the function's name, with hyphens for underscores.
        description: by default the first paragraph of the function's docstring.
        tags: words that a supervisor looks for in a request.
        examples: requests that the agent answers.
        version: the version of the agent, for its card.
        skills: replaces the one skill that is made of the name, description, tags and examples.
        extended_skills: skills that only authenticated callers see.
        input_modes: the media types of parts that the agent takes; others are refused.
        output_modes: the media types of the parts that it makes.
        concurrency: how many turns run at once; None: no limit.
        repeatable: after its host stopped, the turn runs again from its start, and its earlier
            output is removed. For functions without effects outside the task.
        resumable: after its host stopped, the function is called again, its earlier output stays,
            and `task.rewind` cuts it back. For functions that store their progress. If an agent
            is neither, its running turns fail.
        timeout_s: the longest life of a task in seconds; the caller's earlier deadline holds.
        direct_replies: the function may return a Message, which makes no task.
        routable: a supervisor may choose the agent.
        settings: a pydantic model or a dataclass. The host reads it before it serves the agent,
            from `[agent.NAME.options]` of `trunkline.toml` and from TRUNKLINE_AGENT_NAME_FIELD
            variables, which take precedence. The function reads it as `task.settings`.

    Raises:
        ConfigurationError: the name is not valid, there is no description, the concurrency is below
            1, the function is a generator that is not asynchronous, or the settings are neither a
            pydantic model nor a dataclass.
    """
    if concurrency is not None and concurrency < 1:
        problem = "its concurrency must be at least 1, or None for no limit"
        raise ConfigurationError(f"agent {name!r}", problem)
    if name is not None:
        check_agent_name(name, f"agent {name!r}")
        if settings is not None:
            validate_options_type(name, settings)

    def build(function: AgentFunction[Any]) -> FunctionAgent:
        agent_name = name or getattr(function, "__name__", "").replace("_", "-")
        check_agent_name(agent_name, f"agent {agent_name!r}")
        if settings is not None:
            validate_options_type(agent_name, settings)
        text = description or _first_paragraph(function)
        if not text:
            problem = "it has no description: pass `description`, or give its function a docstring"
            raise ConfigurationError(f"agent {agent_name!r}", problem)
        runnable = make_async(function, f"agent {agent_name!r}", "its function")
        skill = agent_card_pb2.AgentSkill(
            id=agent_name,
            name=agent_name,
            description=text,
            tags=tags or [agent_name],
            examples=examples,
        )
        card = agent_card_pb2.AgentCard(
            name=agent_name,
            description=text,
            version=version,
            default_input_modes=input_modes,
            default_output_modes=output_modes,
            skills=skills or [skill],
        )
        return FunctionAgent(
            card=card,
            function=runnable,
            direct_replies=direct_replies,
            repeatable=repeatable,
            resumable=resumable,
            routable=routable,
            concurrency=concurrency,
            timeout_s=timeout_s,
            extended_skills=tuple(extended_skills),
            settings_type=settings,
        )

    return build if function is None else build(function)


def _first_paragraph(function: AgentFunction[Any]) -> str:
    """Return the first paragraph of a docstring on one line; empty without one."""
    text = inspect.getdoc(function) or ""
    return " ".join(text.partition("\n\n")[0].split())


async def _write_pieces(
    turn: TurnRuntime, pieces: AsyncIterator[Piece], calls: TaskCalls | None
) -> None:
    artifact = turn.artifact(id="" if calls is None else calls.input.artifact_id)
    is_empty = True
    try:
        async for piece in pieces:
            if not isinstance(piece, PIECE_TYPES):
                raise invalid_content(turn.agent, "its function yielded", piece, PIECE_TYPES)
            is_empty = False
            await artifact.append(piece)
    except BaseException:
        if not is_empty and calls is not None and calls.is_pausing:
            # The turn that continues this one yields the same pieces again.
            await artifact.replace(artifact_pb2.Artifact())
            calls.keep_artifact(artifact.id)
        raise
    if not is_empty:
        await artifact.close()


async def _write_result(turn: TurnRuntime, result: AgentResult) -> None:
    if result is None:
        return
    if isinstance(result, message_pb2.Message):
        await turn.reply(result)
    elif isinstance(result, str) and turn.is_answer(result):
        # The function streamed it as an artifact, and then returned the whole text.
        return
    elif isinstance(result, PIECE_TYPES):
        await turn.artifact().append(result, last=True)
    else:
        raise invalid_content(turn.agent, "its function returned", result, RESULT_TYPES)
