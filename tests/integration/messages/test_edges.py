"""Edges of the mesh that messages draw, from the spans of a messaging service."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from harness.agents.teacher import teacher
from harness.mesh.messages import open_message_mesh, plain
from harness.mesh.recorded_spans import spans_in
from trunkline.mesh.client.mesh_words import edge_kind
from trunkline.messages.conversion import build_envelope
from trunkline.observe.traces.edges import EdgeWindow
from trunkline.observe.traces.spans import read_records
from trunkline.v1 import trace_service_pb2


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    with spans_in(InMemorySpanExporter(), monkeypatch) as exporter:
        yield exporter


def list_edges(memory: InMemorySpanExporter) -> list[trace_service_pb2.Edge]:
    """Return the edges of messages among the spans so far."""
    window = EdgeWindow()
    window.add(read_records(encode_spans(memory.get_finished_spans()).resource_spans), now_s=0)
    return [edge for edge in window.list_edges(now_s=0) if edge_kind(edge) == "message"]


@pytest.mark.parametrize("recipient", ["room:den", "broadcast"])
async def test_a_message_to_a_room_is_an_edge_to_it_and_from_it_to_each_member(
    tmp_path: Path, memory: InMemorySpanExporter, recipient: str
) -> None:
    async with open_message_mesh(tmp_path, teacher, plain) as mesh:
        client = mesh.client()
        for agent in ("teacher", "plain"):
            await client.join("den", agent)
        memory.clear()
        envelope = build_envelope("1", type="quiet", recipient=recipient, id="1", room="den")
        await client.send([envelope])
        await mesh.ended("1")
    edges = list_edges(memory)
    assert {(edge.source, edge.target) for edge in edges} == {
        ("client", "room:den"), ("room:den", "teacher"), ("room:den", "plain"),
    }  # fmt: skip
    assert all(edge.p95_ms > 0 for edge in edges)


async def test_messages_to_agents_and_to_rooms_without_members_are_no_edges_of_rooms(
    tmp_path: Path, memory: InMemorySpanExporter
) -> None:
    async with open_message_mesh(tmp_path, teacher, plain) as mesh:
        client = mesh.client()
        await client.join("den", "plain")
        await client.send(
            [
                build_envelope("1", type="quiet", recipient="teacher", id="1", room="den"),
                build_envelope("2", recipient="room:invented", id="2"),
            ]
        )
        await mesh.ended("1")
    assert [(edge.source, edge.target) for edge in list_edges(memory)] == [("client", "teacher")]
