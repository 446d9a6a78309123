"""A2A's form of ProtoJSON differs from that of json_format."""

from google.protobuf import timestamp_pb2

from trunkline.a2a_wire import json_values
from trunkline.a2a_wire.v1_0 import json_writer as v1_json
from trunkline.v1 import agent_card_pb2


def test_times_are_truncated_to_milliseconds() -> None:
    time = timestamp_pb2.Timestamp(seconds=1_700_000_000, nanos=123_999_999)
    assert json_values.format_timestamp(time) == "2023-11-14T22:13:20.123Z"
    assert json_values.format_timestamp(timestamp_pb2.Timestamp()) == "1970-01-01T00:00:00.000Z"


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
