"""Traces of a mesh in a real Arize Phoenix: whole, with their parents, and what agents said."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import httpx2
import pytest
import pytest_asyncio

from harness.a2a.bridged_mesh import Caller
from harness.mesh.identity import mesh_credentials
from harness.mesh.processes import MeshProcess, running_mesh
from harness.polling import poll
from harness.remote.phoenix_server import Phoenix, running_phoenix
from trunkline.errors import TraceNotFoundError
from trunkline.mesh.client import ChannelPool
from trunkline.v1 import trace_service_pb2, trace_service_pb2_grpc

pytestmark = pytest.mark.asyncio(loop_scope="module")

QUESTION = "what is 15% of 240, and convert 36 USD to EUR"
SERVERS = ("math", "currency")

Spans: TypeAlias = set[tuple[str, str, str]]
"""The id, the parent's id and the name of each span."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def phoenix(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Phoenix]:
    async with running_phoenix(tmp_path_factory.mktemp("phoenix") / "server") as running:
        yield running


@asynccontextmanager
async def mesh_of(
    folder: Path, environment: Mapping[str, str]
) -> AsyncIterator[tuple[MeshProcess, "trace_service_pb2_grpc.TraceServiceAsyncStub"]]:
    """Run a mesh with two MCP servers."""
    async with (
        running_mesh(folder, servers=SERVERS, environment=environment) as mesh,
        ChannelPool(mesh_credentials()) as channels,
    ):
        yield mesh, trace_service_pb2_grpc.TraceServiceStub(channels.get(mesh.mesh_address))


async def ask(mesh: MeshProcess, text: str) -> dict[str, Any]:
    async with httpx2.AsyncClient(trust_env=False, timeout=300) as client:
        return await Caller(client, mesh.http_url).send(text)


def one(spans: Sequence[dict[str, Any]], name: str, parent: str = "") -> dict[str, Any]:
    """Return the only span of a name, or the only one below a span of the name `parent`."""
    named = {span["context"]["span_id"]: span["name"] for span in spans}
    (found,) = (
        span
        for span in spans
        if span["name"] == name and (not parent or named.get(span["parent_id"]) == parent)
    )
    return found


def parents_of(spans: Sequence[dict[str, Any]]) -> Spans:
    """Return how spans that Phoenix has hang together."""
    return {(span["context"]["span_id"], span["parent_id"] or "", span["name"]) for span in spans}


def roots_of(spans: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the spans without their parent among them."""
    ids = {span["context"]["span_id"] for span in spans}
    return [span for span in spans if span["parent_id"] not in ids]


async def trace_of(
    phoenix: Phoenix,
    traces: "trace_service_pb2_grpc.TraceServiceAsyncStub",
    task: dict[str, Any],
    *servers: str,
) -> list[dict[str, Any]]:
    """Return the spans that Phoenix has of a task, once they are all that the mesh stored.

    They have one root, and those of MCP servers, which come last, are among them.
    """

    async def read() -> tuple[list[dict[str, Any]], Spans, set[str]]:
        try:
            stored = list(
                (await traces.GetTrace(trace_service_pb2.GetTraceRequest(task_id=task["id"]))).spans
            )
        except TraceNotFoundError:
            return [], set(), set()
        wanted = {(span.span_id, span.parent_span_id, span.name) for span in stored}
        return await phoenix.spans(stored[0].trace_id), wanted, {span.service for span in stored}

    def is_whole(value: tuple[list[dict[str, Any]], Spans, set[str]]) -> bool:
        shown, wanted, services = value
        has_all = {f"mcp-{name}" for name in servers} <= services and parents_of(shown) == wanted
        return has_all and len(roots_of(shown)) == 1

    shown, wanted, _ = await poll(read, is_whole)
    assert len(shown) == len(wanted)
    return shown


async def test_phoenix_has_a_trace_whole_with_its_content(phoenix: Phoenix, tmp_path: Path) -> None:
    environment = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": phoenix.otlp_grpc,
        "TRUNKLINE_CAPTURE_CONTENT": "true",
    }
    async with mesh_of(tmp_path, environment) as (mesh, traces):
        task = await ask(mesh, QUESTION)
        assert task["status"]["state"] == "TASK_STATE_COMPLETED", task
        shown = await trace_of(phoenix, traces, task, *SERVERS)

    (root,) = roots_of(shown)
    assert (root["name"], root["parent_id"]) == ("SendMessage", None)
    assert {span["status_code"] for span in shown} == {"UNSET"}

    # What its list of traces shows.
    assert root["span_kind"] == "CHAIN"
    assert root["attributes"]["input.value"] == QUESTION
    assert "36" in root["attributes"]["output.value"]
    supervisor = one(shown, "invoke_agent supervisor")
    assert supervisor["span_kind"] == "AGENT"
    assert supervisor["attributes"]["input.value"] == QUESTION
    tool = one(shown, "execute_tool calculate", "invoke_agent math")
    assert tool["span_kind"] == "TOOL"
    assert json.loads(tool["attributes"]["input.value"]) == {"expression": "15% of 240"}
    assert "36" in tool["attributes"]["output.value"]
    chats = [span for span in shown if span["name"] == "chat rules"]
    assert chats
    for chat in chats:
        assert chat["span_kind"] == "LLM"
        assert chat["attributes"]["input.value"]
        assert chat["attributes"]["output.value"]


async def test_phoenix_shows_what_failed_and_by_default_no_content(
    phoenix: Phoenix, tmp_path: Path
) -> None:
    # OTLP over HTTP. Phoenix takes no metrics and no logs.
    environment = {
        "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{phoenix.http}/v1/traces",
        "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf",
    }
    async with mesh_of(tmp_path, environment) as (mesh, traces):
        task = await ask(mesh, "100 ZZZ to EUR")
        assert task["status"]["state"] == "TASK_STATE_INPUT_REQUIRED", task
        shown = await trace_of(phoenix, traces, task, "currency")

    tool = one(shown, "execute_tool convert")
    assert (tool["span_kind"], tool["status_code"]) == ("TOOL", "ERROR")
    assert one(shown, "invoke_agent supervisor")["span_kind"] == "AGENT"
    assert not [span for span in shown if "ZZZ" in json.dumps(span["attributes"])]
