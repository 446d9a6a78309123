"""A supervisor that plans with a model: a provider's real client against a scripted provider."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from harness.agents.inline_agents import status_texts, texts
from harness.mesh.small_mesh import SmallMesh
from harness.remote.model_server import (
    Call,
    ModelServer,
    Pause,
    Reply,
    call,
    model_server,
    refuse,
    say,
)
from trunkline.agents import FunctionAgent, agent
from trunkline.agents.reasoning.models import ModelChoice, open_model
from trunkline.core.settings import ModelSettings, PolicySettings, Settings, SupervisorSettings
from trunkline.processes.agents import build_agents
from trunkline.supervisor import ModelPlanner
from trunkline.tasks.context import TaskContext
from trunkline.tools.config import McpConfig
from trunkline.v1 import event_pb2, snapshot_pb2, task_pb2

State = task_pb2.TaskState
NAME = "openai:planner"


@pytest.fixture(scope="module")
def provider() -> Iterator[ModelServer]:
    with model_server() as server:
        yield server


@pytest.fixture
async def bridged(tmp_path: Path, provider: ModelServer) -> AsyncIterator[BridgedMesh]:
    """A supervisor with a model, over three agents that return their question."""
    settings = Settings(default_agent="supervisor")
    options = ModelSettings(base_url=provider.openai_url)
    planner = ModelPlanner(open_model(ModelChoice(NAME, tables={NAME: options})))
    async with open_bridged_mesh(tmp_path, settings) as opened:
        await opened.mesh.join(asked("red"), asked("green"), asked("blue"))
        await opened.mesh.supervise(planner=planner)
        yield opened


@pytest.fixture
def mesh(bridged: BridgedMesh) -> SmallMesh:
    return bridged.mesh


def asked(name: str) -> FunctionAgent:
    @agent(name=name, description=f"Knows about {name}.", tags=[name])
    async def repeat(task: TaskContext) -> str | None:
        if "fail" in task.text:
            await task.fail("the fuse blew")
            return None
        return f"{name} was asked {task.text}"

    return repeat


def planned(*steps: dict[str, Any]) -> Reply:
    return call("make_plan", steps=list(steps))


def step(name: str, text: str, *after: object) -> dict[str, Any]:
    return {"agent": name, "text": text, **({"after": list(after)} if after else {})}


def of_kind(
    snapshot: snapshot_pb2.TaskSnapshot, kind: event_pb2.ArtifactKind.ValueType
) -> list[str]:
    pairs = zip(texts(snapshot), snapshot.artifacts, strict=True)
    return [text for text, info in pairs if info.kind == kind]


def answer(snapshot: snapshot_pb2.TaskSnapshot) -> str:
    (text,) = of_kind(snapshot, event_pb2.ARTIFACT_KIND_SYNTHESIS)
    return text


async def test_the_model_plans_and_its_steps_take_results(
    mesh: SmallMesh, provider: ModelServer
) -> None:
    provider.script(
        planned(
            step("red", "first"),
            step("green", "second"),
            step("blue", "compare {1} with {2}", 1, 2),
        ),
        say("All in one."),
    )

    ended = await mesh.ask("compare something red with something else")

    assert [child.started.agent for child in ended.children[2:]] == ["blue"]
    blue = await mesh.get_task(ended.children[2].started.task_id)
    assert blue.task.history[0].parts[0].text == (
        "compare red was asked first with green was asked second"
    )
    assert [route.reasons[0] for route in ended.routes] == [f"{NAME} planned it"] * 3
    assert [list(item.after) for item in ended.plans[0].steps] == [[], [], ["step-1", "step-2"]]
    assert answer(ended) == "All in one."
    prompt = provider.requests[0].messages[0]["content"]
    assert '{"agent": "red", "claims": "Knows about red.' in prompt
    assert provider.requests[0].tools == ["make_plan", "ask_user"]
    assert "blue was asked compare" in provider.requests[1].last


async def test_the_plan_streams_while_the_model_writes_it(
    mesh: SmallMesh, provider: ModelServer
) -> None:
    whole = json.dumps({"steps": [step("red", "paint the town"), step("green", "water it")]})
    middle = whole.index(" town")
    pause = Pause()
    pieces = (whole[:20], whole[20:middle], pause, whole[middle:])
    provider.script(Reply(calls=(Call("make_plan", pieces=pieces),)), say("Done."))
    task_id = await mesh.begin("paint the town red")

    await pause.reached()
    half = await mesh.until(
        task_id, lambda now: any(plan.text == "1. red: paint the" for plan in now.plans)
    )
    pause.end()
    ended = await mesh.until(task_id, lambda now: now.task.status.state in (3, 4))

    assert list(half.plans[0].steps) == []
    (plan,) = ended.plans
    assert (plan.revision, plan.text) == (1, "1. red: paint the town\n2. green: water it")
    assert len(plan.steps) == 2


async def test_an_invalid_plan_is_corrected_by_the_model(
    mesh: SmallMesh, provider: ModelServer
) -> None:
    provider.script(planned(step("purple", "mix it")), planned(step("red", "mix it")))

    ended = await mesh.ask("mix it")

    assert answer(ended) == "red was asked mix it"
    assert "there are only: blue, green, red" in provider.requests[1].last
    assert ended.plans[0].text == "1. red: mix it"


@pytest.mark.parametrize(
    ("replies", "problem"),
    [
        (
            [planned(step("red", "a", 2), step("green", "b", 1))] * 2,
            "its plan could not be run: its steps wait for each other",
        ),
        (
            [Reply(calls=(Call("make_plan", '{"steps": nothing'),))] * 2,
            "neither make_plan nor ask_user was called",
        ),
        ([refuse(401)], "openai refused the key (401); check OPENAI_API_KEY"),
    ],
)
async def test_without_a_plan_of_the_model_the_turn_fails_with_the_reason(
    mesh: SmallMesh, provider: ModelServer, replies: list[Reply], problem: str
) -> None:
    provider.script(*replies)

    ended = await mesh.ask("something green")

    assert ended.task.status.state == State.TASK_STATE_FAILED
    assert status_texts(ended).startswith(f"model {NAME!r}: ")
    assert status_texts(ended).endswith(problem)
    (route,) = ended.routes
    assert list(route.reasons) == [f"{NAME} made no plan"]
    assert not ended.children
    assert provider.remaining == 0


@pytest.mark.parametrize(("request_text", "is_planned"), [("red?", True), ("sing", False)])
async def test_with_the_rules_as_a_fallback_they_plan_what_they_can(
    mesh: SmallMesh, provider: ModelServer, request_text: str, is_planned: bool
) -> None:
    settings = Settings(
        model=NAME,
        fallbacks=("rules",),
        models={NAME: ModelSettings(base_url=provider.openai_url)},
        supervisors={"office": SupervisorSettings(agents=("red",))},
    )
    office = build_agents(
        settings, McpConfig(servers={}), mesh.directory, plugins={}, names=["office"]
    )
    await mesh.join(*office)
    provider.script(refuse(401))

    ended = await mesh.ask(request_text, agent="office")

    if is_planned:
        assert answer(ended) == "red was asked red?"
    else:
        assert ended.task.status.state == State.TASK_STATE_FAILED
        assert "openai refused the key (401)" in status_texts(ended)


async def test_agents_that_a_supervisor_may_not_call_are_neither_scored_nor_shown(
    mesh: SmallMesh,
) -> None:
    policy = PolicySettings(callers={"red": ("boss",), "green": ("office",)})
    settings = Settings(policy=policy, supervisors={"office": SupervisorSettings()})
    office = build_agents(
        settings, McpConfig(servers={}), mesh.directory, plugins={}, names=["office"]
    )
    await mesh.join(*office)

    ended = await mesh.ask("sing me a song", agent="office")

    assert "@blue" in status_texts(ended)
    assert "@green" in status_texts(ended)
    assert "red" not in status_texts(ended)
    (route,) = ended.routes
    assert "red" not in [score.agent for score in route.scores]


async def test_an_invalid_streamed_plan_is_closed_before_the_turn_fails(
    mesh: SmallMesh, provider: ModelServer
) -> None:
    provider.script(*[planned(step("nobody-here", "sing"))] * 2)
    snapshot = await mesh.ask("sing me a song")
    assert snapshot.task.status.state == State.TASK_STATE_FAILED
    (plan,) = snapshot.plans
    assert [(item.agent, item.text) for item in plan.steps] == [("", "sing me a song")]
    assert plan.text == "1. no agent: sing me a song"
    (route,) = snapshot.routes
    assert list(route.reasons) == [f"{NAME} made no plan"]


async def test_the_model_asks_back_and_the_next_message_is_planned(
    mesh: SmallMesh, provider: ModelServer
) -> None:
    provider.script(call("ask_user", question="Which colour?"), planned(step("blue", "the sky")))

    first = await mesh.ask("paint it")
    second = await mesh.ask("as the sky is", task_id=first.task.id)
    roles = [(message["role"], message["content"]) for message in provider.requests[1].messages[1:]]

    assert (first.task.status.state, status_texts(first)) == (
        State.TASK_STATE_INPUT_REQUIRED,
        "Which colour?",
    )
    assert list(first.routes[0].reasons) == [f"{NAME} has a question"]
    assert roles == [
        ("user", "paint it"),
        ("assistant", "Which colour?"),
        ("user", "as the sky is"),
    ]
    assert answer(second) == "blue was asked the sky"


async def test_the_model_gets_the_messages_of_other_tasks_of_the_conversation(
    mesh: SmallMesh, provider: ModelServer
) -> None:
    provider.script(planned(step("red", "paint it")), planned(step("red", "paint it again")))

    await mesh.ask("paint it", context_id="talk")
    await mesh.ask("@blue paint the sky", context_id="talk")
    await mesh.ask("again", context_id="talk")
    roles = [(message["role"], message["content"]) for message in provider.requests[1].messages]

    assert "In this conversation blue was asked last" in roles[0][1]
    assert roles[1:] == [
        ("user", "paint it"),
        ("assistant", "red was asked paint it"),
        ("user", "@blue paint the sky"),
        ("assistant", "blue was asked paint the sky"),
        ("user", "again"),
    ]


async def test_a_message_that_names_an_agent_needs_no_model(
    mesh: SmallMesh, provider: ModelServer
) -> None:
    provider.script()

    named = await mesh.ask("@red what now")
    unknown = await mesh.ask("@purple what now")

    assert answer(named) == "red was asked what now"
    assert "No agent named 'purple'" in status_texts(unknown)
    assert not provider.requests


async def test_failed_steps_are_named_after_the_model_s_answer(
    mesh: SmallMesh, provider: ModelServer
) -> None:
    steps = (step("red", "one"), step("green", "two"), step("blue", "fail"))
    provider.script(planned(*steps), say("Red and green agree."))

    ended = await mesh.ask("ask all of them")

    assert answer(ended) == (
        'Red and green agree.\nCould not answer "fail": the fuse blew (agent blue).'
    )


async def test_an_interrupted_answer_is_replaced_by_the_agents_answers(
    mesh: SmallMesh, provider: ModelServer
) -> None:
    broken = Reply(pieces=("Half of ",), is_cut=True)
    provider.script(
        planned(step("red", "one"), step("green", "two")), broken, refuse(401, text="not again")
    )

    ended = await mesh.ask("ask both")

    assert answer(ended) == "red was asked one\ngreen was asked two"
    assert of_kind(ended, event_pb2.ARTIFACT_KIND_DRAFT) == [""]


async def test_an_answer_without_an_end_is_replaced_by_the_agents_answers(
    mesh: SmallMesh, provider: ModelServer
) -> None:
    provider.script(
        planned(step("red", "one"), step("green", "two")),
        Reply(pieces=("Half of ",), finish="length"),
    )

    ended = await mesh.ask("ask both")

    assert answer(ended) == "red was asked one\ngreen was asked two"
    assert of_kind(ended, event_pb2.ARTIFACT_KIND_DRAFT) == [""]


async def test_the_wire_has_the_model_s_answer_as_a_stream_and_then_whole_(
    bridged: BridgedMesh, provider: ModelServer
) -> None:
    pause = Pause()
    provider.script(
        planned(step("red", "one"), step("green", "two")), say("Both ", pause, "agree.")
    )
    caller = bridged.at("/")

    async with caller.streamed("ask both") as stream:
        events_seen = []
        async for event in stream:
            events_seen.append(event)
            if event.text == "Both ":
                # It arrived before the model sent the rest.
                pause.end()
    updates = [
        item.result["artifactUpdate"] for item in events_seen if "artifactUpdate" in item.result
    ]
    answer_updates = [
        update
        for update in updates
        if "trunkline/agent" not in update["artifact"].get("metadata", {})
        and not update["artifact"]["artifactId"].count(".")
    ]
    results = [
        update for update in answer_updates if update["artifact"]["name"].endswith("_result")
    ]

    results_shown = [
        (result["artifact"]["name"], result["artifact"]["parts"][0]["text"]) for result in results
    ]
    assert results_shown[0] == ("streaming_result", "Both ")
    assert (
        "".join(text for name, text in results_shown if name == "streaming_result") == "Both agree."
    )
    assert results_shown[-1] == ("partial_result", "Both agree.")
    assert results[-1]["lastChunk"] is True
    assert results[-2]["lastChunk"] is True
    task = await caller.call("GetTask", {"id": events_seen[0].result["task"]["id"]})
    names = [artifact["name"] for artifact in task["artifacts"]]
    assert names.count("streaming_result") == 3
    assert names[-1] == "partial_result"
