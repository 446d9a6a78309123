"""Makes an agent of a function: `@agent`."""

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from trunkline.errors import ConfigurationError
from trunkline.tasks.turn.context import TaskContext
from trunkline.v1 import agent_card_pb2, message_pb2, part_pb2

Result: TypeAlias = str | part_pb2.Part | message_pb2.Message | None
AgentFunction: TypeAlias = (
    Callable[[TaskContext], Awaitable[Result]]
    | Callable[[TaskContext], AsyncIterator[str | part_pb2.Part]]
)


@dataclass(frozen=True, slots=True)
class FunctionAgent:
    """An agent whose turns are calls of a function."""

    card: agent_card_pb2.AgentCard
    function: AgentFunction
    direct_replies: bool
    repeatable: bool
    resumable: bool
    routable: bool
    concurrency: int
    timeout_s: float | None
    extended_skills: Sequence[agent_card_pb2.AgentSkill] = ()
    cancel_elsewhere: Callable[[str], Awaitable[None]] | None = None
    """Cancels what the agent has others do outside the mesh, which is a child task called
    `NAME:ID`, with the agent's name. It is told the ID, and may be told it again."""

    async def run(self, task: TaskContext) -> None:
        """Call the function and emit what it returns or yields."""
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
) -> Callable[[AgentFunction], FunctionAgent]:
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

    Raises:
        ConfigurationError: the name isn't made of lower-case letters, digits and hyphens, or the
            function isn't asynchronous.
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

    def make(function: AgentFunction) -> FunctionAgent:
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
        )

    return make


async def _emit_pieces(task: TaskContext, pieces: AsyncIterator[str | part_pb2.Part]) -> None:
    artifact = task.artifact()
    is_empty = True
    async for piece in pieces:
        is_empty = False
        await artifact.append(piece)
    if not is_empty:
        await artifact.close()


async def _emit_result(task: TaskContext, result: Result) -> None:
    if isinstance(result, message_pb2.Message):
        await task.reply(result)
    elif result is not None:
        await task.artifact().append(result, last=True)
