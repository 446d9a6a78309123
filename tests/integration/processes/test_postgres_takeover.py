"""Two machines, as two data directories, share a database: the agent on one of them is killed."""

from contextlib import AsyncExitStack
from pathlib import Path

from harness.agents.inline_agents import texts
from harness.journal.postgres_server import new_database
from harness.mesh.command_line import COMMAND
from harness.mesh.killable_agent import KillableAgent
from harness.mesh.small_mesh import open_small_mesh
from trunkline.tasks.lifecycle import TERMINAL, State

TESTS = Path(__file__).parents[2]
LEASE_S = 2.0


async def test_a_task_continues_on_another_machine_after_its_host_was_killed(
    tmp_path: Path,
) -> None:
    command = (*COMMAND, "serve", "agents", "--agent", "harness.agents.teller:teller")
    async with (
        new_database() as url,
        open_small_mesh(tmp_path, lease_s=LEASE_S) as mesh,
        AsyncExitStack() as stack,
    ):
        environment = {
            "TELLER_FOLDER": str(tmp_path),
            "TRUNKLINE_STORE": url,
            "TRUNKLINE_LEASE_S": str(LEASE_S),
        }
        first, second = (
            KillableAgent(mesh, "teller", command, tmp_path / name, stack, TESTS, environment)
            for name in ("machine-1", "machine-2")
        )
        await first.start()
        began = tmp_path / "began"
        began.touch()
        ended = await mesh.ask("same", agent="teller")
        began.unlink()
        running = await mesh.begin("same", agent="teller")
        await mesh.until(running, lambda now: "".join(texts(now)) == "once upon ")

        await first.kill()
        await second.start()

        continued = await mesh.until(running, lambda now: now.task.status.state in TERMINAL)
        assert continued.task.status.state == State.TASK_STATE_COMPLETED
        assert texts(continued) == ["once upon a time"]
        # The history of the machine that is gone is there, too.
        earlier = await mesh.until(ended.task.id, lambda now: now.task.status.state in TERMINAL)
        assert texts(earlier) == texts(ended)
        assert not list((tmp_path / "machine-2").rglob("teller.db"))
