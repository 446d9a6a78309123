"""The metrics of messages between agents count what their spans show."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind

from harness.mesh.messages import Place, open_message_mesh, plain
from harness.mesh.recorded_spans import spans_in
from harness.mesh.small_mesh import PATIENCE_S
from harness.polling import wait_for
from harness.remote.measurements import Measurements, measuring
from trunkline import TaskContext, agent
from trunkline.messages.conversion import build_envelope
from trunkline.messages.store import EnvelopeFilter
from trunkline.tasks.messages import MeshMessage, Reply


@agent(name="teacher", description="Passes messages on.")
async def teacher(task: TaskContext) -> str:
    return task.text


@teacher.on("note")
async def note(task: TaskContext, message: MeshMessage) -> None:
    pass


@teacher.on("relay")
async def relay(task: TaskContext, message: MeshMessage) -> Reply:
    await task.request("plain", "from the teacher", type="user_message")
    await task.send("user:ann", "to ann", type="note")
    return Reply("relayed", type="answer")


def count_types(measured: Measurements) -> Mapping[str, float]:
    numbers = measured.of("messaging.client.sent.messages")
    assert {key[:-1] for key in numbers} <= {("trunkline", "send")}
    return {key[-1]: number for key, number in numbers.items()}


async def test_all_messages_of_agents_and_users_are_counted_and_have_a_span(
    tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Requests, replies, messages of handlers, rooms, several at once and replays; not notices."""
    recipients = ("room:den", "teacher", "user:bob")
    # The relay, and its replay, send four messages each. The note to the room is replayed once.
    expected = {"relay": 2, "user_message": 2, "answer": 4, "note": 6}
    with measuring() as measured, spans_in(InMemorySpanExporter(), monkeypatch) as memory:
        async with open_message_mesh(tmp_path, teacher, plain, **place) as mesh:
            client = mesh.client(caller="ann")
            await client.join("den", "teacher")
            go = build_envelope("go", type="relay", recipient="teacher")
            await client.request(go, timeout_s=PATIENCE_S)
            await client.send([build_envelope("x", type="note", recipient=to) for to in recipients])
            assert len(await client.replay(EnvelopeFilter(type="relay"))) == 1
            assert len(await client.replay(EnvelopeFilter(room="den"))) == 1
            await wait_for(lambda: count_types(measured) == expected)
            # The notice of who joined is the service's own.
            assert await mesh.listing(type="system")
    spans = Counter(
        (span.attributes or {})["trunkline.message.type"]
        for span in memory.get_finished_spans()
        if span.kind is SpanKind.PRODUCER
    )
    assert spans == expected
