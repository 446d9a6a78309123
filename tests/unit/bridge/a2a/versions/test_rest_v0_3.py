"""HTTP+JSON of v0.3: ProtoJSON of its messages, and the error fields that clients read."""

from typing import Any

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from trunkline.a2a.v0_3 import a2a_pb2 as old
from trunkline.a2a_wire.errors import TASK_NOT_FOUND, UNAVAILABLE, WireError
from trunkline.a2a_wire.v0_3.proto_json import V03ProtoEventWriter
from trunkline.core.json_values import parse_dict
from trunkline.v1 import artifact_pb2
from trunkline_bridge.a2a.projection import ArtifactView, FullEvent, TextDelta
from trunkline_bridge.a2a.streams.event_renderer import EventFrame, EventRenderer
from trunkline_bridge.a2a.versions.rest_routes import PathParams
from trunkline_bridge.a2a.versions.v0_3.rest_methods import RestV03


@given(st.text(), st.booleans())
def test_a_text_delta_is_written_like_any_other_event(text: str, is_last: bool) -> None:
    head = artifact_pb2.Artifact(artifact_id="a-1", name="näme")
    piece = TextDelta(12, 0, ArtifactView("t", "c", head), text, is_last)
    renderer = EventRenderer(V03ProtoEventWriter(), EventFrame("", "", lambda _: {}))
    rendered = renderer.render(piece)
    assert rendered == renderer.render(FullEvent(12, 0, piece.response))
    update = json_format.Parse(
        rendered.partition("data: ")[2], old.StreamResponse()
    ).artifact_update
    assert ([part.text for part in update.artifact.parts], update.append) == ([text], True)
    assert update.last_chunk is is_last


WEBHOOK = {"id": "c-1", "url": "https://example.org/hook"}
CREATIONS: list[dict[str, Any]] = [
    WEBHOOK,
    {"pushNotificationConfig": WEBHOOK},
    {"name": "tasks/t-1/pushNotificationConfigs/c-1", "push_notification_config": WEBHOOK},
    {"config": WEBHOOK},
    {"config": {"pushNotificationConfig": WEBHOOK}},
    {"parent": "tasks/t-1", "configId": "c-1", "config": {"pushNotificationConfig": WEBHOOK}},
]


VERSION = RestV03()


@pytest.mark.parametrize("body", CREATIONS)
def test_a_webhook_is_accepted_in_any_wrapping(body: dict[str, Any]) -> None:
    operation = VERSION.routes["/tasks/{task_id:segment}/pushNotificationConfigs"]["POST"]
    path = PathParams(task_id="t-1")
    parameters = VERSION.parameters(operation, dict(body), path)
    request = parse_dict(parameters, old.CreateTaskPushNotificationConfigRequest())
    assert request.parent == "tasks/t-1"
    assert request.config.push_notification_config.url == WEBHOOK["url"]


def test_an_error_has_the_fields_that_every_client_reads() -> None:
    body = VERSION.error_body(WireError(TASK_NOT_FOUND, "it isn't there", {"taskId": "t"}))
    assert (body["code"], body["message"], body["data"]) == (
        -32001,
        "it isn't there",
        {"taskId": "t"},
    )
    assert body["type"] == "TaskNotFoundError"
    assert (body["error"]["code"], body["error"]["status"]) == (404, "NOT_FOUND")
    assert VERSION.error_body(WireError(UNAVAILABLE, "later"))["type"] == ""
