"""A mesh within the process of a test: ask its agents, stream, cancel, and inspect the results."""

import asyncio
import functools
import tempfile
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

from trunkline.core.accounts import ANONYMOUS_ACCOUNT
from trunkline.core.task_states import TaskState
from trunkline.errors import ConfigurationError
from trunkline.mesh.client import Directory
from trunkline.mesh.client.content_resolver import ContentResolver
from trunkline.tasks.agent import Agent
from trunkline.tasks.content import Content, part_content, to_part
from trunkline.testing.mesh_setup import BundledAgents, build_settings, open_mesh, wait_for_agents
from trunkline.testing.results import Answer, Stream
from trunkline.v1 import message_pb2, message_service_pb2, part_pb2, snapshot_pb2

if TYPE_CHECKING:
    from langchain_core.language_models.chat_models import BaseChatModel

_TURN_RUNS: Final = frozenset({TaskState.SUBMITTED, TaskState.WORKING})


@asynccontextmanager
async def mesh(
    *agents: Agent,
    bundled: Sequence[str] = (),
    models: Mapping[str, "BaseChatModel"] | None = None,
    options: Mapping[str, Mapping[str, object]] | None = None,
    settings: Mapping[str, Any] | None = None,
    data_dir: Path | None = None,
    timeout_s: float = 30.0,
) -> AsyncIterator["Mesh"]:
    """Open a mesh with these agents for the duration of a block. At its end, running turns stop.

    Args:
        agents: the agents to serve; the first one is the default of `Mesh`.
        bundled: names of bundled agents, `supervisor` for example, or of agents in an MCP file.
        models: LangChain chat models, a `ScriptedModel` for example, by the names of the agents
            that use them: bundled agents, and functions that call `task.ask_model`.
        options: the `[agent.NAME.options]` tables, by the names of the agents.
        settings: any other settings, by their names in `Settings`, checked as in a file; the MCP
            servers of an `mcp_file` are started, for agents that call tools.
        data_dir: the folder of tasks and conversations, which a later mesh on it continues; by
            default a temporary one.
        timeout_s: the limit of each wait of the test.

    Raises:
        ConfigurationError: there is no agent, or an argument is not valid.
        TimeoutError: an agent did not join the mesh; a remote one may be unreachable.
    """
    if not (agents or bundled):
        raise ConfigurationError("mesh", "pass at least one agent")
    with ExitStack() as stack:
        if data_dir is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="trunkline-"))
            data_dir = Path(folder)
        mesh_settings = build_settings(data_dir, options or {}, settings or {})
        failure: BaseException | None = None
        bundled_agents = BundledAgents(bundled, models or {})
        async with open_mesh(agents, bundled_agents, mesh_settings) as (directory, names):
            first = agents[0].card.name if agents else bundled[0]
            try:
                await wait_for_agents(directory, names, timeout_s=timeout_s)
                yield Mesh(directory, default_agent=first, timeout_s=timeout_s)
            except (asyncio.CancelledError, GeneratorExit):
                raise
            except BaseException as error:  # noqa: BLE001  raised again below
                # Raised outside the mesh, whose task groups would wrap it in an ExceptionGroup.
                failure = error
        if failure is not None:
            raise failure


class Mesh:
    """An open mesh. Methods with an `agent` argument default to the first agent.

    Errors are the TrunklineErrors that a gRPC caller gets. A wait that exceeds the mesh's
    `timeout_s` raises TimeoutError.
    """

    def __init__(self, directory: Directory, *, default_agent: str, timeout_s: float) -> None:
        self.directory = directory
        """The agents on the mesh, and clients for their hosts."""
        self._default_agent = default_agent
        self._timeout_s = timeout_s

    async def ask(
        self,
        *content: Content,
        agent: str = "",
        task: Answer | str | None = None,
        context: Answer | str | None = None,
    ) -> Answer:
        """Send a message to an agent and wait until its turn is over.

        `content` is texts, parts and JSON objects, or one message. `task` continues a task that
        asked for input; `context` starts a new task in the same conversation.
        """
        result = await self._send(content, agent, task, context, return_immediately=False)
        if isinstance(result, message_pb2.Message):
            return Answer(None, result)
        return Answer(result)

    async def submit(
        self,
        *content: Content,
        agent: str = "",
        task: Answer | str | None = None,
        context: Answer | str | None = None,
    ) -> Answer:
        """Send a message to an agent; return the task as soon as it exists."""
        result = await self._send(content, agent, task, context, return_immediately=True)
        if isinstance(result, message_pb2.Message):
            return Answer(None, result)
        return Answer(result)

    @asynccontextmanager
    async def stream(
        self,
        *content: Content,
        agent: str = "",
        task: Answer | str | None = None,
        context: Answer | str | None = None,
    ) -> AsyncIterator[Stream]:
        """Send a message to an agent and watch the turn; leaving the block does not cancel it."""
        after = 0
        if task is not None:
            before = (await self.get(task)).snapshot
            after = 0 if before is None else before.sequence
        initial = await self.submit(*content, agent=agent, task=task, context=context)
        if initial.snapshot is None:
            yield Stream(initial, None)
            return
        client = self.directory.client_for_task(initial.task_id)
        async with (
            client.watch_task(
                initial.task_id, account="", after=after, with_snapshot=False, until_turn_ends=True
            ) as batches,
            aclosing(_with_timeout(aiter(batches), self._timeout_s)) as limited,
        ):
            yield Stream(initial, limited)

    async def get(self, task: Answer | str) -> Answer:
        """Return the current state of a task."""
        task_id = _task_id(task)
        return Answer(await self.directory.client_for_task(task_id).get_task(task_id, account=""))

    async def wait_until(
        self, task: Answer | str, predicate: Callable[[Answer], bool] | None = None
    ) -> Answer:
        """Watch a task until the predicate holds for it; by default until its turn is over.

        Raises:
            TimeoutError: the predicate did not hold in time, or the task ended before.
        """
        is_reached = predicate or (lambda answer: answer.state not in _TURN_RUNS)
        task_id = _task_id(task)
        client = self.directory.client_for_task(task_id)
        async with (
            asyncio.timeout(self._timeout_s),
            client.watch_task(task_id, account="") as batches,
        ):
            current = await self.get(task_id)
            if is_reached(current):
                return current
            async for _ in batches:
                current = await self.get(task_id)
                if is_reached(current):
                    return current
        outcome = f"{current.state}: {current.status_text}"
        raise TimeoutError(f"task {task_id} ended before the predicate held, as {outcome}")

    async def cancel(self, task: Answer | str, *, reason: str = "") -> Answer:
        """Cancel a task and its children; return the ended task."""
        task_id = _task_id(task)
        client = self.directory.client_for_task(task_id)
        return Answer(await client.cancel_task(task_id, account="", reason=reason))

    async def read(self, part: part_pb2.Part) -> bytes:
        """Return the content of a part of an answer, inline or behind its URL; data is JSON.

        Raises:
            TrunklineError: there is no such content, or nothing may be fetched from that URL.
        """
        if not part.url:
            return part_content(part)
        async with ContentResolver(self.directory).open(part.url, ANONYMOUS_ACCOUNT) as chunks:
            return b"".join([chunk async for chunk in chunks])

    async def _send(
        self,
        content: Sequence[Content],
        agent: str,
        task: Answer | str | None,
        context: Answer | str | None,
        *,
        return_immediately: bool,
    ) -> snapshot_pb2.TaskSnapshot | message_pb2.Message:
        message = _message(content)
        if task is not None:
            message.task_id = _task_id(task)
            agent = agent or (await self._agent_of(message.task_id))
        if context is not None:
            message.context_id = context if isinstance(context, str) else context.context_id
        agent = agent or self._default_agent
        async with asyncio.timeout(self._timeout_s):
            client = (
                self.directory.client_for_task(message.task_id)
                if message.task_id
                else self.directory.client_for_agent(agent)
            )
            return await client.send_message(
                agent=agent,
                message=message,
                submission=message_service_pb2.Submission(),
                return_immediately=return_immediately,
                timeout_s=2 * self._timeout_s,
            )

    async def _agent_of(self, task_id: str) -> str:
        snapshot = (await self.get(task_id)).snapshot
        return "" if snapshot is None else snapshot.agent


async def _with_timeout(
    batches: AsyncIterator[list[bytes]], timeout_s: float
) -> AsyncGenerator[list[bytes], None]:
    while True:
        try:
            async with asyncio.timeout(timeout_s):
                batch = await anext(batches)
        except StopAsyncIteration:
            return
        yield batch


def _task_id(task: Answer | str) -> str:
    return task if isinstance(task, str) else task.task_id


def _message(content: Sequence[Content]) -> message_pb2.Message:
    """Return a user's message of texts and parts, or a copy of a message."""
    message = message_pb2.Message()
    for item in content:
        match item:
            case message_pb2.Message():
                message.MergeFrom(item)
            case _:
                message.parts.append(to_part(item))
    message.role = message_pb2.ROLE_USER
    message.message_id = message.message_id or str(uuid.uuid4())
    return message


_Params = ParamSpec("_Params")
_Result = TypeVar("_Result")


def async_test(
    test: Callable[_Params, Coroutine[Any, Any, _Result]],
) -> Callable[_Params, _Result]:
    """Turn a coroutine function into a plain test, which pytest runs without a plugin.

    Fixtures work, because the wrapper has the same signature.
    """

    @functools.wraps(test)
    def run(*args: _Params.args, **kwargs: _Params.kwargs) -> _Result:
        return asyncio.run(test(*args, **kwargs))

    return run
