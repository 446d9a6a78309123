"""The projection of each journal in the vectors equals the expected wire events."""

import json
from pathlib import Path
from typing import Any

import pytest

from trunkline.a2a_wire.v1_0 import json_writer as v1_json
from trunkline.journal.fold import Fold
from trunkline.json_values import parse_dict
from trunkline.v1 import event_pb2
from trunkline_bridge.a2a.projection import TaskProjection, project_task

VECTORS = sorted((Path(__file__).parents[4] / "vectors" / "projection").glob("*.json"))


@pytest.fixture(params=VECTORS, ids=lambda path: path.stem)
def vector(request: pytest.FixtureRequest) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(request.param.read_text(encoding="utf-8"))
    return content


def parse_batches(vector: dict[str, Any]) -> list[event_pb2.EventBatch]:
    return [parse_dict(batch, event_pb2.EventBatch()) for batch in vector["batches"]]


def test_a_journal_is_projected_to_the_expected_wire_events(vector: dict[str, Any]) -> None:
    projection = TaskProjection()
    wire = [
        {"id": event.id, "event": v1_json.stream_response_json(event.response)}
        for batch in parse_batches(vector)
        for event in projection.apply(batch)
    ]
    assert wire == vector["wire"]


def test_a_fold_is_projected_to_the_expected_task(vector: dict[str, Any]) -> None:
    batches = parse_batches(vector)
    fold = Fold(batches[0].header.task_id)
    for batch in batches:
        fold.apply(batch)
    assert v1_json.task_json(project_task(fold.snapshot())) == vector["task"]


def test_there_is_a_vector_for_every_kind_of_journal() -> None:
    cases = {path.stem for path in VECTORS}
    assert cases >= {
        "cancel",
        "echo_count",
        "fail",
        "input_required",
        "parts",
        "plan",
        "reject",
        "rewind",
        "sub_agent_answer",
        "supervisor_eight_children",
        "supervisor_of_supervisors",
        "supervisor_one_child",
        "supervisor_two_children",
        "tools",
    }
