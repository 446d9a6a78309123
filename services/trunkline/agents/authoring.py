"""Makes an agent of a function: `@agent`."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from trunkline.agents.options import validate_options_type
from trunkline.errors import ConfigurationError
from trunkline.settings import Settings
from trunkline.tasks.context import SettingsT, TaskContext
from trunkline.v1 import agent_card_pb2, message_pb2, part_pb2

AgentResult: TypeAlias = str | part_pb2.Part | message_pb2.Message | None
AgentFunction: TypeAlias = (
    Callable[[TaskContext[SettingsT]], Awaitable[AgentResult]]
    | Callable[[TaskContext[SettingsT]], AsyncIterator[str | part_pb2.Part]]
)
Lifespan: TypeAlias = Callable[[Settings, Callable[[], None]], AbstractAsyncContextManager[None]]


@dataclass(frozen=True, slots=True)
class FunctionAgent:
    """An agent whose turns are calls of a function."""

    card: agent_card_pb2.AgentCard
    function: AgentFunction[Any]
    direct_replies: bool
    repeatable: bool
    resumable: bool
    routable: bool
    concurrency: int
    timeout_s: float | None
    extended_skills: Sequence[agent_card_pb2.AgentSkill] = ()
    cancel_remote: Callable[[str], Awaitable[None]] | None = None
    """Cancels what the agent has others do outside the mesh, which is a child task called
    `NAME:ID`, with the agent's name. It is told the ID, and may be told it again."""
    settings_type: type[Any] | None = None
    """What its settings are read as; None: it takes none."""
    settings: object = None
    """Its settings, once they have been read: its host does that, or `with_settings`."""
    lifespan: Lifespan | None = None
    """Does for as long as the agent is served what it needs for that; one that has this is on the
    mesh from the first call of what it is given on, which says that it is there or has changed."""

    def with_settings(self, settings: object) -> "FunctionAgent":
        """Return the agent with settings that were made elsewhere: none are looked for then.

        Raises:
            ConfigurationError: they aren't of the type that the agent is declared with.
        """
        if self.settings_type is None or not isinstance(settings, self.settings_type):
            wanted = "none" if self.settings_type is None else self.settings_type.__name__
            problem = f"its settings are {wanted}, not {type(settings).__name__}"
            raise ConfigurationError(f"agent {self.card.name!r}", problem)
        return replace(self, settings=settings)

    async def run(self, task: TaskContext[Any]) -> None:
        """Call the function and emit what it returns or yields."""
        task.settings = self.settings
        result = self.function(task)
        if isinstance(result, AsyncIterator):
            await _emit_pieces(task, result)
        else:
            await _emit_result(task, await result)


def agent(
    *,
    name: str,
    description: str,
    tags: Sequence[str] = (),
    examples: Sequence[str] = (),
    version: str = "0.1.0",
    skills: Sequence[agent_card_pb2.AgentSkill] = (),
    extended_skills: Sequence[agent_card_pb2.AgentSkill] = (),
    input_modes: Sequence[str] = ("text/plain",),
    output_modes: Sequence[str] = ("text/plain",),
    concurrency: int = 0,
    repeatable: bool = False,
    resumable: bool = False,
    timeout_s: float | None = None,
    direct_replies: bool = False,
    routable: bool = True,
    settings: type[SettingsT] | None = None,
) -> Callable[[AgentFunction[SettingsT]], FunctionAgent]:
    """Make an agent of an asynchronous function that takes the task.

    What the function returns ends the turn: a text or Part is one artifact, a Message a direct
    reply, None completes. An asynchronous generator yields deltas of one artifact. `tags` are what
    a supervisor looks for in a request; `skills` replaces the one skill made of them, and
    `extended_skills` are shown beside to callers that the bridge has authenticated.

    `concurrency` is how many turns run at once, 0 for any number. When the host dies, the turn of
    a `repeatable` agent runs again from its start, what it wrote is cut off; that of a `resumable`
    one is called again with all it wrote in place, and itself calls `task.rewind`; that of any
    other fails, unless it had emitted nothing yet: then it runs. A task lives no longer than
    `timeout_s`, or its caller's earlier deadline.

    `settings` is a pydantic model or a dataclass. The host fills it before it serves the agent,
    from `[agent.NAME.options]` of `trunkline.toml` and, over that, TRUNKLINE_AGENT_NAME_FIELD
    variables; the turn finds it as `task.settings`.

    Raises:
        ConfigurationError: the name isn't made of lower-case letters, digits and hyphens, the
            function isn't asynchronous, or the settings are no type that can be filled.
    """
    if not name.replace("-", "").isalnum() or name != name.lower() or not name.isascii():
        raise ConfigurationError(
            f"agent {name!r}", "a name is made of lower-case letters, digits and hyphens"
        )
    skill = agent_card_pb2.AgentSkill(
        id=name, name=name, description=description, tags=tags or [name], examples=examples
    )
    card = agent_card_pb2.AgentCard(
        name=name,
        description=description,
        version=version,
        default_input_modes=input_modes,
        default_output_modes=output_modes,
        skills=skills or [skill],
    )

    if settings is not None:
        validate_options_type(name, settings)

    def make(function: AgentFunction[SettingsT]) -> FunctionAgent:
        if not inspect.iscoroutinefunction(function) and not inspect.isasyncgenfunction(function):
            raise ConfigurationError(f"agent {name!r}", "its function must be `async def`")
        return FunctionAgent(
            card=card,
            function=function,
            direct_replies=direct_replies,
            repeatable=repeatable,
            resumable=resumable,
            routable=routable,
            concurrency=concurrency,
            timeout_s=timeout_s,
            extended_skills=tuple(extended_skills),
            settings_type=settings,
        )

    return make


async def _emit_pieces(task: TaskContext[Any], pieces: AsyncIterator[str | part_pb2.Part]) -> None:
    artifact = task.artifact()
    is_empty = True
    async for piece in pieces:
        is_empty = False
        await artifact.append(piece)
    if not is_empty:
        await artifact.close()


async def _emit_result(task: TaskContext[Any], result: AgentResult) -> None:
    if isinstance(result, message_pb2.Message):
        await task.reply(result)
    elif result is not None:
        await task.artifact().append(result, last=True)
