"""Metrics of real meshes: a real Prometheus scrapes them, and a collector gets them over OTLP."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from harness.a2a.bridged_mesh import BridgedMesh, Caller, open_bridged_mesh
from harness.mesh.processes import MeshProcess, running_mesh
from harness.remote.otlp_collector import open_collector
from harness.remote.prometheus_server import running_prometheus
from harness.remote.token_issuer import write_api_keys
from trunkline.core.settings import HostPort, MetricsSettings, Settings
from trunkline.errors import ConfigurationError
from trunkline.observe.metrics.instruments import INSTRUMENTS
from trunkline.observe.signal_exports import check_metrics_address, export_signals
from trunkline_agents.echo.agent import echo
from trunkline_bridge.callers.api_keys import ApiKey, hash_key, save_keys

KEY, ECHO_KEY = "key-of-ann", "key-of-bob"


async def ask(mesh: MeshProcess, agent: str, text: str) -> dict[str, Any]:
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        return await Caller(client, f"{mesh.http_url}/agents/{agent}").send(text)


async def test_prometheus_scrapes_a_mesh(tmp_path: Path) -> None:
    async with (
        running_mesh(tmp_path, servers=("math",)) as mesh,
        running_prometheus(tmp_path / "prometheus", {"mesh": mesh.http_url}) as prometheus,
    ):
        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(ask(mesh, "echo", f"say {number}"))
        await ask(mesh, "supervisor", "repeat after me: hello")
        await ask(mesh, "math", "what is 19 * 23?")
        ended = (
            'trunkline_tasks_ended_total{gen_ai_agent_name="echo",trunkline_task_state="completed"}'
        )
        (series,) = await prometheus.wait_for(f"{ended} >= 6")
        assert series["metric"]["job"] == "mesh"
        counted = await prometheus.query(
            'http_server_request_duration_seconds_count{http_route="/agents/{agent}"}'
        )
        assert sum(float(one["value"][1]) for one in counted) >= 6
        (quantile,) = await prometheus.query(
            "histogram_quantile(0.99, trunkline_journal_commit_duration_seconds_bucket)"
        )
        assert 0 < float(quantile["value"][1]) < 10
        types = await prometheus.get("/api/v1/metadata")
        assert types["trunkline_journal_commit_lag_seconds"][0]["unit"] == "seconds"
        # A scrape may be older than the last answer.
        (tool,) = await prometheus.wait_for("mcp_client_operation_duration_seconds_count")
        assert tool["metric"]["trunkline_tool_server"] == "math"
        assert (tool["metric"]["network_transport"], tool["value"][1]) == ("pipe", "1")
        (model,) = await prometheus.query(
            'gen_ai_client_inference_duration_seconds_count{gen_ai_request_model="rules"}'
        )
        assert float(model["value"][1]) >= 1
        for expression in (
            "trunkline_hosts == 1",
            "trunkline_journals_held >= 1",
            "trunkline_lease_renewals_total >= 1",
            'trunkline_breakers{trunkline_breaker_state="closed"} >= 1',
            'gen_ai_client_inference_usage_input_tokens_total{gen_ai_token_modality="text"} >= 1',
            "gen_ai_client_inference_operation_output_tokens_count >= 1",
            'gen_ai_execute_tool_duration_seconds_count{gen_ai_tool_name="calculate"} == 1',
            'gen_ai_invoke_agent_tool_calls_sum{gen_ai_agent_name="math"} == 1',
            'gen_ai_invoke_agent_inference_calls_sum{gen_ai_agent_name="math"} >= 1',
        ):
            assert await prometheus.wait_for(expression), expression
        name = "gen_ai_invoke_agent_duration_seconds_bucket"
        exemplars = await prometheus.get(
            "/api/v1/query_exemplars", query=name, start="0", end="9999999999"
        )
        trace_ids = {
            exemplar["labels"]["trace_id"] for one in exemplars for exemplar in one["exemplars"]
        }
        assert trace_ids
        assert all(len(trace_id) == 32 for trace_id in trace_ids)


async def test_a_collector_gets_metrics(tmp_path: Path) -> None:
    async with open_collector() as collector:
        environment = {
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": collector.address,
            "OTEL_METRIC_EXPORT_INTERVAL": "200",
            "OTEL_RESOURCE_ATTRIBUTES": "deployment.environment.name=test",
        }
        async with running_mesh(tmp_path, environment=environment) as mesh:
            await ask(mesh, "echo", "hello")
            await collector.wait_until(
                lambda got: (
                    bool(got.find_metrics("trunkline.tasks.ended"))
                    and bool(got.find_metrics("trunkline.journal.commit.lag"))
                )
            )
    assert not collector.traces
    resource = collector.metrics[0].resource_metrics[0].resource
    attributes = {one.key: one.value.string_value for one in resource.attributes}
    assert attributes["service.name"] == "trunkline"
    assert attributes["deployment.environment.name"] == "test"
    durations = collector.find_metrics("rpc.server.call.duration")
    assert durations[0].unit == "s"
    points = [point for duration in durations for point in duration.histogram.data_points]
    assert any(point.exemplars for point in points)
    assert {one.name for one in INSTRUMENTS} >= {
        metric.name
        for export in collector.metrics
        for scope in export.resource_metrics[0].scope_metrics
        for metric in scope.metrics
    }


async def test_a_collector_gets_the_log(tmp_path: Path) -> None:
    async with open_collector() as collector:
        environment = {
            "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": collector.address,
            "OTEL_BLRP_SCHEDULE_DELAY": "100",
            "TRUNKLINE_LOG_LEVEL": "info",
            "TRUNKLINE_LOG_FORMAT": "json",
        }
        log = tmp_path / "stderr.jsonl"
        with log.open("wb") as stderr:
            async with running_mesh(tmp_path, environment=environment, stderr=stderr) as mesh:
                task = await ask(mesh, "echo", "a secret of mine")
    assert not collector.traces
    assert not collector.metrics
    lines = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
    served = [line for line in lines if line["event"] == "http.served"]
    assert {"trace_id", "span_id"} <= served[0].keys()
    of_task = [line for line in lines if line.get("task_id") == task["id"]]
    assert of_task
    records = list(collector.records())
    exported = [record for record in records if record.body.string_value == "http.served"]
    assert exported[0].trace_id.hex() == served[0]["trace_id"]
    assert exported[0].span_id.hex() == served[0]["span_id"]
    assert exported[0].severity_text == "INFO"
    ids = {
        one.value.string_value
        for record in records
        for one in record.attributes
        if one.key == "task_id"
    }
    assert task["id"] in ids
    assert "a secret of mine" not in str(records)


@pytest.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[BridgedMesh]:
    """A bridge that knows two keys: one for everything, and one for an agent alone."""
    keys = [
        ApiKey("ann", "acme", hash_key(KEY)),
        ApiKey("bob", "acme", hash_key(ECHO_KEY), agents=("echo",)),
    ]
    save_keys(tmp_path / "keys.toml", keys)
    settings = Settings(default_agent="echo", api_keys_file=tmp_path / "keys.toml")
    async with open_bridged_mesh(tmp_path / "mesh", settings) as mesh:
        await mesh.mesh.join(echo)
        yield mesh


async def test_a_scraper_needs_a_credential_where_callers_do(guarded: BridgedMesh) -> None:
    url = f"{guarded.url}/metrics"
    by_key = {"authorization": f"Bearer {KEY}"}
    assert (await guarded.client.get(url)).status_code == 401
    wrong = await guarded.client.get(url, headers={"authorization": "Bearer wrong"})
    assert wrong.status_code == 401
    refused = await guarded.client.get(url, headers={"authorization": f"Bearer {ECHO_KEY}"})
    assert refused.status_code == 403
    assert "GetMetrics" in refused.json()["error"]["message"]
    answer = await guarded.client.get(url, headers=by_key)
    assert answer.status_code == 200
    assert "trunkline_journal_events" in answer.text
    # A name that resolves to this machine is not one of ours.
    foreign = await guarded.client.get(url, headers={**by_key, "host": "attacker.example"})
    assert foreign.status_code == 421
    assert (await guarded.client.post(url, headers=by_key)).status_code == 405


async def test_public_metrics_need_no_credential(tmp_path: Path) -> None:
    keys = write_api_keys(tmp_path / "keys.toml", [("ann", "acme", KEY)])
    metrics = MetricsSettings(public=True)
    settings = Settings(default_agent="echo", api_keys_file=keys, metrics=metrics)
    async with open_bridged_mesh(tmp_path / "mesh", settings) as mesh:
        assert (await mesh.client.get(f"{mesh.url}/metrics")).status_code == 200


async def test_a_process_serves_its_metrics_at_its_own_address() -> None:
    settings = Settings(metrics=MetricsSettings(address=HostPort("127.0.0.1", 0)))
    async with (
        export_signals(settings, "worker") as served,
        httpx2.AsyncClient(trust_env=False) as client,
    ):
        url = served["metrics"]
        answer = await client.get(url)
        assert answer.status_code == 200
        assert "target_info{" in answer.text
        assert (await client.get(url, headers={"host": "attacker.example"})).status_code == 421
        assert (await client.get(url.removesuffix("/metrics"))).status_code == 404
        taken = HostPort.parse(url.removeprefix("http://").removesuffix("/metrics"))
        with pytest.raises(ConfigurationError, match="can't be listened on"):
            async with export_signals(Settings(metrics=MetricsSettings(address=taken)), "worker"):
                pass
    with pytest.raises(httpx2.ConnectError):
        async with httpx2.AsyncClient(trust_env=False) as client:
            await client.get(url)


def test_an_exposed_address_must_be_public() -> None:
    exposed = HostPort("192.0.2.1", 9464)
    with pytest.raises(ConfigurationError, match="public = true"):
        check_metrics_address(MetricsSettings(address=exposed))
    check_metrics_address(MetricsSettings(address=exposed, public=True))
