"""Cards that follow the tools of MCP servers."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from harness.mesh.recorded_spans import spans_in
from trunkline.agents.calls.tool_source import ToolListing
from trunkline.agents.followed_skills import follow_tools
from trunkline.core.settings import Settings
from trunkline.core.small_files import FolderFiles
from trunkline.observe import telemetry
from trunkline.tasks.agent import Agent
from trunkline.tools.config import AgentSpec
from trunkline.v1 import agent_card_pb2, tool_service_pb2


class TracedTools:
    """A source of one tool that makes a span for each call, as those of a mesh do."""

    async def list_tools(self, servers: Sequence[str]) -> ToolListing:
        with telemetry.span("ListTools"):
            tools = tuple(tool_service_pb2.Tool(server=server, name="look") for server in servers)
            return ToolListing(tools, {})

    async def watch_tools(self, _servers: Sequence[str]) -> AsyncGenerator[ToolListing, None]:
        await asyncio.Event().wait()
        yield ToolListing((), {})


class Shop(Agent):
    def __init__(self) -> None:
        self.card = agent_card_pb2.AgentCard(name="shop")


async def test_reading_the_tools_of_a_card_makes_no_span(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Shop()
    spec = AgentSpec("shop", "", (), (), ("shop",), "program")
    source: Any = TracedTools()
    known = asyncio.Event()

    def note_change() -> None:
        if agent.card.skills:
            known.set()

    with spans_in(InMemorySpanExporter(), monkeypatch) as memory:
        lifespan = follow_tools(agent, spec, source)(
            Settings(data_dir=tmp_path), FolderFiles(tmp_path), note_change
        )
        async with asyncio.timeout(30), lifespan:
            await known.wait()
        with telemetry.span("afterwards"):
            pass
    assert [skill.id for skill in agent.card.skills] == ["look"]
    assert [span.name for span in memory.get_finished_spans()] == ["afterwards"]
