"""Hosts with journals in a database: a host is killed, or the database is away for a while."""

import asyncio
from collections.abc import Awaitable, Iterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import asyncpg
import pytest

from harness.agents.inline_agents import texts
from harness.journal.postgres_server import PostgresServer, new_database
from harness.mesh.command_line import COMMAND
from harness.mesh.killable_agent import KillableAgent
from harness.mesh.processes import running_process
from harness.mesh.small_mesh import PATIENCE_S, SmallMesh, open_small_mesh
from harness.polling import wait_for
from trunkline.core.backoff import Backoff
from trunkline.errors import JournalUnavailableError, TrunklineError
from trunkline.tasks.lifecycle import TERMINAL, State
from trunkline.v1 import snapshot_pb2

TESTS = Path(__file__).parents[2]
LEASE_S = 2.0
SERVE = (*COMMAND, "serve", "agents", "--agent", "harness.agents.teller:teller")


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """The server that a test kills."""
    made = PostgresServer("fsync=off")
    yield made
    made.remove()


def environment(url: str, folder: Path, *, lease_s: float = LEASE_S) -> dict[str, str]:
    return {
        "TELLER_FOLDER": str(folder),
        "TRUNKLINE_STORE": url,
        "TRUNKLINE_LEASE_S": str(lease_s),
        "TRUNKLINE_DRAIN_GRACE_S": "1",
    }


async def test_a_task_continues_on_another_machine_after_its_host_was_killed(
    tmp_path: Path,
) -> None:
    async with (
        new_database() as url,
        open_small_mesh(tmp_path, lease_s=LEASE_S) as mesh,
        AsyncExitStack() as stack,
    ):
        variables = environment(url, tmp_path)
        first, second = (
            KillableAgent(mesh, "teller", SERVE, tmp_path / name, stack, TESTS, variables)
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


async def test_a_host_survives_an_outage_of_the_database(
    tmp_path: Path, server: PostgresServer
) -> None:
    (tmp_path / "began").touch()
    async with (
        open_small_mesh(tmp_path, lease_s=LEASE_S) as mesh,
        AsyncExitStack() as stack,
    ):
        agent = KillableAgent(
            mesh, "teller", SERVE, tmp_path, stack, TESTS, environment(server.url, tmp_path)
        )
        await agent.start()
        assert agent.process is not None
        earlier = await mesh.ask("same", agent="teller")
        await asyncio.to_thread(server.kill)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(2 * LEASE_S):
                await agent.process.wait()
        await asyncio.to_thread(server.start)
        # The same process has the same journal.
        later = await ask_until_accepted(mesh)
        assert texts(later) == texts(earlier)
        assert later.task.id.partition("-")[0] == earlier.task.id.partition("-")[0]


async def test_a_host_ends_in_time_while_a_commit_waits_for_the_database(
    tmp_path: Path, server: PostgresServer
) -> None:
    async with (
        open_small_mesh(tmp_path, lease_s=LEASE_S) as mesh,
        AsyncExitStack() as stack,
    ):
        agent = KillableAgent(
            mesh, "teller", SERVE, tmp_path, stack, TESTS, environment(server.url, tmp_path)
        )
        await agent.start()
        assert agent.process is not None
        other = await asyncpg.connect(server.url)
        stack.callback(other.terminate)
        locked = other.transaction()
        await locked.start()
        await other.execute("LOCK TABLE trunkline_events IN SHARE MODE")
        asking = await stack.enter_async_context(asyncio.TaskGroup())
        lost = asking.create_task(give_up(mesh.begin("same", agent="teller")))
        backoff = Backoff(first_s=0.01, limit_s=0.05)
        async with asyncio.timeout(PATIENCE_S):
            while not await other.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                await backoff.pause()
        await asyncio.to_thread(server.kill)
        agent.process.terminate()
        try:
            async with asyncio.timeout(25):
                await agent.process.wait()
        finally:
            await asyncio.to_thread(server.start)
            lost.cancel()


async def give_up(work: Awaitable[object]) -> None:
    """Wait for work that fails with the host."""
    with suppress(TrunklineError):
        await work


async def test_a_host_that_starts_before_the_database_waits_for_it(
    tmp_path: Path, server: PostgresServer, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "began").touch()
    async with (
        open_small_mesh(tmp_path, lease_s=LEASE_S) as mesh,
        AsyncExitStack() as stack,
    ):
        agent = KillableAgent(
            mesh, "teller", SERVE, tmp_path, stack, TESTS, environment(server.url, tmp_path)
        )
        await asyncio.to_thread(server.kill)
        async with asyncio.TaskGroup() as starts:
            starting = starts.create_task(agent.start())
            await wait_for(lambda: "database.awaited" in capfd.readouterr().err)
            assert not starting.done()
            await asyncio.to_thread(server.start)
        assert texts(await mesh.ask("same", agent="teller")) == ["once upon a time"]


async def test_a_database_that_refuses_a_host_is_named_at_its_start(
    tmp_path: Path, server: PostgresServer, capfd: pytest.CaptureFixture[str]
) -> None:
    url = f"postgresql://nobody:secret@127.0.0.1:{server.port}/missing"
    async with running_process(
        *SERVE, "--data", str(tmp_path), cwd=TESTS, environment=environment(url, tmp_path)
    ) as process:
        async with asyncio.timeout(PATIENCE_S):
            code = await process.wait()
    text = capfd.readouterr().err
    assert code
    assert f"postgresql://127.0.0.1:{server.port}/missing" in text
    assert "secret" not in text


async def test_a_host_whose_lease_has_ended_takes_no_work_until_it_is_renewed(
    tmp_path: Path,
) -> None:
    (tmp_path / "began").touch()
    async with (
        new_database() as url,
        open_small_mesh(tmp_path, lease_s=LEASE_S) as mesh,
        AsyncExitStack() as stack,
    ):
        agent = KillableAgent(
            mesh, "teller", SERVE, tmp_path, stack, TESTS, environment(url, tmp_path)
        )
        await agent.start()
        other = await asyncpg.connect(url)
        stack.push_async_callback(other.close)
        locked = other.transaction()
        await locked.start()
        # The host can write its journal, and can't renew the lease.
        await other.execute("SELECT 1 FROM trunkline_leases FOR UPDATE")
        with pytest.raises(JournalUnavailableError, match="its lease has ended"):
            await ask_for_ever(mesh)
        await locked.rollback()
        answer = await ask_until_accepted(mesh)
        assert texts(answer) == ["once upon a time"]


async def ask_for_ever(mesh: SmallMesh) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while True:
            await mesh.ask("same", agent="teller")


async def ask_until_accepted(mesh: SmallMesh) -> snapshot_pb2.TaskSnapshot:
    backoff = Backoff(first_s=0.1, limit_s=0.2)
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                return await mesh.ask("same", agent="teller")
            except JournalUnavailableError:
                await backoff.pause()
