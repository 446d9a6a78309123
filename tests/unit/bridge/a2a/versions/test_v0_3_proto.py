"""Conversion between v0.3's protobuf and the internal messages, compared with the reference SDK."""

from typing import Any

import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2, conversions, proto_utils
from a2a.types import a2a_pb2 as sdk_pb2
from google.protobuf.message import Message

from trunkline.a2a.v0_3 import a2a_pb2 as v0_3_pb2
from trunkline.a2a.v0_3 import task_pb2 as v0_3_task_pb2
from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.errors import WireError
from trunkline.a2a_wire.v0_3 import proto_card as card
from trunkline.a2a_wire.v0_3 import proto_reader, proto_writer
from trunkline.core.json_values import parse_dict, update_struct
from trunkline.v1 import agent_card_pb2, part_pb2, push_notification_pb2

PARTS: list[dict[str, Any]] = [
    {"text": "hello", "metadata": {"a": 1}},
    {"raw": "AP8Q", "filename": "f.bin", "mediaType": "application/octet-stream"},
    {"url": "https://files.example/f", "filename": "f", "mediaType": "text/plain"},
    {"data": {"a": [1, None, {"b": True}]}},
    {"data": [1, 2]},
    {"data": None, "metadata": {"flag": True}},
    {"data": "plain"},
]
MESSAGE = {
    "messageId": "m-1",
    "contextId": "c-1",
    "taskId": "t-1",
    "role": "ROLE_AGENT",
    "parts": PARTS,
    "metadata": {"k": "v"},
    "extensions": ["https://x.example/1"],
}
STATUS = {
    "state": "TASK_STATE_INPUT_REQUIRED",
    "message": MESSAGE,
    "timestamp": "2026-01-31T12:00:00.123Z",
}
ARTIFACT = {
    "artifactId": "a-1",
    "name": "answer",
    "description": "of it",
    "parts": PARTS,
    "metadata": {"k": 1},
    "extensions": ["https://x.example/1"],
}
IDS = {"taskId": "t-1", "contextId": "c-1"}
EVENTS: list[dict[str, Any]] = [
    {
        "task": {
            "id": "t-1",
            "contextId": "c-1",
            "status": STATUS,
            "artifacts": [ARTIFACT],
            "history": [MESSAGE],
            "metadata": {"k": "v"},
        }
    },
    {"message": MESSAGE},
    {"statusUpdate": {**IDS, "status": STATUS, "metadata": {"k": "v"}}},
    {"statusUpdate": {**IDS, "status": {"state": "TASK_STATE_CANCELED"}}},
    {"artifactUpdate": {**IDS, "artifact": ARTIFACT, "append": True, "lastChunk": True}},
]


def parse(content: dict[str, Any], converted: Message) -> Any:
    return parse_dict(content, converted)


def is_same_message(actual: Message, expected: Message) -> bool:
    return type(expected).FromString(actual.SerializeToString()) == expected


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: next(iter(event)))
def test_events_convert_as_in_the_reference_sdk(event: dict[str, Any]) -> None:
    actual = proto_writer.to_v0_3_stream_response(parse(event, a2a_pb2.StreamResponse()))
    compat = conversions.to_compat_stream_response(parse(event, sdk_pb2.StreamResponse()), "r-1")
    expected = proto_utils.ToProto.stream_response(compat.result)
    if actual.HasField("status_update"):
        # The SDK doesn't end a v0.3 stream at `input-required`, although its documents require it.
        assert actual.status_update.final
        expected.status_update.final = True
    assert is_same_message(actual, expected)


def test_raw_and_base64_files_are_read() -> None:
    for original, content in ((b"\x00\xff", b"\x00\xff"), (b"AP8=", b"\x00\xff"), (b"a b", b"a b")):
        part = v0_3_task_pb2.Part(file=v0_3_task_pb2.FilePart(file_with_bytes=original, name="f"))
        assert proto_reader.from_v0_3_part(part) == part_pb2.Part(raw=content, filename="f")


@pytest.mark.parametrize(
    ("state", "is_final"),
    [
        ("SUBMITTED", False),
        ("WORKING", False),
        ("AUTH_REQUIRED", False),
        ("INPUT_REQUIRED", True),
        ("COMPLETED", True),
        ("FAILED", True),
        ("CANCELED", True),
        ("REJECTED", True),
    ],
)
def test_a_status_is_final_if_the_stream_ends_after_it(state: str, is_final: bool) -> None:
    event = {"statusUpdate": {**IDS, "status": {"state": f"TASK_STATE_{state}"}}}
    converted = proto_writer.to_v0_3_stream_response(parse(event, a2a_pb2.StreamResponse()))
    assert converted.status_update.final is is_final


def test_a_send_request_converts_completely() -> None:
    request = v0_3_pb2.SendMessageRequest(
        request=v0_3_task_pb2.Message(message_id="m-1", role=v0_3_task_pb2.ROLE_USER),
        configuration=v0_3_pb2.SendMessageConfiguration(
            accepted_output_modes=["text/plain"],
            blocking=True,
            history_length=3,
            push_notification=v0_3_task_pb2.PushNotificationConfig(
                id="p-1",
                url="https://hook.example",
                token="secret",
                authentication=v0_3_task_pb2.AuthenticationInfo(
                    schemes=["Bearer", "Basic"], credentials="c"
                ),
            ),
        ),
    )
    request.request.content.add(text="hello")
    update_struct(request.metadata, {"k": "v"})
    core = proto_reader.from_v0_3_send(request)
    assert core == parse(
        {
            "message": {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hello"}]},
            "configuration": {
                "acceptedOutputModes": ["text/plain"],
                "historyLength": 3,
                "taskPushNotificationConfig": {
                    "id": "p-1",
                    "url": "https://hook.example",
                    "token": "secret",
                    "authentication": {"scheme": "Bearer", "credentials": "c"},
                },
            },
            "metadata": {"k": "v"},
        },
        a2a_pb2.SendMessageRequest(),
    )


def test_a_send_blocks_without_configuration_and_returns_immediately_without_blocking() -> None:
    assert not proto_reader.from_v0_3_send(
        v0_3_pb2.SendMessageRequest()
    ).configuration.return_immediately
    request = v0_3_pb2.SendMessageRequest(configuration=v0_3_pb2.SendMessageConfiguration())
    assert proto_reader.from_v0_3_send(request).configuration.return_immediately
    assert not proto_reader.from_v0_3_send(request).configuration.HasField("history_length")


@pytest.mark.parametrize("name", ["", "t-1", "tasks/", "tasks/a/b", "x/tasks/a"])
def test_a_name_without_a_task_is_refused_by_its_field(name: str) -> None:
    with pytest.raises(WireError) as caught:
        proto_reader.from_v0_3_cancel(v0_3_pb2.CancelTaskRequest(name=name))
    assert caught.value.violations == (("name", "must be tasks/TASK"),)


def test_the_id_of_a_webhook_is_read_from_any_of_its_fields() -> None:
    config = v0_3_task_pb2.PushNotificationConfig(url="https://hook.example")
    for request, expected in (
        ({"config_id": "p-1"}, "p-1"),
        ({"config": {"name": "tasks/t-1/pushNotificationConfigs/p-2"}}, "p-2"),
        ({"config": {"push_notification_config": {"id": "p-3"}}}, "p-3"),
        ({}, ""),
    ):
        original = parse(
            request, v0_3_pb2.CreateTaskPushNotificationConfigRequest(parent="tasks/t-1")
        )
        original.config.push_notification_config.url = config.url
        core = proto_reader.from_v0_3_create_push(original)
        assert (core.task_id, core.id, core.url) == ("t-1", expected, config.url)


def test_a_webhook_converts_as_in_the_reference_sdk() -> None:
    content = {
        "taskId": "t-1",
        "id": "p-1",
        "url": "https://hook.example",
        "token": "x",
        "authentication": {"scheme": "Bearer", "credentials": "c"},
    }
    core = parse(content, push_notification_pb2.TaskPushNotificationConfig())
    compat = conversions.to_compat_task_push_notification_config(
        parse(content, sdk_pb2.TaskPushNotificationConfig())
    )
    actual = proto_writer.to_v0_3_push_config(core)
    assert is_same_message(actual, proto_utils.ToProto.task_push_notification_config(compat))
    page = a2a_pb2.ListTaskPushNotificationConfigsResponse(configs=[core], next_page_token="n")
    listed = proto_writer.to_v0_3_push_configs(page)
    assert (list(listed.configs), listed.next_page_token) == ([actual], "n")


CARD = {
    "name": "echo",
    "description": "says it again",
    "version": "1",
    "supportedInterfaces": [
        {"url": "https://a.example/1", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
        {"url": "https://a.example/", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
        {"url": "a.example:443", "protocolBinding": "GRPC", "protocolVersion": "0.3"},
    ],
    "provider": {"url": "https://a.example", "organization": "A"},
    "documentationUrl": "https://a.example/doc",
    "iconUrl": "https://a.example/icon",
    "capabilities": {
        "streaming": True,
        "pushNotifications": True,
        "extendedAgentCard": True,
        "extensions": [{"uri": "https://x.example/1", "description": "x", "params": {"p": 1}}],
    },
    "securitySchemes": {
        "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key"}},
        "jwt": {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}},
        "oauth": {
            "oauth2SecurityScheme": {
                "flows": {
                    "authorizationCode": {
                        "authorizationUrl": "https://a.example/authorize",
                        "tokenUrl": "https://a.example/token",
                        "scopes": {"read": "to read"},
                    }
                }
            }
        },
        "mtls": {"mtlsSecurityScheme": {"description": "a certificate"}},
    },
    "securityRequirements": [{"schemes": {"oauth": {"list": ["read"]}}}],
    "defaultInputModes": ["text/plain"],
    "defaultOutputModes": ["text/plain"],
    "skills": [
        {
            "id": "s",
            "name": "says",
            "description": "again",
            "tags": ["t"],
            "examples": ["x"],
            "securityRequirements": [{"schemes": {"jwt": {}}}],
        }
    ],
}


def test_a_card_converts_as_in_the_reference_sdk() -> None:
    actual = card.to_v0_3_agent_card(parse(CARD, agent_card_pb2.AgentCard()))
    compat = conversions.to_compat_agent_card(parse(CARD, sdk_pb2.AgentCard()))
    expected = proto_utils.ToProto.agent_card(compat)
    converted_request = a2a_v0_3_pb2.AgentCard.FromString(actual.SerializeToString())
    # The SDK's conversion to v0.3's protobuf loses the icon.
    assert converted_request.icon_url == "https://a.example/icon"
    converted_request.icon_url = expected.icon_url
    assert converted_request == expected


def test_newer_security_schemes_are_omitted_from_a_v0_3_card() -> None:
    original = parse(
        {
            "securitySchemes": {
                "device": {
                    "oauth2SecurityScheme": {
                        "flows": {"deviceCode": {"tokenUrl": "https://a.example/token"}}
                    }
                }
            }
        },
        agent_card_pb2.AgentCard(),
    )
    converted = card.to_v0_3_agent_card(original)
    assert not converted.url
    flows = converted.security_schemes["device"].oauth2_security_scheme.flows
    assert flows.WhichOneof("flow") is None
    assert not flows.SerializeToString()
