"""A process that asks other agents is killed in the middle, and started again."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from harness.agents.inline_agents import status_texts, texts
from harness.mesh.command_line import COMMAND
from harness.mesh.host_processes import PATIENCE_S
from harness.mesh.killable_agent import KillableAgent
from harness.mesh.small_mesh import SmallMesh, open_small_mesh
from trunkline import TaskContext, agent
from trunkline.errors import TaskNotFoundError
from trunkline.tasks.lifecycle import TERMINAL, State
from trunkline.v1 import message_service_pb2, snapshot_pb2

TESTS = Path(__file__).parents[2]
WHOLE = "".join(f"{number} " for number in range(100))


@pytest.fixture
async def callers(tmp_path: Path) -> AsyncIterator[KillableAgent]:
    module = "harness.agents.callers"
    agents = ("--agent", f"{module}:asker", "--agent", f"{module}:grapher")
    command = (*COMMAND, "serve", "agents", *agents)
    environment = {"CALLERS_FOLDER": str(tmp_path)}
    async with open_small_mesh(tmp_path, lease_s=30.0) as mesh, AsyncExitStack() as stack:
        data = tmp_path / "callers"
        yield KillableAgent(mesh, "asker", command, data, stack, TESTS, environment)


class Asked:
    """The agents that are asked; they count their runs."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.canceled: list[str] = []
        self.proceed = asyncio.Event()

    async def join(self, mesh: SmallMesh) -> None:
        @agent(name="double", description="Doubles.")
        async def double(task: TaskContext) -> str:
            self.runs.append("double")
            return str(2 * int(task.text))

        @agent(name="slow", description="Counts in two parts.")
        async def slow(task: TaskContext) -> AsyncGenerator[str, None]:
            self.runs.append("slow")
            for number in range(50):
                yield f"{number} "
            await task.working("half way")
            try:
                await self.proceed.wait()
            except asyncio.CancelledError:
                self.canceled.append("slow")
                raise
            for number in range(50, 100):
                yield f"{number} "

        @agent(name="cashier", description="Pays after an approval.", resumable=True)
        async def cashier(task: TaskContext) -> str | None:
            if await task.request_approval("pay", {"sum": 7}) is None:
                return None
            self.runs.append("pay")
            await task.working("paying")
            await self.proceed.wait()
            return "paid"

        await mesh.join(double, slow, cashier)


async def start_asking(mesh: SmallMesh, caller: str) -> tuple[str, str]:
    """Ask the caller, and wait until its second child is half way; return both tasks' ids."""
    task_id = await mesh.begin("go", agent=caller)
    asking = await mesh.until(task_id, lambda now: len(now.children) == 2)
    child_id = asking.children[1].started.task_id
    # The child is in the caller's journal before it exists.
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                await mesh.until(child_id, lambda now: any("49 " in text for text in texts(now)))
                break
            except TaskNotFoundError:
                await asyncio.sleep(0.05)
    return task_id, child_id


async def end_of(mesh: SmallMesh, task_id: str) -> snapshot_pb2.TaskSnapshot:
    return await mesh.until(task_id, lambda now: now.task.status.state in TERMINAL)


@pytest.mark.parametrize("caller", ["asker", "grapher"])
async def test_a_repeated_turn_follows_the_children_that_it_started(
    callers: KillableAgent, tmp_path: Path, caller: str
) -> None:
    asked = Asked()
    mesh = callers.mesh
    await asked.join(mesh)
    await callers.start()
    task_id, child_id = await start_asking(mesh, caller)

    await callers.kill_and_start()
    asked.proceed.set()
    ended = await end_of(mesh, task_id)

    assert ended.task.status.state == State.TASK_STATE_COMPLETED
    assert texts(ended) == [f"42: {WHOLE}"]
    # The code ran twice, and each of the others once.
    assert (tmp_path / "began").read_text(encoding="utf-8") == f"{caller}\n{caller}\n"
    assert asked.runs == ["double", "slow"]
    assert [child.started.agent for child in ended.children] == ["double", "slow"]
    assert ended.children[1].started.task_id == child_id
    assert ended.children[1].finished.state == State.TASK_STATE_COMPLETED


async def test_an_approval_of_a_child_survives_kills_before_and_after_its_answer(
    callers: KillableAgent,
) -> None:
    caller = "asker"
    asked = Asked()
    mesh = callers.mesh
    await asked.join(mesh)
    await callers.start()
    waiting = await mesh.ask("pay", agent=caller)
    assert waiting.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    task_id, child_id = waiting.task.id, waiting.children[1].started.task_id

    await callers.kill_and_start()
    await mesh.client(caller).send_message(
        agent=caller,
        message=mesh.message("approve", task_id=task_id),
        submission=message_service_pb2.Submission(),
        return_immediately=True,
    )
    await mesh.until(child_id, lambda now: "paying" in str(now.task.status.message))
    await callers.kill_and_start()
    asked.proceed.set()
    ended = await end_of(mesh, task_id)

    assert ended.task.status.state == State.TASK_STATE_COMPLETED, status_texts(ended)
    assert texts(ended) == ["42: paid"]
    assert asked.runs == ["double", "pay"]
    assert len(ended.children) == 2


async def test_a_cancel_after_the_takeover_reaches_the_child(callers: KillableAgent) -> None:
    asked = Asked()
    mesh = callers.mesh
    await asked.join(mesh)
    await callers.start()
    task_id, child_id = await start_asking(mesh, "asker")

    await callers.kill_and_start()
    await mesh.until(task_id, lambda now: "attempt 2" in str(now.task.status.message))
    await mesh.directory.client_for_task(task_id).cancel_task(task_id, account="", reason="enough")

    assert (await end_of(mesh, task_id)).task.status.state == State.TASK_STATE_CANCELED
    assert (await end_of(mesh, child_id)).task.status.state == State.TASK_STATE_CANCELED
    assert asked.canceled == ["slow"]
    assert asked.runs == ["double", "slow"]
