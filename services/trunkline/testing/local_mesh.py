"""A mesh for tests of agents: ask, stream, cancel, and look at what came of it."""

import asyncio
import functools
import tempfile
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import ExitStack, aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeAlias, TypeVar

from trunkline.client import Directory
from trunkline.client.content_resolver import ContentResolver
from trunkline.errors import ConfigurationError
from trunkline.identity import ANONYMOUS_ACCOUNT
from trunkline.tasks.agent import Agent
from trunkline.testing.mesh_setup import BundledAgents, build_settings, open_mesh, wait_for_agents
from trunkline.testing.results import Answer, Stream
from trunkline.v1 import message_pb2, message_service_pb2, part_pb2, snapshot_pb2

if TYPE_CHECKING:
    from langchain_core.language_models.chat_models import BaseChatModel


Content: TypeAlias = str | part_pb2.Part | message_pb2.Message


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
    """Open a mesh with these agents for the length of a block.

    `bundled` are names of agents that ship, `supervisor` for example, or that an MCP file has;
    `models` are chat models of LangChain's, a `ScriptedModel` for example, that some of them reason
    with, by their names.
    `options` are what `[agent.NAME.options]` tables would be, by the agents' names, `settings` any
    others, by their names in `Settings`. With `data_dir`, tasks and conversations are still there
    for the next mesh on it. No wait of the test takes longer than `timeout_s`. Whatever runs at the
    block's end is stopped.

    Raises:
        ConfigurationError: there is no agent, or something that was said makes no sense.
        TimeoutError: an agent doesn't come onto the mesh; one of another place may be away.
    """
    if not (agents or bundled):
        raise ConfigurationError("mesh", "give it an agent")
    with ExitStack() as stack:
        if data_dir is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="trunkline-"))
            data_dir = Path(folder)
        given = build_settings(data_dir, options or {}, settings or {})
        failure: BaseException | None = None
        shipped = BundledAgents(bundled, models or {})
        async with open_mesh(agents, shipped, given) as (directory, names):
            first = agents[0].card.name if agents else bundled[0]
            try:
                await wait_for_agents(directory, names, timeout_s=timeout_s)
                yield Mesh(directory, default_agent=first, timeout_s=timeout_s)
            except (asyncio.CancelledError, GeneratorExit):
                raise
            except BaseException as error:  # noqa: BLE001  raised again below, as it is
                # Not out of the groups of tasks that the mesh is made of.
                failure = error
        if failure is not None:
            raise failure


class Mesh:
    """A mesh that is open. Agents are named; without a name it is the first one.

    What is refused raises the TrunklineError that a caller over gRPC gets; a wait that takes too
    long raises TimeoutError.
    """

    def __init__(self, directory: Directory, *, default_agent: str, timeout_s: float) -> None:
        self.directory = directory
        """Who is on the mesh, and clients of their hosts."""
        self._default_agent = default_agent
        self._timeout_s = timeout_s

    async def ask(
        self,
        *content: Content,
        agent: str = "",
        task: Answer | str | None = None,
        context: Answer | str | None = None,
    ) -> Answer:
        """Give an agent a message and wait until its turn is over.

        The message is made of texts and parts, or is one. `task` goes on with a task that asked
        for something, `context` begins a new one in the same conversation.
        """
        found = await self._send(content, agent, task, context, return_immediately=False)
        if isinstance(found, message_pb2.Message):
            return Answer(None, found)
        return Answer(found)

    async def submit(
        self,
        *content: Content,
        agent: str = "",
        task: Answer | str | None = None,
        context: Answer | str | None = None,
    ) -> Answer:
        """Give an agent a message; return the task as soon as it exists."""
        found = await self._send(content, agent, task, context, return_immediately=True)
        if isinstance(found, message_pb2.Message):
            return Answer(None, found)
        return Answer(found)

    @asynccontextmanager
    async def stream(
        self,
        *content: Content,
        agent: str = "",
        task: Answer | str | None = None,
        context: Answer | str | None = None,
    ) -> AsyncIterator[Stream]:
        """Give an agent a message and follow the turn; leaving the block doesn't end it."""
        after = 0
        if task is not None:
            before = (await self.get(task)).snapshot
            after = 0 if before is None else before.sequence
        begun = await self.submit(*content, agent=agent, task=task, context=context)
        if begun.snapshot is None:
            yield Stream(begun, None)
            return
        client = self.directory.client_for_task(begun.task_id)
        async with (
            client.watch_task(
                begun.task_id, account="", after=after, with_snapshot=False, until_turn_ends=True
            ) as batches,
            aclosing(_timely(aiter(batches), self._timeout_s)) as timely,
        ):
            yield Stream(begun, timely)

    async def get(self, task: Answer | str) -> Answer:
        """Return a task as it stands now."""
        task_id = _task_id(task)
        return Answer(await self.directory.client_for_task(task_id).get_task(task_id, account=""))

    async def wait_until(
        self, task: Answer | str, predicate: Callable[[Answer], bool] | None = None
    ) -> Answer:
        """Follow a task until the predicate holds of it; without one, until its turn is over.

        Raises:
            TimeoutError: it never did.
        """
        wanted = predicate or (lambda answer: answer.state not in {"submitted", "working"})
        task_id = _task_id(task)
        client = self.directory.client_for_task(task_id)
        async with (
            asyncio.timeout(self._timeout_s),
            client.watch_task(task_id, account="") as batches,
        ):
            found = await self.get(task_id)
            if wanted(found):
                return found
            async for _ in batches:
                found = await self.get(task_id)
                if wanted(found):
                    return found
        raise TimeoutError(f"task {task_id} ended otherwise, as {found.state}: {found.status_text}")

    async def cancel(self, task: Answer | str, *, reason: str = "") -> Answer:
        """Cancel a task and all that it called; return it, ended."""
        task_id = _task_id(task)
        client = self.directory.client_for_task(task_id)
        return Answer(await client.cancel_task(task_id, account="", reason=reason))

    async def read(self, part: part_pb2.Part) -> bytes:
        """Return the content of a part of an answer: its bytes, or what its URL leads to.

        Raises:
            TrunklineError: there is nothing there, or nothing may be fetched from there.
        """
        if not part.url:
            return part.raw or part.text.encode()
        async with ContentResolver(self.directory).open(part.url, ANONYMOUS_ACCOUNT) as pieces:
            return b"".join([piece async for piece in pieces])

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
        found = (await self.get(task_id)).snapshot
        return "" if found is None else found.agent


async def _timely(
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
    """Return a user's message of texts and parts; a message is taken as it is."""
    message = message_pb2.Message()
    for one in content:
        match one:
            case str():
                message.parts.add(text=one)
            case part_pb2.Part():
                message.parts.append(one)
            case _:
                message.MergeFrom(one)
    message.role = message_pb2.ROLE_USER
    message.message_id = message.message_id or str(uuid.uuid4())
    return message


_Given = ParamSpec("_Given")
_Returned = TypeVar("_Returned")


def async_test(
    test: Callable[_Given, Coroutine[Any, Any, _Returned]],
) -> Callable[_Given, _Returned]:
    """Make a plain test of an asynchronous one: pytest, fixtures included, needs no plugin then."""

    @functools.wraps(test)
    def run(*args: _Given.args, **kwargs: _Given.kwargs) -> _Returned:
        return asyncio.run(test(*args, **kwargs))

    return run
