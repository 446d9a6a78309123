"""The `@agent` decorator, and the agent that it builds from a function."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, is_dataclass, replace
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
    overload,
)

from pydantic import BaseModel

from trunkline.agents.calls.turn_calls import MeshCallees, TurnCalls
from trunkline.agents.message_handlers import (
    Handler,
    MessageHandlers,
    make_async,
    read_incoming,
    write_replies,
)
from trunkline.errors import ConfigurationError, InvalidArgumentError
from trunkline.messages.addresses import check_agent_name
from trunkline.tasks.agent import Agent, Lifespan
from trunkline.tasks.content import PIECE_TYPES, RESULT_TYPES, Content, Piece, invalid_content
from trunkline.tasks.context import SettingsT, TaskContext
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import agent_card_pb2, artifact_pb2, message_pb2

if TYPE_CHECKING:
    from trunkline.agents.reasoning.model_results import ModelResults

AgentResult: TypeAlias = Content | None
_AsyncFunction: TypeAlias = (
    Callable[[TaskContext[SettingsT]], Awaitable[AgentResult]]
    | Callable[[TaskContext[SettingsT]], AsyncIterator[Piece]]
)
AgentFunction: TypeAlias = (
    _AsyncFunction[SettingsT] | Callable[[TaskContext[SettingsT]], AgentResult]
)
_HandlerT = TypeVar("_HandlerT", bound=Handler)
_TEXT_MODES: Final = ("text/plain",)


@dataclass(frozen=True, slots=True)
class FunctionAgent(Agent):
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
    """The type of the agent's settings, if it has settings."""
    settings: object = None
    """The agent's settings, once its host or `with_settings` has set them."""
    is_pausable: bool = False
    has_conversations: bool = False
    is_workflow: bool = False
    time_limit_s: Callable[[message_pb2.Message], Awaitable[float | None]] | None = None
    """Returns the longest life of the task that a message begins, in place of `timeout_s`."""
    lifespan: Lifespan | None = None
    callees: MeshCallees | None = None
    """The agents and tools that it may call, once its host has set them."""
    model: "ModelResults | None" = None
    """Answers `TaskContext.ask_model`. By default its host takes the model of the settings."""
    handlers: MessageHandlers = field(default_factory=MessageHandlers)
    """The handlers of messages between agents."""
    kind: str = ""

    @property
    def message_types(self) -> Sequence[str]:
        """The types of messages that it handles. Empty: messages come as requests."""
        return self.handlers.types

    async def find_time_limit_s(self, message: message_pb2.Message) -> float | None:
        """Return the longest life of the task that a message begins, if it is limited."""
        return self.timeout_s if self.time_limit_s is None else await self.time_limit_s(message)

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
            ConfigurationError: the type has a handler already, the model is not declared by
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
            await self._run_function(turn, None)
            return
        async with self.callees.open(turn) as calls:
            with turn.use_calls(calls, calls.input):
                await self._run_function(turn, calls)

    async def cancel_waiting(self, turn: TurnRuntime) -> None:
        """Cancel what calls of a waiting task left elsewhere, because the task is canceled."""
        if self.callees is not None:
            await self.callees.cancel_waiting(turn)

    async def _run_function(self, turn: TurnRuntime, calls: TurnCalls | None) -> None:
        if self.handlers and await self._run_handler(turn):
            return
        result = self.function(turn)
        if isinstance(result, AsyncIterator):
            await _write_pieces(turn, result, calls)
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


class AgentDeclaration(TypedDict, total=False):
    """The declarations of an agent, of a function or of a graph. Each of them may be left out."""

    tags: Sequence[str]
    """Words that a supervisor looks for in a request. By default the name of the agent."""
    examples: Sequence[str]
    """Requests that the agent answers."""
    version: str
    """The version of the agent, for its card. By default 0.1.0."""
    skills: Sequence[agent_card_pb2.AgentSkill]
    """Replaces the one skill that is made of the name, description, tags and examples."""
    extended_skills: Sequence[agent_card_pb2.AgentSkill]
    """Skills that only authenticated callers see."""
    input_modes: Sequence[str]
    """The media types of parts that the agent takes; others are refused. By default text/plain."""
    output_modes: Sequence[str]
    """The media types of the parts that the agent makes. By default text/plain."""
    concurrency: int | None
    """The number of turns that run at once. By default it is not limited."""
    repeatable: bool
    """After its host stopped, the turn runs again from its start, and its earlier output is
    removed. For functions without effects outside the task. By default False."""
    timeout_s: float | None
    """The longest life of a task in seconds. An earlier deadline of the caller holds. By default
    there is no limit."""
    routable: bool
    """A supervisor may choose the agent. By default True."""


class FunctionDeclaration(AgentDeclaration, total=False):
    """The declarations of an agent that is made of a function."""

    name: str | None
    """Up to 63 letters, digits, `_`, `-` and `.`, of which the last two stand between others. By
    default the name of the function, with hyphens for underscores."""
    description: str | None
    """By default the first paragraph of the docstring of the function."""
    resumable: bool
    """After its host stopped, the function is called again, its earlier output stays, and
    `task.rewind` cuts it back. For functions that store their progress. If an agent is neither
    resumable nor repeatable, its running turns fail. By default False."""
    direct_replies: bool
    """The function may return a Message, which makes no task. By default False."""


@overload
def agent(function: AgentFunction[None], /) -> FunctionAgent: ...


@overload
def agent(
    *, settings: type[SettingsT] | None = None, **declared: Unpack[FunctionDeclaration]
) -> Callable[[AgentFunction[SettingsT]], FunctionAgent]: ...


def agent(
    function: AgentFunction[Any] | None = None,
    /,
    *,
    settings: type[Any] | None = None,
    **declared: Unpack[FunctionDeclaration],
) -> FunctionAgent | Callable[[AgentFunction[Any]], FunctionAgent]:
    """Make an agent of a function that takes a `TaskContext`.

    A plain `def` function runs in its own thread, so that it may block. It reads the task, and
    can't await its methods. A cancel ends the task at once, but can't stop the thread.

    The result of the function ends the turn: a text, a JSON object or a Part becomes one artifact,
    a Message a direct reply, and None completes the task. An asynchronous generator yields pieces
    of one artifact. Any other result fails the task with an error that lists these.

    Args:
        function: the function itself, for `@agent` without arguments.
        settings: a pydantic model or a dataclass. The host reads it before it serves the agent,
            from `[agent.NAME.options]` of `trunkline.toml` and from TRUNKLINE_AGENT_NAME_FIELD
            variables, which take precedence. The function reads it as `task.settings`.
        declared: see `FunctionDeclaration`.

    Raises:
        ConfigurationError: the name is not valid, there is no description, the concurrency is below
            1, the function is a generator that is not asynchronous, or the settings are neither a
            pydantic model nor a dataclass.
    """
    check_declared("agent", declared, FunctionDeclaration)
    name, concurrency = declared.get("name"), declared.get("concurrency")
    if concurrency is not None and concurrency < 1:
        problem = "its concurrency must be at least 1, or None for no limit"
        raise ConfigurationError(f"agent {name!r}", problem)
    if name is not None:
        check_agent_name(name, f"agent {name!r}")
        _check_settings_type(name, settings)

    def build(function: AgentFunction[Any]) -> FunctionAgent:
        agent_name = name or getattr(function, "__name__", "").replace("_", "-")
        check_agent_name(agent_name, f"agent {agent_name!r}")
        _check_settings_type(agent_name, settings)
        return FunctionAgent(
            card=_build_card(agent_name, function, declared),
            function=make_async(function, f"agent {agent_name!r}", "its function"),
            direct_replies=declared.get("direct_replies", False),
            repeatable=declared.get("repeatable", False),
            resumable=declared.get("resumable", False),
            routable=declared.get("routable", True),
            concurrency=concurrency,
            timeout_s=declared.get("timeout_s"),
            extended_skills=tuple(declared.get("extended_skills", ())),
            settings_type=settings,
        )

    return build if function is None else build(function)


def check_declared(
    function: str, declared: Mapping[str, object], kind: type[AgentDeclaration]
) -> None:
    """Check that a function was called with declarations of a kind, as a signature would.

    Raises:
        TypeError: another argument was given.
    """
    if unknown := next((name for name in declared if name not in kind.__annotations__), ""):
        raise TypeError(f"{function}() got an unexpected keyword argument {unknown!r}")


def _check_settings_type(agent: str, kind: type | None) -> None:
    if kind is not None and not (is_dataclass(kind) or hasattr(kind, "model_fields")):
        problem = "its settings must be a pydantic model or a dataclass"
        raise ConfigurationError(f"agent {agent!r}", problem)


def _build_card(
    name: str, function: AgentFunction[Any], declared: FunctionDeclaration
) -> agent_card_pb2.AgentCard:
    description = declared.get("description") or _first_paragraph(function)
    if not description:
        problem = "it has no description: pass `description`, or give its function a docstring"
        raise ConfigurationError(f"agent {name!r}", problem)
    skill = agent_card_pb2.AgentSkill(
        id=name,
        name=name,
        description=description,
        tags=declared.get("tags") or [name],
        examples=declared.get("examples", ()),
    )
    return agent_card_pb2.AgentCard(
        name=name,
        description=description,
        version=declared.get("version", "0.1.0"),
        default_input_modes=declared.get("input_modes", _TEXT_MODES),
        default_output_modes=declared.get("output_modes", _TEXT_MODES),
        skills=declared.get("skills") or [skill],
    )


def _first_paragraph(function: AgentFunction[Any]) -> str:
    """Return the first paragraph of a docstring on one line, or "" without a docstring."""
    text = inspect.getdoc(function) or ""
    return " ".join(text.partition("\n\n")[0].split())


async def _write_pieces(
    turn: TurnRuntime, pieces: AsyncIterator[Piece], calls: TurnCalls | None
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
            # The next turn, which continues this turn, yields the same pieces again.
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
