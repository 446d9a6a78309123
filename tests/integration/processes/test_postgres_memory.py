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
from harness.polling import wait_for
from trunkline.mesh.client.resuming_stream import allocate_task_id
from trunkline.tasks.lifecycle import TERMINAL, State
from trunkline.v1 import message_service_pb2, registry_service_pb2, snapshot_pb2

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


async def test_a_turn_that_was_accepted_first_runs_first_although_its_host_dies_before_it_begins(
    tmp_path: Path,
) -> None:
    async with machines(tmp_path, "queued_graph", "queued") as (mesh, machine):
        first, second = machine("machine-1"), machine("machine-2")
        await first.start()
        (host,) = mesh.directory.list_replicas("queued")
        await second.start()
        (other,) = (
            each for each in mesh.directory.list_replicas("queued") if each.host_id != host.host_id
        )
        # The host that is killed runs nothing else meanwhile.
        await begin(mesh, host, "hold")
        await wait_for(lambda: (tmp_path / "turns").exists())
        turns = [await begin(mesh, host, "first", context_id="c")]
        turns.append(await begin(mesh, other, "second", context_id="c"))
        await mesh.until(turns[1], lambda now: now.task.status.state != State.TASK_STATE_SUBMITTED)

        await first.kill()
        (tmp_path / "go").touch()
        for task_id in turns:
            ended = await mesh.until(task_id, lambda now: now.task.status.state in TERMINAL)
            assert ended.task.status.state == State.TASK_STATE_COMPLETED, ended.task.status
        lines = (tmp_path / "turns").read_text(encoding="utf-8").splitlines()
        of_conversation = [line for line in lines if not line.endswith("hold")]
        assert of_conversation == ["begins first", "ends first", "begins second", "ends second"]


async def begin(
    mesh: SmallMesh, host: registry_service_pb2.Host, text: str, *, context_id: str = ""
) -> str:
    """Send a message to a host; return the id of its task as soon as it is accepted."""
    task_id = allocate_task_id(host)
    answer = await mesh.directory.client_for_task(task_id).send_message(
        agent="queued",
        message=mesh.message(text, context_id=context_id),
        submission=message_service_pb2.Submission(task_id=task_id),
        return_immediately=True,
    )
    assert isinstance(answer, snapshot_pb2.TaskSnapshot)
    return answer.task.id
