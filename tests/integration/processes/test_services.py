"""A mesh of one service per process: started in any order, killed, frozen and restarted."""

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from harness.mcp.bundled_servers import only_servers
from harness.mesh.command_line import run_command
from harness.mesh.host_processes import (
    PATIENCE_S,
    QUICK,
    WHOLE,
    Caller,
    failure_reason,
    has_ended,
    hosts,
    is_waiting,
    journals,
    replica,
    text_of,
    wait_until_lease_expired,
)
from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import open_services
from harness.polling import poll
from harness.remote.metrics_page import MetricsPage
from trunkline.errors import PeerUnavailableError
from trunkline.mesh.client import ChannelPool, Directory
from trunkline.v1 import task_pb2


async def calls_on_top(mesh: str) -> set[tuple[str, str]]:
    """Return the callers and the called of the recent calls that `top` shows."""
    done = await run_command("top", "--once", "--json", "--mesh", mesh)
    assert done.exit == 0, done.err
    return {(edge["from"], edge["to"]) for edge in done.json["edges"]}


async def test_services_may_start_in_any_order(tmp_path: Path) -> None:
    opening = open_services(tmp_path, environment=only_servers(tmp_path, "math"))
    async with opening as services, ChannelPool(mesh_credentials()) as channels:
        services.reserve_mesh_address()
        await services.launch("supervisor", "agents", "supervisor")
        await services.launch("math", "agents", "math")
        await services.launch("bridge", "bridge")
        await services.launch("tools", "tools")
        await services.start("registry", "registry")
        for name in ("supervisor", "math", "bridge", "tools"):
            await services.ready(name)
        async with Directory(channels, services.mesh_address) as directory:
            caller = Caller(directory)
            await caller.wait_for_agents("math", "supervisor")
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    task_id = await caller.begin("what is 1+2", agent="supervisor")
                    snapshot = await caller.until(
                        task_id, lambda now: has_ended(now) or is_waiting(now)
                    )
                    if has_ended(snapshot):
                        break
                    # The supervisor learns of the other agents a moment later.
            assert [part.text for part in snapshot.task.artifacts[-1].parts] == ["3"]
        # The span store is in the process of the registry, which is no host.
        edges = ("supervisor", "math")
        await poll(lambda: calls_on_top(services.mesh_address), lambda calls: edges in calls)
        async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
            answer = await client.get(f"{services.http_url}/ui/api/traces")
        assert answer.status_code == 200, answer.text
        assert answer.json()["traces"]


async def test_tasks_of_a_killed_host_are_ended_by_another_host_and_stay_readable(
    tmp_path: Path,
) -> None:
    environment = QUICK | {"TRUNKLINE_METRICS_ADDRESS": "127.0.0.1:0"}
    async with hosts(tmp_path, "echo", "math", environment=environment) as (services, caller):
        task_id = await caller.begin_streaming()
        await services.kill("echo")
        ended = await caller.until(task_id, has_ended)
        assert ended.task.status.state == task_pb2.TASK_STATE_FAILED
        assert "host stopped" in failure_reason(ended)
        assert WHOLE.startswith(text_of(ended))
        # The dead host is off the mesh; its restarted process has a new journal.
        await caller.wait_for_agents("math")
        assert journals(tmp_path) == {"echo.db", "math.db"}
        await services.restart("echo")
        assert journals(tmp_path) == {"echo.db", "echo.2.db", "math.db"}
        await caller.wait_for_agents("echo", "math")
        again = await caller.begin("hello")
        assert again.partition("-")[0] != task_id.partition("-")[0]
        assert text_of(await caller.until(again, has_ended)) == "hello"
        assert await caller.until(task_id, has_ended) == ended
        page = MetricsPage(services.metrics_urls["math"])
        assert await page.read("trunkline_takeovers_total", error_type="") == 1
        assert await page.read("trunkline_takeover_time_seconds_count") == 1


async def test_tasks_of_a_damaged_journal_are_unavailable_until_it_is_restored(
    tmp_path: Path,
) -> None:
    async with hosts(tmp_path, "echo") as (services, caller):
        task_id = await caller.begin("hello")
        whole = await caller.until(task_id, has_ended)
        assert await services.terminate("echo") == 0
        journal, copy = tmp_path / "data" / "journals" / "echo.db", tmp_path / "copy.db"
        shutil.copy(journal, copy)
        journal.write_bytes(b"damaged" * 1000)
        await services.restart("echo")
        await caller.wait_for_agents("echo")
        later = await caller.begin("hello again")
        await caller.until(later, has_ended)
        with pytest.raises(PeerUnavailableError, match="no host has its journal"):
            caller.directory.client_for_task(task_id)
        assert await services.terminate("echo") == 0
        shutil.copy(copy, journal)
        await services.restart("echo")
        assert await caller.until(task_id, has_ended) == whole
        assert text_of(await caller.until(later, has_ended)) == "hello again"


async def test_a_host_that_has_lost_its_journal_exits_with_an_error(tmp_path: Path) -> None:
    async with hosts(tmp_path, "echo", "math") as (services, caller):
        await caller.begin_streaming()
        # A takeover that could not reach the process would write the same.
        with closing(sqlite3.connect(tmp_path / "data" / "journals" / "echo.db")) as file:
            file.execute("UPDATE meta SET epoch = epoch + 1")
            file.commit()
        async with asyncio.timeout(PATIENCE_S):
            assert await services.processes["echo"].wait() == 1
        await services.restart("echo")
        await caller.wait_for_agents("echo", "math")


async def test_waiting_tasks_wait_for_a_host_of_their_agent_for_any_time(tmp_path: Path) -> None:
    # Another host could take the reply, but runs no agent for it.
    async with hosts(tmp_path, "echo", "math") as (services, caller):
        task_id = await caller.begin("ask your name?")
        await caller.until(
            task_id,
            lambda snapshot: snapshot.task.status.state == task_pb2.TASK_STATE_INPUT_REQUIRED,
        )
        await services.kill("echo")
        # Twice the time that other hosts wait before they take over an orphaned journal.
        await wait_until_lease_expired(tmp_path, float(QUICK["TRUNKLINE_LEASE_S"]))
        await services.restart("echo")
        assert journals(tmp_path) == {"echo.db", "math.db"}
        await caller.wait_for_agents("echo", "math")
        await caller.answer(task_id, "Ada")
        answered = await caller.until(task_id, lambda now: now.turn == 2)
        assert answered.task.status.state == task_pb2.TASK_STATE_COMPLETED
        assert text_of(answered) == "answer: Ada"


async def test_a_process_of_several_agents_is_a_replica_of_each(tmp_path: Path) -> None:
    async with hosts(tmp_path, "echo") as (services, caller):
        task_id = await caller.begin_streaming()
        await replica(services, caller, "both", "currency", "echo")
        await caller.wait_for_agents("echo", "currency")
        await services.kill("registry")
        await services.restart("registry")
        ended = await caller.until(task_id, has_ended)
        assert text_of(ended) == WHOLE
        assert await services.terminate("echo") == 0
        # The replica also takes the journal of the process that has left.
        assert await caller.until(task_id, has_ended) == ended
        again = await caller.begin("hello")
        assert text_of(await caller.until(again, has_ended)) == "hello"
