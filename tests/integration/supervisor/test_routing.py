"""The routing table on a real mesh: the chosen agents, in journal, A2A and command line."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from harness.mesh.bundled_cards import shipped_cards
from harness.mesh.command_line import run_command
from trunkline.agents import FunctionAgent, agent
from trunkline.core.settings import Settings
from trunkline.tasks.context import TaskContext
from trunkline.v1 import agent_card_pb2


@pytest.fixture
async def bridged(tmp_path: Path) -> AsyncIterator[BridgedMesh]:
    """A supervisor over agents with the cards of the bundled ones; each answers with its name."""
    settings = Settings(default_agent="supervisor")
    async with open_bridged_mesh(tmp_path, settings) as opened:
        await opened.mesh.join(*(_named(card) for card in shipped_cards()))
        await opened.mesh.supervise()
        yield opened


def _named(card: agent_card_pb2.AgentCard) -> FunctionAgent:
    @agent(name=card.name, description=card.description)
    async def named(_task: TaskContext) -> str:
        return f"{card.name} answers"

    named.card.CopyFrom(card)
    return named


async def test_journal_metadata_and_command_line_have_the_choice_and_its_reason(
    bridged: BridgedMesh,
) -> None:
    caller = bridged.at("/")
    sent = await caller.send("how much is 15% of 240, and show argocd version")
    task = await caller.call("GetTask", {"id": sent["id"]})

    routed = task["metadata"]["trunkline/route"]
    assert [step["agent"] for step in routed["steps"]] == ["math", "argocd"]
    assert routed["steps"][0]["reasons"] == ["skill 'Arithmetic': %"]
    assert routed["steps"][1]["confidence"] > 0.8
    assert {score["agent"] for score in routed["scores"]} == {card.name for card in shipped_cards()}
    output = await _command(bridged, "task", sent["id"])
    as_json = json.loads(await _command(bridged, "task", sent["id"], "--json"))
    lines = output.splitlines()
    assert "plan      1. math: how much is 15% of 240" in lines
    assert "route     math, confidence 83%: skill 'Arithmetic': %" in lines
    assert [route["agent"] for route in as_json["routes"]] == ["math", "argocd"]
    assert as_json["routes"][0]["scores"][0]["score"] == 2.5


async def _command(bridged: BridgedMesh, *words: str) -> str:
    result = await run_command(*words, "--mesh", bridged.mesh.registry_address)
    assert result.exit == 0, result.err
    return result.out
