"""Supervisors over supervisors: routing, bubbling questions, and the view of the root's client."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harness.a2a.bridged_mesh import BridgedMesh, Event, Json, open_bridged_mesh
from harness.agents.inline_agents import status_texts, texts
from harness.mesh.small_mesh import PATIENCE_S, SmallMesh
from trunkline.agents import FunctionAgent, agent
from trunkline.agents.plugins import load_plugins
from trunkline.core.json_values import read_member
from trunkline.core.settings import (
    AgentSettings,
    ParticipantSettings,
    PolicySettings,
    RemoteAgentSettings,
    Settings,
    SupervisorSettings,
)
from trunkline.core.task_states import find_outcome
from trunkline.errors import ConfigurationError
from trunkline.journal.fold import Fold
from trunkline.mesh.client import Directory
from trunkline.processes.agents import build_agents
from trunkline.supervisor.recovery import recover_state
from trunkline.tasks.context import TaskContext
from trunkline.tools.config import McpConfig, ServerConfig
from trunkline.v1 import snapshot_pb2, task_pb2
from trunkline_agents.echo.agent import echo

State = task_pb2.TaskState


@pytest.fixture
async def bridged(tmp_path: Path) -> AsyncIterator[BridgedMesh]:
    settings = Settings(default_agent="supervisor")
    async with open_bridged_mesh(tmp_path, settings) as opened:
        yield opened


@pytest.fixture
def mesh(bridged: BridgedMesh) -> SmallMesh:
    return bridged.mesh


def counting(name: str) -> FunctionAgent:
    @agent(name=name, description="Counts.", tags=[name])
    async def count(task: TaskContext) -> None:
        artifact = task.artifact()
        for number in range(3):
            await artifact.append(f"{name} {number} ", last=number == 2)

    return count


async def open_tree(mesh: SmallMesh) -> None:
    """Add a root over `team` and `echo`; `team` is over `red` and `green`."""
    await mesh.join(counting("red"), counting("green"), echo)
    await mesh.supervise(name="team", agents=["red", "green"], tags=["team", "colours"])
    await mesh.supervise(agents=["team", "echo"])


def updates(events: list[Event]) -> list[Json]:
    return [event.result["artifactUpdate"] for event in events if "artifactUpdate" in event.result]


async def test_a_supervisor_asks_only_its_agents(mesh: SmallMesh) -> None:
    await open_tree(mesh)

    await mesh.join(counting("blue"))

    unrouted = await mesh.ask("something blue")
    routed = await mesh.ask("@team something red now, and something green now")

    assert unrouted.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    assert "team" in status_texts(unrouted)
    assert [child.started.agent for child in routed.children] == ["team"]
    team = await mesh.get_task(routed.children[0].started.task_id)
    assert sorted(child.started.agent for child in team.children) == ["green", "red"]
    assert texts(routed)[-1] == "red 0 red 1 red 2 \ngreen 0 green 1 green 2 "


async def test_the_root_shows_the_text_of_the_lowest_agents_under_its_own_step(
    bridged: BridgedMesh,
) -> None:
    await open_tree(bridged.mesh)
    caller = bridged.at("/")

    text = "@echo echo hello @team red now, and green now"
    async with caller.streamed(text) as stream:
        events = await stream.rest()
    task = await caller.call("GetTask", {"id": events[0].result["task"]["id"]})

    results = [update["artifact"] for update in updates(events) if not update.get("append", False)]
    streams = [result for result in results if result["name"] == "streaming_result"]
    texts_by_agent = {
        (item["metadata"]["trunkline/agent"], item["metadata"]["trunkline/step"])
        for item in streams
    }
    (plan,) = [result for result in results if result["name"] == "execution_plan_update"]
    steps = [line.split(" ")[1] for line in plan["parts"][0]["text"].splitlines()]
    assert steps == ["echo:", "team:"]
    assert texts_by_agent == {("echo", "step-1"), ("red", "step-2"), ("green", "step-2")}
    assert len({item["artifactId"] for item in streams}) == 3
    (partial,) = [result for result in results if result["name"] == "partial_result"]
    assert partial["parts"] == [{"text": "hello\nred 0 red 1 red 2 \ngreen 0 green 1 green 2 "}]
    assert [artifact["name"] for artifact in task["artifacts"]].count("partial_result") == 1
    assert {artifact["artifactId"] for artifact in task["artifacts"]} == {
        result["artifactId"] for result in results
    }


async def test_a_file_from_below_stays_the_child_s_after_a_resume_from_the_journal(
    mesh: SmallMesh,
) -> None:
    await mesh.join(echo)
    await mesh.supervise(name="team", agents=["echo"], tags=["team"])
    await mesh.supervise(agents=["team"])

    ended = await mesh.ask("@team @echo file 100")
    fold = Fold(ended.task.id)
    fold.apply((await mesh.events(ended.task.id))[0])
    state = recover_state(fold.snapshot(), ended, "@team @echo file 100")

    forwarded, *_, answer = ended.task.artifacts
    assert len(forwarded.parts[0].raw) == 100
    assert answer.parts == forwarded.parts
    assert ended.artifacts[0].origin.path == ["team", "echo"]
    assert state is not None
    assert state["outcomes"]["step-1"].files


async def test_an_answer_names_the_agents_that_answered_below_a_supervisor(mesh: SmallMesh) -> None:
    await open_tree(mesh)
    await mesh.supervise(name="top", agents=["supervisor"], tags=["top"])

    text = "@supervisor @echo echo hello @team red now, and green now"
    ended = await mesh.ask(text, agent="top")
    fold = Fold(ended.task.id)
    fold.apply((await mesh.events(ended.task.id))[0])
    recovered = recover_state(fold.snapshot(), ended, text)

    agents = ["echo", "red", "green"]
    assert read_member(ended.task.artifacts[-1].metadata, "trunkline/agents") == agents
    # A takeover of the parent has the same agents.
    assert recovered is not None
    assert recovered["outcomes"]["step-1"].answering_agents == tuple(agents)


async def test_a_part_that_failed_before_a_question_is_still_missing_after_its_answer(
    mesh: SmallMesh,
) -> None:
    await mesh.join(echo)
    await mesh.supervise(name="team", agents=["echo"], tags=["team"])
    await mesh.supervise(agents=["team"])

    waiting = await mesh.ask("@team echo hello, @echo fail too wet, and @echo ask Which colour?")
    answered = await mesh.ask("blue", task_id=waiting.task.id)

    assert waiting.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    assert "Which colour?" in status_texts(waiting)
    assert texts(answered)[-1] == "answer: blue"
    for snapshot in (answered, await mesh.get_task(waiting.children[0].started.task_id)):
        assert find_outcome(snapshot.task.status.state, snapshot.task.metadata) == "partial"


async def test_a_failure_from_below_is_named_once(mesh: SmallMesh) -> None:
    await open_tree(mesh)
    await mesh.supervise(name="top", agents=["supervisor"], tags=["top"])

    failed = await mesh.ask("@supervisor @echo fail too wet", agent="top")
    partial = await mesh.ask("@supervisor echo hello, and @echo fail too wet", agent="top")

    line = 'Could not answer "fail too wet": too wet (agent echo).'
    assert failed.task.status.state == State.TASK_STATE_FAILED
    assert status_texts(failed) == line
    assert texts(partial)[-1] == f"hello\n{line}"
    # A takeover of the parent has the same outcome.
    assert failed.children[0].finished.failures_named
    assert failed.children[0].finished.text == line


async def test_supervisors_that_may_ask_each_other_do_not_loop(mesh: SmallMesh) -> None:
    await mesh.join(echo)
    await mesh.supervise(name="left", agents=["right", "echo"], tags=["turn"])
    await mesh.supervise(name="right", agents=["left", "echo"], tags=["turn"])
    await mesh.supervise(agents=["left", "right"])

    ended = await mesh.ask("@left turn")

    assert await _names_down(mesh, ended) == ["supervisor", "left", "right"]
    assert ended.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    assert "echo" in status_texts(ended)


async def test_a_request_reaches_an_agent_through_supervisors_that_inherit_its_skills(
    mesh: SmallMesh,
) -> None:
    await mesh.supervise(name="front", agents=["office"])
    await mesh.supervise(name="office", agents=["red"])
    joined = await mesh.join(counting("red"))

    def has_inherited(known: Directory) -> bool:
        skills = known.get_agent("front").card.skills
        return any(skill.id.startswith("red:") for skill in skills)

    await mesh.directory.wait_until(has_inherited, timeout_s=PATIENCE_S)
    answered = await mesh.ask("something red", agent="front")

    assert await _names_down(mesh, answered) == ["front", "office", "red"]
    joined.withdraw_agents()
    await mesh.directory.wait_until(lambda known: not has_inherited(known), timeout_s=PATIENCE_S)


async def test_a_supervisor_asks_an_agent_itself_and_not_one_over_it(mesh: SmallMesh) -> None:
    await mesh.join(counting("red"))
    await mesh.supervise(name="team", agents=["red"], description="Counts in colours.")
    await mesh.supervise()
    await mesh.directory.wait_until(
        lambda known: len(known.get_agent("team").card.skills) > 1, timeout_s=PATIENCE_S
    )

    answered = await mesh.ask("something red")

    assert await _names_down(mesh, answered) == ["supervisor", "red"]


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        ({"team": ["team"]}, r"\[supervisor.team\] agents: it can't ask itself"),
        ({"a": ["b"], "b": ["c"], "c": ["a"]}, "(?=.*a asks b)(?=.*remove one of these)"),
        ({"echo": ["supervisor"]}, "an installed agent has this name"),
        ({"team": ["mth"]}, r"\[supervisor.team\] agents: there is no agent 'mth'.*joining = "),
        ({"team": ["guest"]}, ""),
    ],
)
def test_circles_and_unknown_names_in_the_settings_are_refused(
    tables: dict[str, list[str]], problem: str, tmp_path: Path
) -> None:
    supervisors = {
        name: SupervisorSettings(agents=tuple(agents)) for name, agents in tables.items()
    }
    settings = Settings(data_dir=tmp_path, supervisors=supervisors, joining=("guest",))

    def build() -> None:
        build_agents(settings, McpConfig({}), None, plugins=load_plugins())  # type: ignore[arg-type]

    if not problem:
        build()
        return
    with pytest.raises(ConfigurationError, match=problem):
        build()


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        ({"agent_options": {"mth": AgentSettings(timeout_s=1)}}, r"\[agent.mth\]: there is no"),
        # A rule for a wrong name would protect nothing.
        (
            {"policy": PolicySettings(callers={"mth": ("echo",)})},
            r"\[policy.callers\] mth: .* 'mth'",
        ),
        (
            {"policy": PolicySettings(callers={"echo": ("mth",)})},
            r"\[policy.callers\] echo: .* 'mth'",
        ),
        (
            {"supervisors": {"a": SupervisorSettings(agents=("math",), default_agent="echo")}},
            r"\[supervisor.a\] default_agent: it may not ask 'echo'",
        ),
        # Recipients of messages.
        ({"supervisors": {"all": SupervisorSettings()}}, r"\[supervisor.all\]: messages to this"),
        (
            {"remotes": {"broadcast": RemoteAgentSettings(url="http://a.test")}},
            r"\[remote.broadcast\]: messages to this name",
        ),
        (
            {"participants": {"all": ParticipantSettings(url="http://a.test")}},
            r"\[participant.all\]: messages to this name",
        ),
    ],
)
def test_tables_of_unknown_agents_are_refused(
    tables: dict[str, Any], problem: str, tmp_path: Path
) -> None:
    settings = Settings(data_dir=tmp_path, **tables)
    with pytest.raises(ConfigurationError, match=problem):
        build_agents(settings, McpConfig({}), None, plugins=load_plugins())  # type: ignore[arg-type]


def test_a_tool_server_whose_agent_would_have_a_reserved_name_is_refused() -> None:
    config = McpConfig({"all": ServerConfig(command="x")})
    with pytest.raises(ConfigurationError, match=r"mcpServers\.all: .*set trunkline\.agent\.name"):
        build_agents(Settings(), config, None, plugins={})  # type: ignore[arg-type]


async def _names_down(mesh: SmallMesh, snapshot: snapshot_pb2.TaskSnapshot) -> list[str]:
    """Return the agents from a task down its first children."""
    names = [snapshot.agent]
    while snapshot.children:
        snapshot = await mesh.get_task(snapshot.children[0].started.task_id)
        names.append(snapshot.agent)
    return names
