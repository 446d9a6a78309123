"""A2A's form of ProtoJSON differs from that of json_format."""

from google.protobuf import timestamp_pb2

from trunkline.a2a_wire import json_values
from trunkline.a2a_wire.v1_0 import json_writer as v1_json
from trunkline.json_values import parse_dict
from trunkline.v1 import agent_card_pb2, json_pb2, message_pb2, part_pb2, task_pb2


def parse_message(**part: object) -> message_pb2.Message:
    wire = {"messageId": "m-1", "role": "ROLE_USER", "parts": [part]}
    return parse_dict(wire, message_pb2.Message())


def test_required_fields_are_written_even_if_empty() -> None:
    assert v1_json.task_json(task_pb2.Task()) == {
        "id": "",
        "status": {"state": "TASK_STATE_UNSPECIFIED"},
    }
    assert v1_json.message_json(message_pb2.Message()) == {
        "messageId": "",
        "role": "ROLE_UNSPECIFIED",
        "parts": [],
    }


def test_empty_artifacts_are_written_only_on_request() -> None:
    assert "artifacts" not in v1_json.task_json(task_pb2.Task())
    assert v1_json.task_json(task_pb2.Task(), with_artifacts=True)["artifacts"] == []


def test_every_kind_of_part_round_trips() -> None:
    parts = [
        part_pb2.Part(text=""),
        part_pb2.Part(raw=b"\x00\xff\xfe", filename="a.bin", media_type="application/x"),
        part_pb2.Part(url="https://example.org/x"),
        part_pb2.Part(data=json_pb2.Value(null_value=json_pb2.NULL_VALUE_UNSPECIFIED)),
        part_pb2.Part(data=json_pb2.Value(string_value="text")),
        part_pb2.Part(data=json_pb2.Value(bool_value=False)),
    ]
    for part in parts:
        message = message_pb2.Message(message_id="m", role=message_pb2.ROLE_USER, parts=[part])
        parsed = parse_dict(v1_json.message_json(message), message_pb2.Message())
        assert parsed == message


def test_integers_have_no_fraction_and_other_numbers_keep_theirs() -> None:
    data = {"n": 7, "half": 0.5, "big": 1e300, "list": [1, -2.0, None, True]}
    (part,) = v1_json.message_json(parse_message(data=data))["parts"]
    assert part == {"data": data}
    assert isinstance(part["data"]["n"], int)
    assert isinstance(part["data"]["big"], float)


def test_times_are_truncated_to_milliseconds() -> None:
    time = timestamp_pb2.Timestamp(seconds=1_700_000_000, nanos=123_999_999)
    assert json_values.format_timestamp(time) == "2023-11-14T22:13:20.123Z"
    assert json_values.format_timestamp(timestamp_pb2.Timestamp()) == "1970-01-01T00:00:00.000Z"


def test_line_separators_are_escaped() -> None:
    text = json_values.dumps({"text": "é\u2028\x85\n"})
    assert text == '{"text":"é\\u2028\\u0085\\n"}'


def test_a_card_has_all_required_fields() -> None:
    card = agent_card_pb2.AgentCard(skills=[agent_card_pb2.AgentSkill(id="s")])
    assert v1_json.agent_card_json(card) == {
        "name": "",
        "description": "",
        "version": "",
        "supportedInterfaces": [],
        "capabilities": {},
        "defaultInputModes": [],
        "defaultOutputModes": [],
        "skills": [{"id": "s", "name": "", "description": "", "tags": []}],
    }


def test_all_fields_of_a_message_are_written() -> None:
    wire = {
        "messageId": "m-1",
        "contextId": "c",
        "taskId": "t",
        "role": "ROLE_AGENT",
        "parts": [{"text": "x", "metadata": {"k": "v"}}],
        "metadata": {"a": [{}]},
        "extensions": ["https://example.org/e"],
        "referenceTaskIds": ["t-0"],
    }
    message = parse_dict(wire, message_pb2.Message())
    assert v1_json.message_json(message) == wire
