"""Tests of the v0.3 and v0.1 vectors: wire events of journals, and parsed requests."""

import json
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from a2a.compat.v0_3 import types as v0_3_types

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.v0_1 import json_reader as v0_1_input
from trunkline.a2a_wire.v0_1 import json_writer as v0_1_json
from trunkline.a2a_wire.v0_3 import json_reader as v0_3_input
from trunkline.a2a_wire.v0_3 import json_writer as v0_3_json
from trunkline.journal.fold import Fold
from trunkline.json_values import parse_dict
from trunkline.v1 import event_pb2
from trunkline_bridge.a2a.operations import request_parser as params
from trunkline_bridge.a2a.projection import TaskProjection, project_task

Json: TypeAlias = dict[str, Any]

VECTORS = Path(__file__).parents[4] / "vectors"
JOURNALS = sorted((VECTORS / "projection").glob("*.json"))
CLIENT_ID = "chosen"


def load_json(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("journal", JOURNALS, ids=lambda path: path.stem)
@pytest.mark.parametrize("version", ["v0_3", "v0_1"])
def test_a_journal_is_projected_to_the_expected_events_and_task(
    journal: Path, version: str
) -> None:
    expected = load_json(VECTORS / version / journal.name)
    event_writer = (
        v0_3_json.V03EventWriter() if version == "v0_3" else v0_1_json.V01EventWriter(CLIENT_ID)
    )
    batches = [
        parse_dict(batch_json, event_pb2.EventBatch())
        for batch_json in load_json(journal)["batches"]
    ]
    projection, fold = TaskProjection(), Fold(batches[0].header.task_id)
    wire = []
    for batch in batches:
        fold.apply(batch)
        wire += [
            {"id": event.id, "events": list(event_writer.write_event(event))}
            for event in projection.apply(batch)
        ]
    assert wire == expected["wire"]
    task = project_task(fold.snapshot())
    v0_1_task = v0_1_json.task_json(task, client_id=CLIENT_ID)
    assert (v0_3_json.task_json(task) if version == "v0_3" else v0_1_task) == expected["task"]


def test_every_journal_has_a_vector_in_every_version() -> None:
    names = {path.name for path in JOURNALS}
    for version in ("v0_3", "v0_1"):
        assert {path.name for path in (VECTORS / version).glob("*.json")} == names


@pytest.mark.parametrize("journal", JOURNALS, ids=lambda path: path.stem)
def test_the_reference_clients_models_accept_every_v0_3_event(journal: Path) -> None:
    expected = load_json(VECTORS / "v0_3" / journal.name)
    events = [event for entry in expected["wire"] for event in entry["events"]]
    for event in events:
        answer = {"jsonrpc": "2.0", "id": 1, "result": event}
        result = v0_3_types.SendStreamingMessageSuccessResponse.model_validate(answer).result
        assert result.model_dump(mode="json", by_alias=True, exclude_none=True) == event
    task = v0_3_types.Task.model_validate(expected["task"])
    assert task.model_dump(mode="json", by_alias=True, exclude_none=True) == expected["task"]


def parse_expected(expected: Json) -> a2a_pb2.SendMessageRequest:
    return parse_dict(expected, a2a_pb2.SendMessageRequest())


@pytest.mark.parametrize(
    "vector", load_json(VECTORS / "requests" / "v0_3.json"), ids=lambda vector: vector["about"]
)
def test_a_v0_3_request_is_parsed_as_expected(vector: Json) -> None:
    request = params.parse_send(v0_3_input.convert_send_params(vector["given"]))
    assert request == parse_expected(vector["core"])


@pytest.mark.parametrize(
    "vector", load_json(VECTORS / "requests" / "v0_1.json"), ids=lambda vector: vector["about"]
)
def test_a_v0_1_request_is_parsed_as_expected(vector: Json) -> None:
    client_id, send_params = v0_1_input.convert_send_params(vector["given"])
    request = params.parse_send(send_params)
    assert client_id == vector["client_id"]
    assert request.message.message_id
    request.message.message_id = ""
    assert request == parse_expected(vector["core"])
