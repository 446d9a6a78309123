"""Turns and conversations on two machines that share a database; one of them is killed."""

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

from harness.agents.inline_agents import texts
from harness.agents.slow_graph import WORDS
from harness.journal.postgres_server import new_database
from harness.mesh.command_line import COMMAND
from harness.mesh.killable_agent import KillableAgent
from harness.mesh.small_mesh import SmallMesh, open_small_mesh
from trunkline.tasks.lifecycle import TERMINAL, State

TESTS = Path(__file__).parents[2]
LEASE_S = 2.0

# Returns the agent on a machine, by the name of the machine.
Machine: TypeAlias = Callable[[str], KillableAgent]


@asynccontextmanager
async def machines(
    tmp_path: Path, module: str, agent: str
) -> AsyncIterator[tuple[SmallMesh, Machine]]:
    command = (*COMMAND, "serve", "agents", "--agent", f"harness.agents.{module}:{agent}")
    async with (
        new_database() as url,
        open_small_mesh(tmp_path, lease_s=LEASE_S) as mesh,
        AsyncExitStack() as stack,
    ):
        variables = {
            "GRAPH_FOLDER": str(tmp_path),
            "REASONER_FOLDER": str(tmp_path),
            "TRUNKLINE_STORE": url,
            "TRUNKLINE_LEASE_S": str(LEASE_S),
            "TRUNKLINE_DRAIN_GRACE_S": "1",
        }
        yield (
            mesh,
            lambda name: KillableAgent(
                mesh, agent, command, tmp_path / name, stack, TESTS, variables
            ),
        )


async def test_a_reasoning_agent_continues_its_turn_and_its_conversation_on_another_machine(
    tmp_path: Path,
) -> None:
    async with machines(tmp_path, "slow_reasoner", "reasoner") as (mesh, machine):
        first, second = machine("machine-1"), machine("machine-2")
        await first.start()
        task_id = await mesh.begin("count", agent="reasoner")
        await mesh.until(task_id, lambda now: any(text.endswith("49 ") for text in texts(now)))
        await first.kill()
        (tmp_path / "go").touch()
        await second.start()

        ended = await mesh.until(task_id, lambda now: now.task.status.state in TERMINAL)
        assert ended.task.status.state == State.TASK_STATE_COMPLETED
        assert ended.task.artifacts[0].parts[0].text == WORDS
        # The first reply and the call of the tool were in a checkpoint.
        assert (tmp_path / "called").read_text(encoding="utf-8").split() == [task_id]

        # The model calls the tool unless the conversation has the result of a call.
        again = await mesh.ask("again", agent="reasoner", context_id=ended.task.context_id)
        assert again.task.status.state == State.TASK_STATE_COMPLETED
        assert (tmp_path / "called").read_text(encoding="utf-8").split() == [task_id]


async def test_a_graph_continues_its_turn_and_its_conversation_on_another_machine(
    tmp_path: Path,
) -> None:
    async with machines(tmp_path, "slow_graph", "counter") as (mesh, machine):
        first, second = machine("machine-1"), machine("machine-2")
        await first.start()
        task_id = await mesh.begin("count", agent="counter")
        await mesh.until(task_id, lambda now: any(text.endswith("50 ") for text in texts(now)))
        await first.kill()
        (tmp_path / "go").touch()
        await second.start()

        ended = await mesh.until(task_id, lambda now: now.task.status.state in TERMINAL)
        assert ended.task.status.state == State.TASK_STATE_COMPLETED
        assert texts(ended) == [WORDS]
        # The first node was in a checkpoint.
        assert (tmp_path / "began").read_text(encoding="utf-8").split() == ["began"]

        told = await mesh.ask("recall", agent="counter", context_id=ended.task.context_id)
        assert texts(told) == [f"count|{WORDS}"]
        assert not list((tmp_path / "machine-2").rglob("*.checkpoints"))
