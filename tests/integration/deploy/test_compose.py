"""The services of `deploy/compose.yaml`, as processes: no container engine is needed."""

import asyncio
import base64
import json
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

import grpc
import httpx2
import yaml
from a2a.types import a2a_pb2, a2a_pb2_grpc

from harness.a2a.bridged_mesh import Caller
from harness.deploy.addresses import find_url
from harness.deploy.composition import Composition, read_services
from harness.deploy.dashboards import read_queries
from harness.deploy.limits import Limits
from harness.mesh.process_sizes import count_threads, process_tree, resident_bytes
from harness.mesh.processes import ProcessEndedError, running_process
from harness.polling import poll
from harness.remote.otlp_collector import Collected, open_collector
from harness.remote.prometheus_server import PROGRAMS, Prometheus

SECRET: Final = f"whsec_{base64.b64encode(b'of the compose file, really').decode()}"
QUICK: Final = {"OTEL_BSP_SCHEDULE_DELAY": "200"}
EXEMPLARS: Final = "gen_ai_invoke_agent_duration_seconds_bucket"
# Panels that have data after one question, whatever it was.
ALWAYS: Final = frozenset(
    {
        "Processes on the mesh",
        "Targets down",
        "Open tasks",
        "Ended, by state",
        "Events",
        "CPU",
        "Trunks",
    }
)


async def succeeds(command: Sequence[str]) -> bool:
    """Run a probe; return whether it passes."""
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )
    return await process.wait() == 0


def services_of(collected: Collected) -> set[str]:
    """Return the services that have sent spans."""
    return {
        attribute.value.string_value
        for export in collected.traces
        for spans in export.resource_spans
        for attribute in spans.resource.attributes
        if attribute.key == "service.name"
    }


async def start_prometheus(mesh: Composition, stack: AsyncExitStack) -> Prometheus:
    """Run the Prometheus of the compose file, which only scrapes more often."""
    mesh.copy_mounts("prometheus")
    file = mesh.mount("prometheus", "/etc/prometheus") / "prometheus.yml"
    configuration = yaml.safe_load(file.read_text())
    configuration["global"] = {"scrape_interval": "300ms", "evaluation_interval": "300ms"}
    file.write_text(yaml.safe_dump(configuration))
    words = (mesh.translate("prometheus", word) for word in mesh.services["prometheus"]["command"])
    process = await stack.enter_async_context(
        running_process(str(PROGRAMS / "prometheus"), *words, cwd=mesh.folder)
    )
    mesh.copy_mounts("grafana")
    provisioning = mesh.mount("grafana", "/etc/grafana/provisioning")
    datasources = yaml.safe_load((provisioning / "datasources/trunkline.yaml").read_text())
    (url,) = (one["url"] for one in datasources["datasources"] if one["type"] == "prometheus")
    client = await stack.enter_async_context(httpx2.AsyncClient(base_url=url, trust_env=False))
    # Its program, wget, is not needed.
    _, _, ready = find_url(mesh.services["prometheus"]["healthcheck"]["test"])

    async def is_ready() -> bool:
        if process.returncode is not None:
            raise ProcessEndedError("Prometheus ended")
        try:
            return (await client.get(ready)).status_code == httpx2.codes.OK
        except httpx2.TransportError:
            return False

    await poll(is_ready)
    return Prometheus(client)


async def check_bridge(mesh: Composition, client: httpx2.AsyncClient) -> None:
    """Call the bridge as other containers do: by its name, and over gRPC."""
    http, grpc_address = mesh.published("bridge", 8000), mesh.published("bridge", 50052)
    for host, code in (("bridge:8000", httpx2.codes.OK), ("elsewhere:8000", 421)):
        answer = await client.get(
            f"http://{http}/.well-known/agent-card.json", headers={"Host": host}
        )
        assert answer.status_code == code, (host, answer.text)
    async with grpc.aio.insecure_channel(grpc_address) as channel, asyncio.timeout(60):
        stub = a2a_pb2_grpc.A2AServiceStub(channel)  # type: ignore[no-untyped-call]
        tasks = await stub.ListTasks(a2a_pb2.ListTasksRequest(), metadata=(("a2a-version", "1.0"),))
    assert len(tasks.tasks) == 1


def check_limits(mesh: Composition) -> None:
    """Check that each service of ours stays within the limits of its container."""
    for name in mesh.ours:
        limits = Limits.of_service(mesh.services[name])
        processes = process_tree(mesh.process_id(name))
        memory = sum(resident_bytes(process) for process in processes)
        assert 0 < memory < limits.memory_bytes - limits.files_bytes, (name, memory)
        threads = sum(count_threads(process) for process in processes)
        assert threads < limits.threads, (name, threads)


async def test_the_composed_services_work_as_processes(tmp_path: Path) -> None:
    services = read_services({"TRUNKLINE_WEBHOOK_SECRET": SECRET})
    mesh = Composition(tmp_path, services)
    async with AsyncExitStack() as stack:
        collector = await stack.enter_async_context(open_collector())
        mesh.set_address("collector", 4317, collector.address)
        probes = {name: mesh.probe(name) for name in mesh.ours}
        assert not any([await succeeds(probe) for probe in probes.values()])
        await stack.enter_async_context(mesh.running(QUICK))
        prometheus = await start_prometheus(mesh, stack)

        async def passes(probe: Sequence[str]) -> bool:
            mesh.check_running()
            return await succeeds(probe)

        for probe in probes.values():
            await poll(lambda probe=probe: passes(probe))  # type: ignore[misc]

        url = f"http://{mesh.published('bridge', 8000)}"
        client = await stack.enter_async_context(httpx2.AsyncClient(trust_env=False, timeout=60))
        task = await Caller(client, url).send("what is 15% of 240, and convert 36 USD to EUR")
        assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
        assert "36" in json.dumps(task["artifacts"])
        await check_bridge(mesh, client)

        agents = {"bridge", "supervisor", "math", "currency", "tools"}
        await collector.wait_until(lambda got: agents <= services_of(got))
        # Prometheus scrapes them instead.
        assert not collector.metrics

        scraped = await prometheus.wait_for(
            'up{job="trunkline"} == 1', lambda series: len(series) == len(mesh.ours)
        )
        assert len(scraped) == len(mesh.ours)
        await prometheus.wait_for(
            'sum(trunkline_tasks_ended_total{trunkline_task_state="completed"}) >= 3'
        )
        exemplars = {"query": EXEMPLARS, "start": "0", "end": "9999999999"}
        await poll(lambda: prometheus.get("/api/v1/query_exemplars", **exemplars))
        for query in read_queries():
            if query.panel in ALWAYS:
                await prometheus.wait_for(query.filled())
            else:
                await prometheus.query(query.filled())
        check_limits(mesh)
    # The root file system is read-only: all files are in the volume.
    assert not [path for name in mesh.ours for path in mesh.current_folder(name).iterdir()]
    assert {path.name for path in (tmp_path / "volumes/data").iterdir()} == {"identity", "mesh"}
