"""Turns that are cut in the middle of a tool call, and later questions of the conversation.

The model is built in, or a provider's over its real client. The provider refuses, as real ones do,
a tool call without a result.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.agents.shop import ToolsWithoutTasks
from harness.journal.host_death import kill_host
from harness.journal.opening import open_journal
from harness.remote.model_server import ModelRequest, ModelServer, Reply, call, model_server, say
from trunkline.agents.calls.tool_source import OnProgress, OnTask, ToolListing
from trunkline.agents.reasoning import ModelChoice, ReasoningAgent
from trunkline.agents.reasoning.message_repair import CALL_INTERRUPTED
from trunkline.conversations.sqlite import open_sqlite_memory
from trunkline.core.json_values import parse_dict, read_member
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.submission import SubmitResult
from trunkline.v1 import (
    agent_card_pb2,
    message_pb2,
    message_service_pb2,
    part_pb2,
    snapshot_pb2,
    tool_service_pb2,
)

TIMEOUT_S = 300.0
MODELS = ("rules", "openai:any")
MATCH = {
    "trunkline/match": [{"pattern": r"look at (?P<what>\w+)", "arguments": {"what": "{what}"}}]
}


@dataclass
class LookTool(ToolsWithoutTasks):
    """A tool that looks at something; its first call never returns."""

    looks: list[str] = field(default_factory=list)
    hangs: asyncio.Event = field(default_factory=asyncio.Event)

    async def list_tools(self, servers: Sequence[str]) -> ToolListing:
        tool = tool_service_pb2.Tool(server=servers[0], name="look", read_only=True)
        parse_dict(MATCH, tool.metadata)
        return ToolListing((tool,), {})

    async def call_tool(
        self,
        request: tool_service_pb2.CallToolRequest,
        *,
        on_progress: OnProgress,
        on_task: OnTask,
    ) -> tool_service_pb2.ToolResult:
        self.looks.append(str(read_member(request.arguments, "what")))
        if len(self.looks) == 1:
            self.hangs.set()
            await asyncio.Event().wait()
        return tool_service_pb2.ToolResult(content=[part_pb2.Part(text=f"seen {self.looks[-1]}")])


@dataclass
class Life:
    """A host with the agent; its files outlive it."""

    folder: Path
    tools: LookTool
    host: TaskHost

    async def begin(self, text: str) -> str:
        message = message_pb2.Message(
            message_id=text,
            context_id="c",
            role=message_pb2.ROLE_USER,
            parts=[part_pb2.Part(text=text)],
        )
        accepted = await self.host.submit("looker", message, message_service_pb2.Submission())
        assert isinstance(accepted, SubmitResult)
        return accepted.task_id

    async def ended(self, task_id: str) -> snapshot_pb2.TaskSnapshot:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.host.wait_turn(task_id)

    async def ask(self, text: str) -> str:
        ended = await self.ended(await self.begin(text))
        assert ended.task.status.state == State.TASK_STATE_COMPLETED, ended.task.status
        (answer,) = ended.task.artifacts
        return "".join(part.text for part in answer.parts)


@asynccontextmanager
async def life(folder: Path, model: str, tools: LookTool) -> AsyncIterator[Life]:
    journal = open_journal(folder / "journal.db")
    card = agent_card_pb2.AgentCard(name="looker", default_input_modes=["text/plain"])
    choice = ModelChoice(model, check=False)
    agent = ReasoningAgent(card, servers=["s"], tools=tools, model=choice)
    host = TaskHost(journal, [agent], memory=await open_sqlite_memory(folder / "journal.db"))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(journal.close)
        await host.__aenter__()
        yield Life(folder, tools, host)
        if not host.lost.is_set():
            await host.__aexit__(None, None, None)


@pytest.fixture(scope="module")
def server() -> Iterator[ModelServer]:
    with model_server() as running, pytest.MonkeyPatch.context() as patch:
        for name, value in running.environment.items():
            patch.setenv(name, value)
        running.decide = decide
        yield running


def decide(request: ModelRequest) -> Reply:
    """Look at the object of the question, and answer with the result."""
    last = request.messages[-1]
    if last["role"] == "tool":
        return say(last["content"])
    return call("s__look", what=request.last.split()[-1])


def threads(folder: Path) -> set[str]:
    """Return the threads that have checkpoints."""
    with closing(sqlite3.connect(folder / "journal.db.checkpoints")) as connection:
        return {row[0] for row in connection.execute("SELECT thread_id FROM checkpoints")}


@pytest.mark.parametrize("model", MODELS)
async def test_a_turn_that_was_canceled_does_not_poison_the_next(
    tmp_path: Path, server: ModelServer, model: str
) -> None:
    server.requests.clear()
    async with life(tmp_path, model, LookTool()) as living:
        canceled = await living.begin("look at stars")
        async with asyncio.timeout(TIMEOUT_S):
            await living.tools.hangs.wait()
        await living.host.cancel(canceled, account="anonymous")
        assert threads(tmp_path) == set()
        assert await living.ask("look at clouds") == "seen clouds"
    if model != "rules":
        shown = server.requests[-1].messages
        # The instructions, the cut turn, and the question with its result.
        assert [message["role"] for message in shown] == [
            "system",
            *("user", "assistant", "tool", "assistant"),
            *("user", "assistant", "tool"),
        ]
        assert shown[3]["content"] == CALL_INTERRUPTED


@pytest.mark.parametrize("model", MODELS)
async def test_a_turn_whose_host_was_killed_resumes_and_the_conversation_continues(
    tmp_path: Path, server: ModelServer, model: str
) -> None:
    server.requests.clear()
    tools = LookTool()
    async with life(tmp_path, model, tools) as killed:
        task_id = await killed.begin("look at stars")
        async with asyncio.timeout(TIMEOUT_S):
            await tools.hangs.wait()
        await kill_host(killed.host)
        killed.host.lost.set()
        assert f"{task_id}/1" in threads(tmp_path)
    async with life(tmp_path, model, tools) as living:
        ended = await living.ended(task_id)
        assert ended.task.status.state == State.TASK_STATE_COMPLETED
        assert ended.task.artifacts[0].parts[0].text == "seen stars"
        assert await living.ask("look at clouds") == "seen clouds"
    assert threads(tmp_path) == set()
    if model != "rules":
        texts = [message["content"] for message in server.requests[-1].messages]
        assert texts[1:4:2] == ["look at stars", "seen stars"]
        # Each of the two turns: for the call, and for the answer. The kill came behind the call.
        assert len(server.requests) == 4


@pytest.mark.parametrize("model", MODELS)
async def test_two_questions_at_once_are_answered_one_after_the_other(
    tmp_path: Path, server: ModelServer, model: str
) -> None:
    tools = LookTool(looks=["before"])
    async with life(tmp_path, model, tools) as living:
        first = await living.begin("look at stars")
        second = await living.begin("look at clouds")
        await living.ended(first)
        await living.ended(second)
    assert tools.looks == ["before", "stars", "clouds"]
    if model != "rules":
        assert "seen stars" in [message["content"] for message in server.requests[-1].messages]
