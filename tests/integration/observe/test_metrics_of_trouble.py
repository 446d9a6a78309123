"""Values of the metrics of real meshes whose work waits or fails."""

import asyncio
import gc
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx2
import pytest

from harness.a2a.bridged_mesh import Caller
from harness.a2a.sse_client import call, user_message
from harness.mesh.full_disk import fill_disk, free_disk
from harness.mesh.host_processes import QUICK, has_ended, hosts
from harness.mesh.processes import WITH_HARNESS, MeshProcess, open_services, running_mesh
from harness.polling import poll
from harness.remote.measurements import Measurements, measuring
from harness.remote.metrics_page import MetricsPage
from harness.remote.prometheus_server import running_prometheus
from trunkline.errors import PeerCircuitOpenError, PeerError

GATED = ("--agent", "harness.agents.gated_agent:gated")
AGENT = {"gen_ai_agent_name": "gated"}


def open_breakers(measured: Measurements) -> float:
    """Return by how many breakers that are not closed the metrics have more than before."""
    numbers = measured.of("trunkline.breakers")
    return sum(number for (_, state), number in numbers.items() if state != "closed")


async def submit(mesh: MeshProcess, path: str, text: str, **configuration: Any) -> dict[str, Any]:
    """Submit a task, and don't wait for its end."""
    params = {
        "message": user_message(text),
        "configuration": {"returnImmediately": True, **configuration},
    }
    return await call(mesh.http_url, path, "SendMessage", params)


async def send(mesh: MeshProcess, *payloads: str) -> None:
    """Send the agent messages of one conversation."""
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        for payload in payloads:
            body = {"recipient": "gated", "type": "job", "text": payload, "correlationId": "c"}
            answer = await client.post(f"{mesh.http_url}/messages", json=body)
            assert answer.status_code == 200, answer.text


async def read_all(page: MetricsPage, names: Sequence[str]) -> list[float]:
    """Return the values of gauges; one without series is 0."""
    return [await page.read(name) or 0.0 for name in names]


async def test_gauges_of_what_waits_and_runs(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    names = (
        "trunkline_admission_running",
        "trunkline_admission_waiting",
        "trunkline_webhooks_pending",
        "trunkline_messages_running",
        "trunkline_messages_waiting",
    )
    flags = (*GATED, "--allow-webhook", "127.0.0.1")
    async with running_mesh(tmp_path, *flags, environment=WITH_HARNESS) as mesh:
        page = MetricsPage(mesh.http_url)
        # The webhook's address has no listener, so its events wait between attempts.
        hook = {"taskPushNotificationConfig": {"url": "http://127.0.0.1:9/hook"}}
        await submit(mesh, "/agents/gated", str(gate), **hook)
        await page.wait_for("trunkline_admission_running", lambda value: value == 1, **AGENT)
        for _ in range(2):
            await submit(mesh, "/agents/gated", str(gate))
        await page.wait_for("trunkline_admission_waiting", lambda value: value == 2, **AGENT)
        assert await page.read("trunkline_webhooks_pending") == 1
        open_tasks = await page.read("trunkline_tasks_open", **AGENT)
        assert open_tasks == 3

        # The first message is being delivered: its task waits for the agent, too. The second is
        # of the same conversation, and so waits for the first.
        await send(mesh, str(gate), str(gate))
        await page.wait_for("trunkline_messages_running", lambda value: value == 1)
        await page.wait_for("trunkline_messages_waiting", lambda value: value == 1)

        gate.touch()
        left = await poll(lambda: read_all(page, names), lambda values: values == [0, 0, 1, 0, 0])
        assert left[2] == 1
        await page.wait_for("trunkline_tasks_ended_total", lambda value: value >= 3, **AGENT)
        handled = {"messaging_destination_name": "gated", "trunkline_delivery_state": "handled"}
        assert await page.read("trunkline_message_deliveries_total", **handled) == 2


async def test_a_full_disk_shows_as_failed_commits(tmp_path: Path) -> None:
    name, reason = "trunkline_journal_commits_failed_total", {"error_type": "JOURNAL_UNAVAILABLE"}
    async with running_mesh(tmp_path) as mesh:
        page = MetricsPage(mesh.http_url)
        assert await page.read(name, **reason) == 0
        fill_disk(mesh, tmp_path)

        async def is_refused() -> bool:
            return "error" in await submit(mesh, "/agents/echo", "x" * 2000)

        await poll(is_refused)
        await page.wait_for(name, lambda value: value >= 1, **reason)
        assert await page.read(name) == await page.read(name, **reason)
        free_disk(mesh)


async def test_hosts_that_die_show_as_breakers_takeovers_and_lost_leases(tmp_path: Path) -> None:
    environment = QUICK | {"TRUNKLINE_METRICS_ADDRESS": "127.0.0.1:0"}
    failed = {"error_type": "JOURNAL_UNAVAILABLE"}
    with measuring() as measured:
        async with hosts(tmp_path, "echo", "math", environment=environment) as (services, caller):
            page = MetricsPage(services.metrics_urls["math"])
            for name in ("trunkline_takeovers_total", "trunkline_lease_renewals_total"):
                assert await page.read(name, **failed) == 0, name
            assert await page.read("trunkline_leases_lost_total") == 0
            waiting = await caller.begin_question()
            # Without a task that runs, a host without the agent would not take over the journal.
            running = await caller.begin_streaming()
            address = caller.host_of(waiting)
            await services.kill("echo")
            # The dead host is asked again and again, until another one has its journal.
            await caller.until(running, has_ended)
            # Behind its first peers, a process counts others together, as it may do here. A breaker
            # opens again if the call that tries the host finds it dead.
            ((peer, times),) = measured.of("trunkline.breakers.opened").items()
            assert peer in {(address,), ("other",)}
            assert times >= 1

            # The host without the agent holds the journal, and gives it back.
            await page.wait_for("trunkline_takeovers_total", lambda value: value == 1)
            await services.restart("echo")
            await caller.wait_until_moved("echo", waiting)
            assert await page.read("trunkline_leases_lost_total") == 1

            # Then journals that another process writes to.
            taken = await page.wait_for("trunkline_takeovers_total", bool, error_type="")
            await caller.begin_streaming()
            await services.kill("echo")
            with ExitStack() as stack:
                for file in (tmp_path / "data" / "journals").glob("echo*.db"):
                    writer = stack.enter_context(closing(sqlite3.connect(file)))
                    writer.execute("BEGIN IMMEDIATE")
                await page.wait_for("trunkline_takeovers_total", lambda value: value >= 1, **failed)
            await page.wait_for(
                "trunkline_takeovers_total", lambda value: value > taken, error_type=""
            )


async def test_the_breaker_of_a_dead_host_leaves_the_metrics(tmp_path: Path) -> None:
    """A host that starts again has another port, so nobody would ever close the breaker."""
    variables = {"TRUNKLINE_METRICS_ADDRESS": "127.0.0.1:0", "TRUNKLINE_BREAKER_FAILURES": "1"}
    async with (
        open_services(tmp_path, environment=QUICK | variables) as services,
        httpx2.AsyncClient(trust_env=False, timeout=60) as client,
    ):
        await services.start("registry", "registry")
        await services.start("bridge", "bridge", "--default", "echo")
        await services.start("echo", "agents", "echo")
        caller, page = Caller(client, services.http_url), MetricsPage(services.http_url)

        async def is_answered() -> bool:
            params = {"message": caller.message("hello")}
            return "result" in (await caller.post("SendMessage", params)).json()

        # A new host is on the mesh of the bridge a moment after it is ready.
        await poll(is_answered)
        dead = services.address("echo")
        assert await page.read("trunkline_breakers", trunkline_peer=dead) == 1
        await services.kill("echo")

        async def is_open() -> bool:
            return bool(await page.read("trunkline_breakers_opened_total", trunkline_peer=dead))

        async with asyncio.TaskGroup() as group:
            sending = group.create_task(caller.send("hello"))
            await poll(is_open)
            # The call continues there.
            await services.start("another", "agents", "echo")
        assert sending.result()

        async def is_gone() -> bool:
            return await page.read("trunkline_breakers", trunkline_peer=dead) is None

        await poll(is_gone)
        alive = services.address("another")
        closed = {"trunkline_breaker_state": "closed", "trunkline_peer": alive}
        assert await page.read("trunkline_breakers", **closed) == 1


async def test_a_late_call_of_a_host_that_is_gone_leaves_no_breaker(tmp_path: Path) -> None:
    """A reader may call a host after the update without it, and so open its breaker."""
    gc.collect()
    with measuring() as measured:
        async with hosts(tmp_path, "echo", "math") as (services, caller):
            address = caller.directory.choose_host("echo").address
            await services.kill("echo")
            await caller.wait_for_agents("math")

            async def is_refused() -> bool:
                with pytest.raises(PeerError) as caught:
                    await caller.directory.client_at(address).get_task("t-1", account="")
                return isinstance(caught.value, PeerCircuitOpenError)

            await poll(is_refused)
            # The next change of the mesh.
            await services.start("currency", "agents", "currency")
            await caller.wait_for_agents("currency", "math")
            assert open_breakers(measured) == 0


async def test_the_first_dead_letter_is_an_increase(tmp_path: Path) -> None:
    """A counter begins at 0, so the first event of its kind raises the alert."""
    labels = 'messaging_destination_name="gated",trunkline_delivery_state="dead"'
    series = f"trunkline_message_deliveries_total{{{labels}}}"
    environment = {"TRUNKLINE_MESSAGING_ATTEMPTS": "1", **WITH_HARNESS}
    async with (
        running_mesh(tmp_path, *GATED, environment=environment) as mesh,
        running_prometheus(tmp_path / "prometheus", {"mesh": mesh.http_url}) as prometheus,
    ):
        await prometheus.wait_for(f"{series} == 0")
        await send(mesh, "")
        assert await prometheus.wait_for(f"increase({series}[1m]) > 0")
