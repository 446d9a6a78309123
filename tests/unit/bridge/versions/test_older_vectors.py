"""The vectors of v0.3 and v0.1: the wire of journals, and the meaning of requests."""

import json
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from a2a.compat.v0_3 import types as v0_3_types
from google.protobuf import json_format

from trunkline.a2a.v1 import a2a_pb2
from trunkline.journal.fold import Fold
from trunkline.v1 import event_pb2
from trunkline_bridge.bindings import request_parser as params
from trunkline_bridge.projection import TaskProjection, project_task
from trunkline_bridge.versions.v0_1 import json_reader as v0_1_input
from trunkline_bridge.versions.v0_1 import json_writer as v0_1_json
from trunkline_bridge.versions.v0_3 import json_reader as v0_3_input
from trunkline_bridge.versions.v0_3 import json_writer as v0_3_json

Json: TypeAlias = dict[str, Any]

VECTORS = Path(__file__).parents[3] / "vectors"
JOURNALS = sorted((VECTORS / "projection").glob("*.json"))
CLIENT_ID = "chosen"


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("journal", JOURNALS, ids=lambda path: path.stem)
@pytest.mark.parametrize("version", ["v0_3", "v0_1"])
def test_a_journal_becomes_exactly_this_wire_and_this_task(journal: Path, version: str) -> None:
    expected = read(VECTORS / version / journal.name)
    shape = v0_3_json.V03EventWriter() if version == "v0_3" else v0_1_json.V01EventWriter(CLIENT_ID)
    batches = [
        json_format.ParseDict(one, event_pb2.EventBatch()) for one in read(journal)["batches"]
    ]
    projection, fold = TaskProjection(), Fold(batches[0].header.task_id)
    wire = []
    for batch in batches:
        fold.apply(batch)
        wire += [
            {"id": event.id, "events": list(shape.write_event(event.response))}
            for event in projection.apply(batch)
        ]
    assert wire == expected["wire"]
    task = project_task(fold.snapshot())
    shown = v0_1_json.task_json(task, client_id=CLIENT_ID)
    assert (v0_3_json.task_json(task) if version == "v0_3" else shown) == expected["task"]


def test_every_journal_has_its_wire_in_every_version() -> None:
    names = {path.name for path in JOURNALS}
    for version in ("v0_3", "v0_1"):
        assert {path.name for path in (VECTORS / version).glob("*.json")} == names


@pytest.mark.parametrize("journal", JOURNALS, ids=lambda path: path.stem)
def test_the_reference_client_finds_all_of_v0_3_in_its_own_models(journal: Path) -> None:
    expected = read(VECTORS / "v0_3" / journal.name)
    events = [event for one in expected["wire"] for event in one["events"]]
    for event in events:
        answer = {"jsonrpc": "2.0", "id": 1, "result": event}
        result = v0_3_types.SendStreamingMessageSuccessResponse.model_validate(answer).result
        assert result.model_dump(mode="json", by_alias=True, exclude_none=True) == event
    task = v0_3_types.Task.model_validate(expected["task"])
    assert task.model_dump(mode="json", by_alias=True, exclude_none=True) == expected["task"]


def core(expected: Json) -> a2a_pb2.SendMessageRequest:
    return json_format.ParseDict(expected, a2a_pb2.SendMessageRequest())


@pytest.mark.parametrize(
    "vector", read(VECTORS / "requests" / "v0_3.json"), ids=lambda vector: vector["about"]
)
def test_a_request_of_v0_3_asks_for_exactly_this(vector: Json) -> None:
    request = params.parse_send(v0_3_input.convert_send_params(vector["given"]))
    assert request == core(vector["core"])


@pytest.mark.parametrize(
    "vector", read(VECTORS / "requests" / "v0_1.json"), ids=lambda vector: vector["about"]
)
def test_a_request_of_v0_1_asks_for_exactly_this(vector: Json) -> None:
    client_id, given = v0_1_input.convert_send_params(vector["given"])
    request = params.parse_send(given)
    assert client_id == vector["client_id"]
    assert request.message.message_id
    request.message.message_id = ""
    assert request == core(vector["core"])
