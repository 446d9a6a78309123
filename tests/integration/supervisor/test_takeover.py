"""A supervisor whose process is killed in a turn, and restarted: the turn continues."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from harness.agents.inline_agents import texts
from harness.mesh.command_line import COMMAND
from harness.mesh.killable_agent import KillableAgent
from harness.mesh.small_mesh import SmallMesh, open_small_mesh
from harness.remote.model_server import Call, ModelServer, Pause, Reply, call, model_server, say
from trunkline.agents import FunctionAgent, agent
from trunkline.journal.fold import Fold
from trunkline.supervisor.recovery import recover_state
from trunkline.tasks.context import TaskContext
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL
from trunkline.v1 import message_service_pb2, snapshot_pb2, task_pb2
from trunkline_agents.echo.agent import echo

State = task_pb2.TaskState
WHOLE = "".join(f"{number} " for number in range(100))


@pytest.fixture
async def supervisor(tmp_path: Path) -> AsyncIterator[KillableAgent]:
    command = (*COMMAND, "serve", "agents", "supervisor")
    data = tmp_path / "supervisor"
    async with open_small_mesh(tmp_path) as mesh, AsyncExitStack() as stack:
        yield KillableAgent(mesh, "supervisor", command, data, stack, tmp_path)


async def end_of(mesh: SmallMesh, task_id: str) -> snapshot_pb2.TaskSnapshot:
    return await mesh.until(task_id, lambda now: now.task.status.state in TERMINAL | INTERRUPTED)


@dataclass
class Helpers:
    """Agents that write half of their text, and the rest on command; they count their runs."""

    runs: list[str] = field(default_factory=list)
    proceed: asyncio.Event = field(default_factory=asyncio.Event)

    def slow(self, name: str) -> FunctionAgent:
        @agent(name=name, description="Counts in two parts.", tags=[name])
        async def slow(_task: TaskContext) -> AsyncGenerator[str, None]:
            self.runs.append(name)
            for number in range(50):
                yield f"{number} "
            await self.proceed.wait()
            for number in range(50, 100):
                yield f"{number} "

        return slow

    def quick(self, name: str) -> FunctionAgent:
        @agent(name=name, description="Answers at once.", tags=[name])
        async def quick(_task: TaskContext) -> str:
            self.runs.append(name)
            return f"{name} is done"

        return quick

    def clerk(self) -> FunctionAgent:
        @agent(name="clerk", description="Asks and writes down.", tags=["clerk"])
        async def clerk(task: TaskContext) -> str | None:
            if task.turn == 1:
                await task.require_input("Your name?")
                return None
            self.runs.append(task.text)
            await task.working("noted")
            await self.proceed.wait()
            return f"noted {task.text}"

        return clerk


def finished_agents(snapshot: snapshot_pb2.TaskSnapshot) -> set[str]:
    return {child.started.agent for child in snapshot.children if child.HasField("finished")}


async def check_fold(mesh: SmallMesh, ended: snapshot_pb2.TaskSnapshot) -> None:
    """Assert that the fold of the streamed events equals the host's snapshot."""
    fold = Fold(ended.task.id)
    for batch in await mesh.events(ended.task.id):
        fold.apply(batch)
    assert texts(fold.snapshot()) == texts(ended)


async def test_ended_steps_are_kept_and_running_ones_are_followed(
    supervisor: KillableAgent,
) -> None:
    helpers = Helpers()
    mesh = supervisor.mesh
    await mesh.join(helpers.quick("red"), helpers.slow("green"))
    await supervisor.start()
    task_id = await mesh.begin("go red now, and go green now, then go red with {2}")
    await mesh.until(
        task_id,
        lambda now: "red" in finished_agents(now) and any("49 " in text for text in texts(now)),
    )

    await supervisor.kill_and_start()
    helpers.proceed.set()
    ended = await end_of(mesh, task_id)

    assert ended.task.status.state == State.TASK_STATE_COMPLETED
    assert texts(ended)[-1] == f"red is done\n{WHOLE}\nred is done"
    # Each step ran once, its text exists once, and the plan was made once.
    assert sorted(helpers.runs) == ["green", "red", "red"]
    assert sorted(texts(ended)[:-1]) == sorted([WHOLE, "red is done", "red is done"])
    assert [plan.revision for plan in ended.plans] == [1]
    assert [child.started.step_id for child in ended.children] == ["step-1", "step-2", "step-3"]
    assert len(ended.routes) == 3
    # The third step read the result that came after the host was lost.
    third = await mesh.get_task(ended.children[2].started.task_id)
    assert third.task.history[0].parts[0].text == f"go red with {WHOLE.strip()}"
    await check_fold(mesh, ended)


async def test_a_delivered_reply_is_not_delivered_again(supervisor: KillableAgent) -> None:
    helpers = Helpers()
    mesh = supervisor.mesh
    await mesh.join(helpers.clerk())
    await supervisor.start()
    waiting = await mesh.ask("to the clerk")
    await mesh.client("supervisor").send_message(
        agent="supervisor",
        message=mesh.message("Ada", task_id=waiting.task.id),
        submission=message_service_pb2.Submission(),
        return_immediately=True,
    )
    child = waiting.children[0].started.task_id
    await mesh.until(child, lambda now: now.turn == 2)

    await supervisor.kill_and_start()
    helpers.proceed.set()
    ended = await end_of(mesh, waiting.task.id)

    assert texts(ended)[-1] == "noted Ada"
    assert helpers.runs == ["Ada"]


STEPS = [{"agent": "red", "text": "begin"}, {"agent": "green", "text": "end"}]


@contextmanager
def planned_by_a_model(supervisor: KillableAgent) -> Iterator[ModelServer]:
    """Configure a model that plans for the supervisor and writes its answers."""
    with model_server() as provider:
        planner = {"TRUNKLINE_PLANNER_MODEL": "openai:planner"}
        supervisor.environment = {**provider.environment, **planner}
        yield provider


async def test_an_unfinished_plan_of_a_model_is_made_again(supervisor: KillableAgent) -> None:
    helpers = Helpers()
    mesh = supervisor.mesh
    await mesh.join(helpers.quick("red"), helpers.quick("green"))
    planning = Pause()
    plan = json.dumps({"steps": STEPS})
    broken = Call("make_plan", pieces=(plan[:60], planning, plan[60:]))
    with planned_by_a_model(supervisor) as provider:
        provider.script(
            Reply(calls=(broken,)), call("make_plan", steps=STEPS), say("Both are done.")
        )
        await supervisor.start()
        task_id = await mesh.begin("begin and end")
        await planning.reached()
        await mesh.until(task_id, lambda now: any(plan.text for plan in now.plans))
        await supervisor.kill_and_start()
        ended = await end_of(mesh, task_id)
        assert provider.remaining == 0

    assert sorted(helpers.runs) == ["green", "red"]
    (only_plan,) = ended.plans
    assert (only_plan.revision, only_plan.text) == (2, "1. red: begin\n2. green: end")
    assert sorted(texts(ended)[:2]) == ["green is done", "red is done"]
    assert texts(ended)[-1] == "Both are done."
    await check_fold(mesh, ended)


async def test_an_unfinished_answer_of_a_model_is_made_again(supervisor: KillableAgent) -> None:
    helpers = Helpers()
    mesh = supervisor.mesh
    await mesh.join(helpers.quick("red"), helpers.quick("green"))
    wording = Pause()
    with planned_by_a_model(supervisor) as provider:
        provider.script(
            call("make_plan", steps=STEPS),
            say("Both ", wording, "were there."),
            say("Both are done."),
        )
        await supervisor.start()
        task_id = await mesh.begin("begin and end")
        await wording.reached()
        await mesh.until(task_id, lambda now: any("Both" in text for text in texts(now)))
        await supervisor.kill_and_start()
        ended = await end_of(mesh, task_id)
        assert provider.remaining == 0

    # Neither the plan nor its steps were repeated.
    assert sorted(helpers.runs) == ["green", "red"]
    assert [plan.revision for plan in ended.plans] == [1]
    assert sorted(texts(ended)[:2]) == ["green is done", "red is done"]
    # The draft, rewound and written again, and the final answer.
    assert texts(ended)[2:] == ["Both are done."] * 2
    await check_fold(mesh, ended)


async def test_a_turn_is_recovered_from_any_point_of_the_journal(tmp_path: Path) -> None:
    async with open_small_mesh(tmp_path) as mesh:
        await mesh.join(echo)
        await mesh.supervise()
        text = "count 3 and @echo message straight and @echo fail boom, then @echo echo well"
        whole = await mesh.ask(text)
        batches = await mesh.events(whole.task.id)

    start: snapshot_pb2.TaskSnapshot | None = None
    fold = Fold(whole.task.id)
    planned = called = ended = 0
    for batch in batches:
        fold.apply(batch)
        latest = fold.snapshot()
        if start is None:
            start = latest
        state = recover_state(start, latest, text)
        if not any(plan.steps for plan in latest.plans):
            assert state is None
            continue
        assert state is not None
        planned += 1
        steps = state["steps"]
        assert [step.text for step in steps] == [step.text for step in whole.plans[0].steps]
        assert [step.route for step in steps] == list(latest.routes)
        assert not any(step.needed_steps for step in steps)
        children = {child.started.step_id: child for child in latest.children}
        for step in steps:
            child = children.get(step.id)
            assert step.called_child_id == (child.started.task_id if child else "")
            has_ended = child is not None and child.HasField("finished")
            assert (step.id in state["outcomes"]) == has_ended
            called += bool(step.called_child_id)
            ended += has_ended
    assert min(planned, called, ended) > 0
    assert state is not None
    texts = [state["outcomes"][step.id].text for step in state["steps"]]
    assert texts == ["1 2 3 ", "straight", "boom", "well"]
