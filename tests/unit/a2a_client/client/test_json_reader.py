"""JSON from remote agents is parsed in all versions and spellings."""

from typing import Any

import pytest

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.response_reader import parse_stream_response, parse_task
from trunkline.core.json_values import message_to_dict, parse_dict
from trunkline.v1 import task_pb2

MESSAGE = {"messageId": "m", "role": "agent", "parts": [{"kind": "text", "text": "hi"}]}


def parse_to_dict(content: object) -> Any:
    return message_to_dict(parse_stream_response(content))


def test_v0_3_json_is_parsed_by_kind() -> None:
    file = {"kind": "file", "file": {"bytes": "AAE=", "name": "f", "mimeType": "image/png"}}
    task = {
        "kind": "task",
        "id": "t",
        "contextId": "c",
        "status": {"state": "input-required", "message": MESSAGE, "timestamp": "yesterday"},
        "artifacts": [{"artifactId": "a", "parts": [file, {"kind": "data", "data": {"n": 1}}]}],
        "history": [{**MESSAGE, "role": "user"}],
    }
    message = {"messageId": "m", "role": "ROLE_AGENT", "parts": [{"text": "hi"}]}
    assert parse_to_dict(task) == {
        "task": {
            "id": "t",
            "contextId": "c",
            "status": {"state": "TASK_STATE_INPUT_REQUIRED", "message": message},
            "artifacts": [
                {
                    "artifactId": "a",
                    "parts": [
                        {"raw": "AAE=", "filename": "f", "mediaType": "image/png"},
                        {"data": {"n": 1.0}},
                    ],
                }
            ],
            "history": [{**message, "role": "ROLE_USER"}],
        }
    }
    assert parse_to_dict({"kind": "message", **MESSAGE}) == {"message": message}
    update = {
        "kind": "status-update",
        "taskId": "t",
        "status": {"state": "canceled"},
        "final": True,
    }
    assert parse_to_dict(update)["statusUpdate"]["status"] == {"state": "TASK_STATE_CANCELED"}
    chunk = {"kind": "artifact-update", "taskId": "t", "artifact": task["artifacts"][0]}  # type: ignore[index]
    assert parse_to_dict({**chunk, "append": False, "lastChunk": True})["artifactUpdate"][
        "lastChunk"
    ]


def test_json_without_a_kind_is_parsed_by_its_members() -> None:
    assert "task" in parse_to_dict({"id": "t", "status": {"state": "working"}})
    assert "statusUpdate" in parse_to_dict({"taskId": "t", "status": {"state": "working"}})
    assert "artifactUpdate" in parse_to_dict(
        {"taskId": "t", "artifact": {"artifactId": "a", "parts": []}}
    )
    assert "message" in parse_to_dict(MESSAGE)


@pytest.mark.parametrize(
    "state", ["TASK_STATE_CANCELED", "TASK_STATE_CANCELLED", "canceled", "cancelled", 5]
)
def test_states_of_every_version_are_parsed(state: object) -> None:
    task = parse_task({"id": "t", "status": {"state": state}})
    assert task.status.state == task_pb2.TASK_STATE_CANCELED


def test_timestamps_are_ignored() -> None:
    status = {"state": "TASK_STATE_WORKING", "timestamp": "2026-02-03 04:05"}
    assert not parse_task({"id": "t", "status": status}).status.HasField("timestamp")


def test_unknown_members_and_nulls_are_ignored() -> None:
    content: dict[str, Any] = {
        "task": {
            "kind": "task",
            "id": "t",
            "status": {"state": "TASK_STATE_WORKING", "message": None, "x": 1},
            "history": None,
            "new": {"a": []},
        },
        "message": None,
    }
    assert parse_to_dict(content) == {
        "task": {"id": "t", "status": {"state": "TASK_STATE_WORKING"}}
    }


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
def test_text_pieces_are_parsed_like_other_events(
    artifact: dict[str, Any], flags: dict[str, bool]
) -> None:
    content = {"artifactUpdate": {"taskId": "t", "contextId": "c", "artifact": artifact, **flags}}
    expected = parse_dict(content, a2a_pb2.StreamResponse())
    assert parse_stream_response(content) == expected


@pytest.mark.parametrize(
    "content",
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
def test_invalid_json_is_a_value_error(content: object) -> None:
    with pytest.raises(ValueError):  # noqa: PT011  the texts differ
        parse_stream_response(content)


def test_an_error_does_not_repeat_content() -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  the test checks its text
        parse_stream_response({"task": {"id": ["hush"], "status": {"state": "working"}}})
    assert "hush" not in str(caught.value)
