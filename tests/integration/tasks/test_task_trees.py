"""Limits per tree of tasks, over real hosts: supervisors of supervisors, and reported usage."""

from typing import Any

import pytest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langchain_core.messages.ai import UsageMetadata
from langgraph.graph import START, MessagesState, StateGraph

from harness.agents.inline_agents import status_texts
from harness.mesh.small_mesh import SmallMesh
from trunkline import FunctionAgent, agent, from_langgraph
from trunkline.core.settings import (
    Budget,
    LimitSettings,
    ModelSettings,
    SupervisorSettings,
    TreeSettings,
)
from trunkline.rules.planner import RulesPlanner
from trunkline.supervisor import Supervisor
from trunkline.tasks.context import TaskContext
from trunkline.testing import ScriptedModel
from trunkline.v1 import snapshot_pb2, task_pb2

State = task_pb2.TaskState


def spender(name: str, tokens: int) -> FunctionAgent:
    @agent(name=name, description="Spends.", tags=[name])
    async def spend(task: TaskContext) -> str:
        task.report_usage("openai:small", input_tokens=tokens, output_tokens=0)
        return f"{name} spent {tokens}"

    return spend


async def open_teams(mesh: SmallMesh, **limits: int) -> None:
    """Add a root over `team`; `team` is over `red` and `green`."""
    tree = TreeSettings(**limits)
    models = {"openai": ModelSettings(input_price=2.0)}
    await mesh.join(spender("red", 10), spender("green", 5), tree=tree, models=models)
    team = SupervisorSettings(agents=("red", "green"), tags=("team",))
    await mesh.join(
        Supervisor(mesh.directory, planner=RulesPlanner(), name="team", options=team), tree=tree
    )
    root = SupervisorSettings(agents=("team",))
    await mesh.join(Supervisor(mesh.directory, planner=RulesPlanner(), options=root), tree=tree)


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


def graph_agent(model: ScriptedModel, seen: list[str], *, is_async: bool) -> FunctionAgent:
    """Return a graph that asks the model twice, with a callback of its own."""

    class Recorder(BaseCallbackHandler):
        def on_chat_model_start(self, *_args: object, **_options: object) -> None:
            seen.append("called")

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    async def ask_async(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    node: Any = ask_async if is_async else ask
    graph = StateGraph(MessagesState).add_node("first", node).add_node("second", node)
    graph.add_edge(START, "first").add_edge("first", "second")
    compiled = graph.compile().with_config(callbacks=[Recorder()])
    return from_langgraph(compiled, name="graph", description="Under test.")


def reply(text: str, tokens: int) -> AIMessage:
    usage = UsageMetadata(input_tokens=tokens, output_tokens=1, total_tokens=tokens + 1)
    return AIMessage(text, usage_metadata=usage)


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "threads"])
async def test_the_models_of_a_graph_are_counted_and_limited(
    mesh: SmallMesh, *, is_async: bool
) -> None:
    model = ScriptedModel(reply("one", 9), "four words are here", reply("two", 9), "not sent")
    seen: list[str] = []
    graph = graph_agent(model, seen, is_async=is_async)
    # The second reply is estimated: 11 characters in, and 19 out.
    used = 10 + 11 // 4 + 5
    name = "scriptedmodel"
    limits = LimitSettings(model={name: Budget(day_tokens=used + 1)})
    models = {name: ModelSettings(input_price=1.0)}
    await mesh.join(graph, limits=limits, models=models)

    first = await mesh.ask("question", agent="graph")
    assert first.task.status.state == State.TASK_STATE_COMPLETED
    assert (first.usage.tokens, first.usage.cost_micros) == (used, 9 + 2)
    assert seen == ["called"] * 2

    second = await mesh.ask("question", agent="graph")
    assert second.task.status.state == State.TASK_STATE_FAILED
    assert f"model {name!r} has used its budget" in status_texts(second)
    assert second.usage.tokens == 10
    assert len(model.requests) == 3


async def test_a_graph_ends_at_the_tokens_of_its_request(mesh: SmallMesh) -> None:
    model = ScriptedModel(reply("one", 9), "not sent")
    graph = graph_agent(model, [], is_async=True)
    await mesh.join(graph, tree=TreeSettings(tokens=10))

    task = await mesh.ask("question", agent="graph")

    assert task.task.status.state == State.TASK_STATE_FAILED
    assert "graph is over the limit of tokens" in status_texts(task)
    assert len(model.requests) == 1
