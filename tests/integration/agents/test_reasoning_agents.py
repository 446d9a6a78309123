"""Questions to reasoning agents over real gRPC, a real journal and real MCP servers."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.journal.opening import open_journal
from harness.mcp.scripted_servers import AWKWARD, call
from harness.mesh.bundled_cards import load_spec
from harness.mesh.identity import mesh_credentials
from trunkline.agents.calls.tool_source import MeshTools
from trunkline.agents.followed_skills import follow_tools
from trunkline.agents.reasoning import ReasoningAgent
from trunkline.core.settings import Settings
from trunkline.core.small_files import FolderFiles
from trunkline.journal.journal import Journal
from trunkline.mesh.client import ChannelPool, Directory, RegistryClient
from trunkline.mesh.registry import RegistryServicer
from trunkline.mesh.server import MeshServer
from trunkline.processes.agents import build_reasoning_agent
from trunkline.processes.tools import load_mcp_config
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import State
from trunkline.tasks.submission import SubmitResult
from trunkline.tools.adapter import ToolAdapter
from trunkline.tools.approval_gate import ApprovalGate
from trunkline.tools.config import AdapterSettings, McpConfig, agents_from_config
from trunkline.tools.tool_servicer import SERVICE, ToolServicer
from trunkline.tools.used_approvals import SqliteUsedApprovals
from trunkline.v1 import (
    agent_card_pb2,
    event_pb2,
    message_pb2,
    message_service_pb2,
    part_pb2,
    registry_service_pb2,
    snapshot_pb2,
    tool_service_pb2_grpc,
)

TIMEOUT_S = 300.0
# Bundled servers are processes with large libraries, so each mesh runs only those that it needs.
ONE_SERVER_ONLY = {name: {"disabled": True} for name in ("math", "currency", "research")}


def awkward(**match: Any) -> dict[str, Any]:
    tools = {tool: {"match": [rule]} for tool, rule in match.items()}
    overlay = {"approval": "never", "tools": tools}
    return {"command": sys.executable, "args": [AWKWARD], "trunkline": overlay}


@dataclass(frozen=True, slots=True)
class Mesh:
    host: TaskHost
    adapter: ToolAdapter
    tools: MeshTools
    config: McpConfig

    async def begin(
        self, agent: str, text: str, *, task_id: str = "", deadline: datetime | None = None
    ) -> str:
        message = message_pb2.Message(
            message_id=text[:20], role=message_pb2.ROLE_USER, parts=[part_pb2.Part(text=text)]
        )
        message.task_id = task_id
        submission = message_service_pb2.Submission()
        if deadline is not None:
            submission.deadline.FromDatetime(deadline)
        accepted = await self.host.submit(agent, message, submission)
        assert isinstance(accepted, SubmitResult)
        return accepted.task_id

    async def ask(self, agent: str, text: str, **more: Any) -> snapshot_pb2.TaskSnapshot:
        async with asyncio.timeout(TIMEOUT_S):
            return await self.host.wait_turn(await self.begin(agent, text, **more))

    async def until(self, task_id: str, is_so: Callable[[snapshot_pb2.TaskSnapshot], bool]) -> None:
        async with asyncio.timeout(TIMEOUT_S):
            while not is_so(await self.host.journal.snapshot(task_id)):
                await self.host.journal.wait(task_id, await self.host.journal.head(task_id))


@asynccontextmanager
async def mesh(tmp_path: Path, **servers: Any) -> AsyncIterator[Mesh]:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    config = load_mcp_config(Settings(mcp_file=file))
    async with AsyncExitStack() as stack:
        settings = AdapterSettings(restart_delay_s=0.05, grace_s=1.0)
        adapter = await stack.enter_async_context(ToolAdapter(config, settings=settings))
        server = MeshServer(mesh_credentials())
        # No member renews the lease here.
        server.add_registry(RegistryServicer(lease_s=600))
        server.add_service(
            SERVICE,
            tool_service_pb2_grpc.add_ToolServiceServicer_to_server,
            ToolServicer(adapter, ApprovalGate(None, SqliteUsedApprovals(tmp_path))),
        )
        (address,) = await server.start("127.0.0.1:0")
        stack.push_async_callback(server.stop, 0)
        channels = await stack.enter_async_context(ChannelPool(mesh_credentials()))
        await RegistryClient(channels.get(address)).register(
            registry_service_pb2.Host(host_id="h", address=address, services=[SERVICE])
        )
        directory = await stack.enter_async_context(Directory(channels, address))
        await directory.wait_until(lambda known: bool(known.hosts), timeout_s=TIMEOUT_S)
        tools = MeshTools(directory)
        agents = [build_reasoning_agent(load_spec(name), tools) for name in ("math", "currency")]
        agents += [
            ReasoningAgent(spec.build_card(), servers=spec.servers, tools=tools)
            for spec in agents_from_config(config)
        ]
        journal = open_journal(tmp_path / "journal.db")
        stack.push_async_callback(journal.close)
        host = await stack.enter_async_context(TaskHost(journal, agents))
        yield Mesh(host, adapter, tools, config)


def state_of(snapshot: snapshot_pb2.TaskSnapshot) -> int:
    return snapshot.task.status.state


def status_text(snapshot: snapshot_pb2.TaskSnapshot) -> str:
    return " ".join(part.text for part in snapshot.task.status.message.parts)


def answer_of(snapshot: snapshot_pb2.TaskSnapshot) -> str:
    """Return the text of the only artifact of a completed task."""
    assert state_of(snapshot) == State.TASK_STATE_COMPLETED, status_text(snapshot)
    (artifact,) = snapshot.task.artifacts
    (info,) = snapshot.artifacts
    assert (info.kind, info.closed) == (event_pb2.ARTIFACT_KIND_ANSWER, True)
    return "".join(part.text for part in artifact.parts)


async def texts_of(journal: Journal, task_id: str) -> Sequence[str]:
    """Return the deltas of a task as they were streamed."""
    batches = [event_pb2.EventBatch.FromString(raw) for raw in await journal.read(task_id, 0)]
    events = [event for batch in batches for event in batch.events]
    return [text for event in events for text in event.delta.texts]


async def test_the_streamed_text_the_artifact_and_the_tool_call_agree(tmp_path: Path) -> None:
    async with mesh(tmp_path, awkward=awkward(), **ONE_SERVER_ONLY) as running:
        end = await running.ask("awkward", "repeat one two three")
        texts = await texts_of(running.host.journal, end.task.id)
    assert texts == ["one ", "two ", "three"]
    assert answer_of(end) == "one two three"
    (call,) = end.tool_calls
    assert (call.started.tool, call.finished.summary) == ("awkward/repeat", "one two three")
    assert not call.finished.is_error


async def test_progress_of_a_tool_shows_in_the_status(tmp_path: Path) -> None:
    count = {"pattern": r"count to (\d+)", "arguments": {"n": {"from": "{1}", "type": "integer"}}}
    async with mesh(tmp_path, awkward=awkward(count=count), **ONE_SERVER_ONLY) as running:
        end = await running.ask("awkward", "count to 3")
        batches = [
            event_pb2.EventBatch.FromString(raw)
            for raw in await running.host.journal.read(end.task.id, 0)
        ]
    news = [
        part.text
        for batch in batches
        for event in batch.events
        for part in event.status.status.message.parts
    ]
    assert news == [
        "Searching for information…",
        "Calling awkward/count…",
        *(f"awkward/count: step {n}" for n in (1, 2, 3)),
        "Processing the results…",
    ]
    assert answer_of(end) == "counted to 3"


async def test_a_tools_result_other_than_text_is_part_of_the_answer(tmp_path: Path) -> None:
    async with mesh(
        tmp_path, awkward=awkward(mixed={"pattern": "picture"}), **ONE_SERVER_ONLY
    ) as running:
        end = await running.ask("awkward", "show me the picture")
    text, image, link = end.task.artifacts[0].parts
    assert text.text == "both"
    assert (image.raw, link.url) == (b"hello", "https://example.org/a")


async def test_a_failing_tool_fails_the_task_with_its_name_and_reason(tmp_path: Path) -> None:
    rules = {
        "refuse": {"pattern": "refuse"},
        "mend": {"pattern": "mend"},
        "die": {"pattern": "die", "arguments": {"code": 3}},
        "learned": {"pattern": "learned"},
    }
    async with mesh(tmp_path, awkward=awkward(**rules), **ONE_SERVER_ONLY) as running:
        refused = await running.ask("awkward", "refuse")
        mendable = await running.ask("awkward", "mend")
        dead = await running.ask("awkward", "die")
        (server,) = running.adapter.list_servers(["awkward"])
        await server.wait_settled()
    assert state_of(refused) == state_of(dead) == State.TASK_STATE_FAILED
    assert status_text(refused).startswith("awkward/refuse failed: ")
    assert "not today" in status_text(refused)
    assert "tool server 'awkward' is down: it exited with code 3" in status_text(dead)
    assert dead.tool_calls[0].finished.is_error
    assert state_of(mendable) == State.TASK_STATE_INPUT_REQUIRED
    assert status_text(mendable) == "ask for something else"


async def test_a_missing_server_fails_the_task_with_the_reason(tmp_path: Path) -> None:
    async with mesh(tmp_path, gone={"command": "no-such-command"}, **ONE_SERVER_ONLY) as running:
        failed = await running.ask("gone", "anything")
        disabled = await running.ask("math", "what is 1+2")
    assert state_of(failed) == state_of(disabled) == State.TASK_STATE_FAILED
    assert "'no-such-command' is not on PATH" in status_text(failed)
    assert status_text(disabled) == "tool server 'math' is down: it is not in the mcpServers file"


async def test_for_an_empty_message_the_agent_asks_for_a_question(tmp_path: Path) -> None:
    async with mesh(tmp_path, **ONE_SERVER_ONLY) as running:
        end = await running.ask("math", " ")
    assert state_of(end) == State.TASK_STATE_INPUT_REQUIRED
    assert status_text(end) == 'Ask something, for example "what is 1+2".'


async def test_a_card_has_the_skills_of_its_tools_also_before_their_server_has_started(
    tmp_path: Path,
) -> None:
    settings = Settings(data_dir=tmp_path)
    server = awkward() | {"trunkline": {"approval": "never", "idle_s": 600}}

    @asynccontextmanager
    async def followed(
        running: Mesh,
    ) -> AsyncIterator[tuple[agent_card_pb2.AgentCard, asyncio.Event]]:
        (spec,) = agents_from_config(running.config)
        agent = ReasoningAgent(spec.build_card(), servers=spec.servers, tools=running.tools)
        changed = asyncio.Event()
        async with (
            asyncio.timeout(TIMEOUT_S),
            follow_tools(agent, spec, running.tools)(
                settings, FolderFiles(settings.data_dir), changed.set
            ),
        ):
            # The agent joins at once, whatever it knows.
            assert changed.is_set()
            changed.clear()
            yield agent.card, changed

    async with mesh(tmp_path, awkward=server) as running:
        async with followed(running) as (card, changed):
            await changed.wait()
            own, *skills = card.skills
            assert own.tags == ["awkward"]
            assert {"learn", "types"} <= {skill.id for skill in skills}
            assert "learned" not in {skill.id for skill in skills}
            changed.clear()
            await call(running.adapter, "learn")
            await changed.wait()
            assert "learned" in {skill.id for skill in card.skills}
        skills = list(card.skills)

    async with mesh(tmp_path, awkward=server) as running, followed(running) as (card, _):
        assert list(card.skills) == skills
        await anext(running.tools.watch_tools(["awkward"]))
        (state,) = running.adapter.list_servers(["awkward"])
        assert state.pid is None

    # The skills of another program are not those of this one.
    server = server | {"args": [str(tmp_path / "other.py")]}
    async with mesh(tmp_path, awkward=server) as running, followed(running) as (card, _):
        assert len(card.skills) == 1
