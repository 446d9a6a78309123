"""The routing table on a real mesh: the chosen agents, in journal, A2A and command line."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from harness.agents.inline_agents import status_texts
from harness.mesh.bundled_cards import shipped_cards
from harness.mesh.command_line import run_command
from trunkline.agents import FunctionAgent, agent
from trunkline.tasks.context import TaskContext
from trunkline.v1 import agent_card_pb2, task_pb2
from trunkline_bridge.settings import BridgeSettings

CASES = json.loads((Path(__file__).parents[1] / "vectors/routing.json").read_text("utf-8"))["cases"]


@pytest.fixture
async def bridged(tmp_path: Path) -> AsyncIterator[BridgedMesh]:
    """A supervisor over agents with the cards of the bundled ones; each answers with its name."""
    settings = BridgeSettings(default_agent="supervisor")
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


async def test_every_request_of_the_table_reaches_its_agents_or_is_asked_back(
    bridged: BridgedMesh,
) -> None:
    mesh = bridged.mesh
    for case in CASES:
        text = case["question"] * case.get("times", 1) + case.get("then", "")
        ended = await mesh.ask(text)

        children = {child.started.step_id: child.started.agent for child in ended.children}
        chosen = [name for name in case["to"] if name]
        assert sorted(children.values()) == sorted(chosen), text
        if chosen:
            assert ended.task.status.state == task_pb2.TASK_STATE_COMPLETED, text
            assert [route.agent for route in ended.routes] == case["to"]
        elif case["kind"] == "introduction":
            assert ended.task.status.state == task_pb2.TASK_STATE_COMPLETED, text
            assert '- math: "what is 1+2"' in ended.task.artifacts[0].parts[0].text
            assert not ended.routes[0].agent
        else:
            assert ended.task.status.state == task_pb2.TASK_STATE_INPUT_REQUIRED, text
            assert status_texts(ended)
            assert not ended.routes[0].agent


async def test_journal_metadata_and_command_line_have_the_choice_and_its_reason(
    bridged: BridgedMesh,
) -> None:
    caller = bridged.at("/")
    sent = await caller.send("what is 15% of 240, and show argocd version")
    task = await caller.call("GetTask", {"id": sent["id"]})

    routed = task["metadata"]["trunkline/route"]
    assert [step["agent"] for step in routed["steps"]] == ["math", "argocd"]
    assert routed["steps"][0]["reasons"] == ["skill 'Arithmetic': # of #, %"]
    assert routed["steps"][1]["confidence"] > 0.8
    assert {score["agent"] for score in routed["scores"]} == {card.name for card in shipped_cards()}
    output = await _command(bridged, "task", sent["id"])
    as_json = json.loads(await _command(bridged, "task", sent["id"], "--json"))
    lines = output.splitlines()
    assert "plan      1. math: what is 15% of 240" in lines
    assert "route     math, confidence 88%: skill 'Arithmetic': # of #, %" in lines
    assert [route["agent"] for route in as_json["routes"]] == ["math", "argocd"]
    assert as_json["routes"][0]["scores"][0]["score"] == 3.5


async def _command(bridged: BridgedMesh, *words: str) -> str:
    result = await run_command(*words, "--mesh", bridged.mesh.registry_address)
    assert result.exit == 0, result.err
    return result.out
