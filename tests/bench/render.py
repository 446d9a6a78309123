"""Measures the cost of rendering one text delta: `python tests/bench/render.py`, JSON on stdout.

`rendered` is the bridge's renderer, in each version of A2A over JSON-RPC; `projected_and_rendered`
includes the projection of a run of 100 texts; `generic` uses the general conversion of messages as
a plain bridge would, both in v1.0.
"""

import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence

from trunkline.a2a_wire.v0_1.json_writer import V01EventWriter
from trunkline.a2a_wire.v0_3.json_writer import V03EventWriter
from trunkline.a2a_wire.v1_0.json_writer import V1EventWriter
from trunkline.json_values import message_to_dict
from trunkline.v1 import artifact_pb2, event_pb2, snapshot_pb2
from trunkline_bridge.a2a.projection import TaskProjection, TextDelta, WireEvent
from trunkline_bridge.a2a.streams.event_renderer import EventRenderer, EventWriter
from trunkline_bridge.a2a.versions.jsonrpc_envelope import event_frame

RUN = 100
ROUNDS = 30
REPEATS = 100
TEXT = 'token “n°1” of an "answer" '


def make_snapshot() -> snapshot_pb2.TaskSnapshot:
    """Return a snapshot of a task with one growing artifact."""
    snapshot = snapshot_pb2.TaskSnapshot(sequence=5)
    snapshot.task.id = "abcdefgh-0123456789abcdef"
    snapshot.task.context_id = "0b8e7c9e-5f4f-4ad0-9a9a-2f9a1a4c7d11"
    snapshot.task.artifacts.append(artifact_pb2.Artifact(artifact_id="artifact-1", name="answer"))
    snapshot.artifacts.add(artifact_id="artifact-1", first_sequence=4)
    return snapshot


def make_text_run() -> event_pb2.EventBatch:
    """Return a run of texts as the emitter creates it under load."""
    header = event_pb2.BatchHeader(task_id="abcdefgh-0123456789abcdef", first_sequence=6, count=RUN)
    delta = event_pb2.ArtifactDelta(artifact_id="artifact-1", texts=[TEXT] * RUN)
    return event_pb2.EventBatch(header=header, events=[event_pb2.Event(delta=delta)])


def render_generic(event: WireEvent) -> str:
    """Render an event as a plain bridge does."""
    result = message_to_dict(event.response)
    body = {"jsonrpc": "2.0", "id": 1, "result": result}
    return f"id: {event.id}\ndata: {json.dumps(body, ensure_ascii=False)}\n\n"


def measure_us(work: Callable[[], object], *, events: int) -> dict[str, float]:
    """Return the time of one event in microseconds over all rounds; the first third warms up."""
    times_us = []
    for _ in range(ROUNDS):
        started_s = time.perf_counter()
        for _ in range(REPEATS):
            work()
        times_us.append((time.perf_counter() - started_s) / (REPEATS * events) * 1e6)
    warm = sorted(times_us[ROUNDS // 3 :])
    return {"best": round(warm[0], 3), "median": round(statistics.median(warm), 3)}


def measure_rendering(renderer: EventRenderer, events: Sequence[WireEvent]) -> dict[str, float]:
    """Return the time to render one event."""
    return measure_us(lambda: [renderer.render(event) for event in events], events=len(events))


def main() -> None:
    """Measure and print."""
    projection = TaskProjection(make_snapshot())
    batch = make_text_run()
    events = projection.apply(batch)
    assert all(isinstance(event, TextDelta) for event in events)
    renderer = EventRenderer(V1EventWriter(), event_frame(1))
    event_writers: dict[str, EventWriter] = {
        "v1.0": V1EventWriter(),
        "v0.3": V03EventWriter(),
        "v0.1": V01EventWriter("task-1"),
    }
    figures = {
        "rendered": {
            version: measure_rendering(EventRenderer(event_writer, event_frame(1)), events)
            for version, event_writer in event_writers.items()
        },
        "projected_and_rendered": measure_us(
            lambda: [renderer.render(event) for event in projection.apply(batch)], events=RUN
        ),
        "generic": measure_us(lambda: render_generic(events[0]), events=1),
    }
    environment = {
        "python": sys.version.split()[0],
        "machine": platform.machine(),
        "unit": "µs an event",
    }
    print(json.dumps({**environment, **figures}, ensure_ascii=False))


if __name__ == "__main__":
    main()
