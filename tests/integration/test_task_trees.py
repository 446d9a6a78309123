"""Limits per tree of tasks, over real hosts: supervisors of supervisors, and reported usage."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from harness.agents.inline_agents import status_texts
from harness.mesh.small_mesh import SmallMesh, open_small_mesh
from trunkline.agents import FunctionAgent, agent
from trunkline.settings import SupervisorSettings, TreeSettings
from trunkline.supervisor import Supervisor
from trunkline.tasks.context import TaskContext, get_turn_runtime
from trunkline.v1 import snapshot_pb2, task_pb2

State = task_pb2.TaskState


@pytest.fixture
async def mesh(tmp_path: Path) -> AsyncIterator[SmallMesh]:
    async with open_small_mesh(tmp_path) as opened:
        yield opened


def spender(name: str, tokens: int) -> FunctionAgent:
    @agent(name=name, description="Spends.", tags=[name])
    async def spend(task: TaskContext) -> str:
        get_turn_runtime(task).tree.add_model_call(tokens=tokens, cost_micros=2 * tokens)
        return f"{name} spent {tokens}"

    return spend


async def open_teams(mesh: SmallMesh, **limits: int) -> None:
    """Add a root over `team`; `team` is over `red` and `green`."""
    tree = TreeSettings(**limits)
    await mesh.join(spender("red", 10), spender("green", 5), tree=tree)
    team = SupervisorSettings(agents=("red", "green"), tags=("team",))
    await mesh.join(Supervisor(mesh.directory, name="team", options=team), tree=tree)
    root = SupervisorSettings(agents=("team",))
    await mesh.join(Supervisor(mesh.directory, options=root), tree=tree)


async def ask_team(mesh: SmallMesh) -> tuple[snapshot_pb2.TaskSnapshot, snapshot_pb2.TaskSnapshot]:
    """Ask the root for the work of the team; return both tasks."""
    root = await mesh.ask("team: spend red now, and spend green now")
    return root, await mesh.get_task(root.children[0].started.task_id)


async def test_the_chain_and_what_remains_go_down_and_the_usage_comes_back(
    mesh: SmallMesh,
) -> None:
    await open_teams(mesh, tasks=20, tokens=1000)

    root, team = await ask_team(mesh)
    red = await mesh.get_task(team.children[0].started.task_id)

    assert [ancestor.agent for ancestor in red.tree.ancestors] == ["supervisor", "team"]
    assert [ancestor.task_id for ancestor in red.tree.ancestors] == [root.task.id, team.task.id]
    assert team.tree.budget.tasks == 19
    assert red.tree.budget.tasks == 9
    assert red.tree.budget.tokens == 500
    assert (team.usage.tasks, team.usage.tokens, team.usage.cost_micros) == (2, 15, 30)
    assert (root.usage.tasks, root.usage.tokens, root.usage.cost_micros) == (3, 15, 30)


@pytest.mark.parametrize("limits", [{"depth": 2}, {"tasks": 2}])
async def test_the_error_of_a_limit_names_the_chain_up_to_the_client(
    mesh: SmallMesh, limits: dict[str, int]
) -> None:
    await open_teams(mesh, **limits)

    root, team = await ask_team(mesh)

    assert root.task.status.state == State.TASK_STATE_FAILED
    assert "supervisor > team > red" in status_texts(root)
    assert next(iter(limits)) in status_texts(team)
