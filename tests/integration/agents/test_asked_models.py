"""`task.ask_model`: functions of agents ask the model of their agent for objects."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel

from harness.agents.inline_agents import status_texts, texts
from harness.mesh.recorded_spans import spans_in
from harness.mesh.small_mesh import SmallMesh, open_small_mesh
from harness.remote.model_server import ModelServer, call, model_server, say
from trunkline import TaskContext, agent
from trunkline.core.settings import AgentSettings
from trunkline.observe import telemetry
from trunkline.tasks.lifecycle import State


class Mood(BaseModel):
    """The mood of a text."""

    mood: str


async def name_mood(task: TaskContext) -> str:
    found = await task.ask_model(task.text, Mood, instructions="One word.", purpose="mood")
    return "no model" if found is None else found.mood


mood = agent(name="mood", description="Names moods.")(name_mood)


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    with model_server() as server:
        yield server


@pytest.fixture
async def mesh(
    tmp_path: Path, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[SmallMesh]:
    for name, value in model.environment.items():
        monkeypatch.setenv(name, value)
    async with open_small_mesh(tmp_path) as mesh:
        yield mesh


async def test_an_object_comes_from_the_agents_model_once_it_fits(
    mesh: SmallMesh, model: ModelServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model.script(say("happy"), call("give_result", mood="happy"))
    with spans_in(InMemorySpanExporter(), monkeypatch) as memory:
        await mesh.join(mood, agent_options={"mood": AgentSettings(model="openai:any")})
        assert texts(await mesh.ask("What a day!", agent="mood")) == ["happy"]
        spans = [span for span in memory.get_finished_spans() if span.name == "chat any"]
    first, second = model.requests
    assert [message["content"] for message in first.messages] == ["One word.", "What a day!"]
    assert first.tools == ["give_result"]
    assert first.json["tool_choice"]["function"]["name"] == "give_result"
    assert "give_result was not called" in second.last
    assert [(span.attributes or {})[telemetry.MODEL_PURPOSE] for span in spans] == ["mood", "mood"]


async def test_answers_that_never_fit_fail_the_task_with_the_fault(
    mesh: SmallMesh, model: ModelServer
) -> None:
    model.script(call("give_result", mood=1), call("give_result"))
    await mesh.join(mood, model="openai:any")
    ended = await mesh.ask("What a day!", agent="mood")
    assert ended.task.status.state == State.TASK_STATE_FAILED
    reason = status_texts(ended)
    assert "model 'openai:any': its answers did not fit: mood: Field required" in reason
    assert "mood: Input should be a valid string" in model.requests[1].last
