"""JSON of remote agents is parsed in all versions and spellings."""

from typing import Any

import pytest
from google.protobuf import json_format

from trunkline.a2a.v1 import a2a_pb2
from trunkline.v1 import task_pb2
from trunkline_bridge.client.json_reader import parse_stream_response, parse_task

MESSAGE = {"messageId": "m", "role": "agent", "parts": [{"kind": "text", "text": "hi"}]}


def shown(given: object) -> Any:
    return json_format.MessageToDict(parse_stream_response(given))


def test_v0_3_is_read_by_its_kinds() -> None:
    file = {"kind": "file", "file": {"bytes": "AAE=", "name": "f", "mimeType": "image/png"}}
    task = {
        "kind": "task",
        "id": "t",
        "contextId": "c",
        "status": {"state": "input-required", "message": MESSAGE, "timestamp": "yesterday"},
        "artifacts": [{"artifactId": "a", "parts": [file, {"kind": "data", "data": {"n": 1}}]}],
        "history": [{**MESSAGE, "role": "user"}],
    }
    said = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]}
    assert shown(task) == {
        "task": {
            "id": "t",
            "contextId": "c",
            "status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": said},
            "artifacts": [
                {
                    "artifactId": "a",
                    "parts": [
                        {"raw": "AAE=", "filename": "f", "mediaType": "image/png"},
                        {"data": {"n": 1.0}},
                    ],
                }
            ],
            "history": [{**said, "role": "ROLE_USER"}],
        }
    }
    assert shown({"kind": "message", **MESSAGE}) == {"message": said}
    update = {
        "kind": "status-update",
        "taskId": "t",
        "status": {"state": "canceled"},
        "final": True,
    }
    assert shown(update)["statusUpdate"]["status"] == {"state": "TASK_STATE_CANCELED"}
    chunk = {"kind": "artifact-update", "taskId": "t", "artifact": task["artifacts"][0]}  # type: ignore[index]
    assert shown({**chunk, "append": False, "lastChunk": True})["artifactUpdate"]["lastChunk"]


def test_what_has_no_kind_is_told_by_its_members() -> None:
    assert "task" in shown({"id": "t", "status": {"state": "working"}})
    assert "statusUpdate" in shown({"taskId": "t", "status": {"state": "working"}})
    assert "artifactUpdate" in shown({"taskId": "t", "artifact": {"artifactId": "a", "parts": []}})
    assert "message" in shown(MESSAGE)


@pytest.mark.parametrize(
    "state", ["TASK_STATE_CANCELED", "TASK_STATE_CANCELLED", "canceled", "cancelled", 5]
)
def test_a_state_may_be_spelled_as_any_version_spells_it(state: object) -> None:
    task = parse_task({"id": "t", "status": {"state": state}})
    assert task.status.state == task_pb2.TASK_STATE_CANCELED


def test_times_are_not_read_at_all() -> None:
    status = {"state": "TASK_STATE_WORKING", "timestamp": "2026-02-03 04:05"}
    assert not parse_task({"id": "t", "status": status}).status.HasField("timestamp")


def test_unknown_members_and_nulls_are_left_out() -> None:
    given: dict[str, Any] = {
        "task": {
            "kind": "task",
            "id": "t",
            "status": {"state": "TASK_STATE_WORKING", "message": None, "x": 1},
            "history": None,
            "new": {"a": []},
        },
        "message": None,
    }
    assert shown(given) == {"task": {"id": "t", "status": {"state": "TASK_STATE_WORKING"}}}


def test_a_task_may_be_wrapped() -> None:
    assert parse_task({"task": {"id": "t", "status": {"state": "working"}}}).id == "t"


@pytest.mark.parametrize(
    "artifact",
    [
        {"artifactId": "a", "parts": [{"text": "é\n\u2028"}]},
        {"artifactId": "a", "name": "n", "parts": [{"text": ""}]},
        {"artifactId": "a", "parts": [{"text": "a"}, {"text": "b"}]},
        {"artifactId": "a", "parts": [{"text": "a", "mediaType": "text/markdown"}]},
        {"artifactId": "a", "parts": []},
    ],
)
@pytest.mark.parametrize("flags", [{}, {"append": True}, {"append": False, "lastChunk": True}])
def test_pieces_of_text_are_read_as_anything_else_is(
    artifact: dict[str, Any], flags: dict[str, bool]
) -> None:
    given = {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact, **flags}}
    usual = json_format.ParseDict(given, a2a_pb2.StreamResponse())
    assert parse_stream_response(given) == usual


@pytest.mark.parametrize(
    "given",
    [
        None,
        [],
        "task",
        {},
        {"kind": "news"},
        {"kind": ["task"]},
        {"task": 7},
        {"task": {"id": "t"}},
        {"task": {"id": "t", "status": {"state": "asleep"}}},
        {"task": {"id": 7, "status": {"state": "working"}}},
        {"task": {"id": "t", "status": {"state": "working"}}, "message": MESSAGE},
        {"artifactUpdate": {"taskId": "t", "artifact": []}},
        {
            "artifactUpdate": {
                "taskId": {},
                "artifact": {"artifactId": "a", "parts": [{"text": "x"}]},
            }
        },
        {"artifactUpdate": {"artifact": {"artifactId": "a", "parts": [{"text": "\ud800"}]}}},
        {"artifactUpdate": {"artifact": {"artifactId": "a", "parts": [{"kind": "smell"}]}}},
        {"message": {"messageId": "m", "parts": "hi"}},
    ],
)
def test_what_has_no_meaning_is_a_value_error(given: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  each says something else
        parse_stream_response(given)


def test_what_is_wrong_is_said_without_content() -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the test checks its text
        parse_stream_response({"task": {"id": ["hush"], "status": {"state": "working"}}})
    assert "hush" not in str(caught.value)
