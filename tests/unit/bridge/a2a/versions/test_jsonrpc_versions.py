"""The version of a JSON-RPC call, and the errors of each version."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

import pytest

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire import errors
from trunkline.a2a_wire.errors import WireError, invalid_params
from trunkline.a2a_wire.protocol import LAST_EVENT_ID_KEY
from trunkline.a2a_wire.v0_1 import json_reader as v0_1_input
from trunkline.a2a_wire.v0_3 import json_reader as v0_3_input
from trunkline.errors import TaskNotFoundError
from trunkline_bridge.a2a.bindings.jsonrpc import JsonRpcVersions
from trunkline_bridge.a2a.operations import request_parser as params
from trunkline_bridge.a2a.operations.operation_table import StreamMethod
from trunkline_bridge.a2a.projection import FullEvent
from trunkline_bridge.a2a.streams.task_streams import WireEvents
from trunkline_bridge.a2a.versions.jsonrpc_version import with_cursor_from_metadata
from trunkline_bridge.a2a.versions.v0_1 import jsonrpc_methods as v0_1
from trunkline_bridge.a2a.versions.v0_3 import jsonrpc_methods as v0_3
from trunkline_bridge.a2a.versions.v1_0 import json_methods as v1_0
from trunkline_bridge.callers.caller import Caller
from trunkline_bridge.callers.version_header import parse_version
from trunkline_bridge.http.in_flight import Peer

Json: TypeAlias = dict[str, Any]

SERVED = ("1.0", "0.3", "0.1")


def versions(*, is_strict: bool = False) -> JsonRpcVersions:
    # The tests call no method that needs aliases.
    no_aliases: Any = None
    return JsonRpcVersions(
        v1_0.JSONRPC,
        v0_3.JSONRPC,
        v0_1.build_jsonrpc(no_aliases),
        is_strict=is_strict,
    )


class Headers:
    """Headers of a request, with at most a version."""

    peer = Peer()

    def __init__(self, version: str | None = None) -> None:
        self._version = version

    def get(self, name: bytes) -> str | None:
        return self._version if name == b"a2a-version" else None


@pytest.mark.parametrize(
    ("content", "query", "expected"),
    [
        (None, b"", ""),
        ("", b"", ""),
        ("  ", b"", ""),
        ("1.0", b"", "1.0"),
        (" 0.3 ", b"", "0.3"),
        ("0.3.26", b"", "0.3"),
        ("1.0.1", b"A2A-Version=0.3", "1.0"),
        (None, b"A2A-Version=0.1", "0.1"),
        (None, b"x=y&A2A-Version=0.3.0", "0.3"),
    ],
)
def test_versions_are_read_from_the_header_or_the_query(
    content: str | None, query: bytes, expected: str
) -> None:
    assert parse_version(Headers(content), query, served=SERVED) == expected


@pytest.mark.parametrize(
    "content", ["2.0", "1.1", "1", "latest", "1.0.0.0", "\N{ARABIC-INDIC DIGIT ONE}.0", "1.0, 0.3"]
)
def test_other_versions_are_refused_with_the_served_ones(content: str) -> None:
    with pytest.raises(WireError) as caught:
        parse_version(Headers(content), served=SERVED)
    assert caught.value.kind is errors.VERSION_NOT_SUPPORTED
    assert caught.value.metadata == {"supportedVersions": "1.0, 0.3, 0.1"}


ROWS = [row for row in vars(errors).values() if isinstance(row, errors.ErrorKind)]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.reason)
def test_older_versions_use_only_their_own_codes(row: errors.ErrorKind) -> None:
    codes = {
        version: protocol.error_object(WireError(row, "x"))["code"]
        for version, protocol in BY_VERSION.items()
    }
    assert codes["1.0"] == row.rpc_code
    is_known = row.rpc_code not in range(-32099, -32000)
    if is_known or row.rpc_code >= -32005:
        assert codes["0.1"] == row.rpc_code
    else:
        assert codes["0.1"] == -32603
    if is_known or row.rpc_code >= -32007 or row is errors.VERSION_NOT_SUPPORTED:
        assert codes["0.3"] == row.rpc_code
    else:
        assert codes["0.3"] == -32603


BY_VERSION = versions().by_version


def test_errors_name_the_fields_of_the_version() -> None:
    error = invalid_params(
        ("message.parts[0].raw", "must be a string in base64"),
        ("message.role", "must be ROLE_USER"),
        ("configuration.taskPushNotificationConfig.url", "is required"),
        ("message.contextId", "must be a string"),
    )
    fields = {
        version: [
            violation["field"]
            for violation in protocol.error_object(error)["data"][1]["fieldViolations"]
        ]
        for version, protocol in BY_VERSION.items()
    }
    assert fields["0.3"] == [
        "message.parts[0].file.bytes",
        "message.role",
        "configuration.pushNotificationConfig.url",
        "message.contextId",
    ]
    assert fields["0.1"] == [
        "message.parts[0].file.bytes",
        "message.role",
        "pushNotification.url",
        "sessionId",
    ]
    assert "must be user" in BY_VERSION["0.3"].error_object(error)["message"]
    assert "ROLE_USER" in BY_VERSION["1.0"].error_object(error)["message"]


MESSAGE: Json = {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": "x"}]}


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ("text", "params"),
        ({}, "message.messageId"),
        ({"message": "hi"}, "message"),
        ({"message": {**MESSAGE, "kind": "task"}}, "message.kind"),
        ({"message": {**MESSAGE, "role": "agent"}}, "message.role"),
        ({"message": {**MESSAGE, "role": 5}}, "message.role"),
        ({"message": {**MESSAGE, "parts": []}}, "message.parts"),
        ({"message": {**MESSAGE, "parts": "x"}}, "message.parts"),
        ({"message": {**MESSAGE, "parts": ["x"]}}, "message.parts[0]"),
        ({"message": {**MESSAGE, "parts": [{}]}}, "message.parts[0]"),
        ({"message": {**MESSAGE, "parts": [{"kind": "sound"}]}}, "message.parts[0].kind"),
        ({"message": {**MESSAGE, "parts": [{"kind": ["text"]}]}}, "message.parts[0].kind"),
        ({"message": {**MESSAGE, "parts": [{"kind": "file"}]}}, "message.parts[0].file"),
        ({"message": {**MESSAGE, "parts": [{"kind": "file", "file": {}}]}}, "message.parts[0]"),
        (
            {"message": {**MESSAGE, "parts": [{"file": {"bytes": "", "uri": "x"}}]}},
            "message.parts[0]",
        ),
        (
            {"message": {**MESSAGE, "parts": [{"file": {"bytes": "%"}}]}},
            "message.parts[0].file.bytes",
        ),
        ({"message": {**MESSAGE, "parts": [{"kind": "data"}]}}, "message.parts[0]"),
        ({"message": MESSAGE, "configuration": []}, "configuration"),
        ({"message": MESSAGE, "configuration": {"blocking": "no"}}, "configuration.blocking"),
        (
            {"message": MESSAGE, "configuration": {"historyLength": -1}},
            "configuration.historyLength",
        ),
        (
            {"message": MESSAGE, "configuration": {"pushNotificationConfig": 5}},
            "configuration.pushNotificationConfig",
        ),
        (
            {
                "message": MESSAGE,
                "configuration": {"pushNotificationConfig": {"url": "x", "authentication": "y"}},
            },
            "configuration.pushNotificationConfig.authentication",
        ),
        (
            {
                "message": MESSAGE,
                "configuration": {
                    "pushNotificationConfig": {"url": "x", "authentication": {"schemes": [5]}}
                },
            },
            "configuration.pushNotificationConfig.authentication.scheme",
        ),
    ],
)
def test_an_invalid_v0_3_request_is_reported_by_field(content: object, field: str) -> None:
    with pytest.raises(WireError) as caught:
        params.parse_send(v0_3_input.convert_send_params(content))
    error = BY_VERSION["0.3"].error_object(caught.value)
    assert error["code"] == -32602
    assert error["data"][1]["fieldViolations"][0]["field"] == field


@pytest.mark.parametrize(
    ("content", "field"),
    [
        (None, "params"),
        ({"message": MESSAGE}, "id"),
        ({"id": 5, "message": MESSAGE}, "id"),
        ({"id": "", "message": MESSAGE}, "id"),
        ({"id": "é" * 251, "message": MESSAGE}, "id"),
        ({"id": "t"}, "message"),
        ({"id": "t", "message": {**MESSAGE, "role": "agent"}}, "message.role"),
        ({"id": "t", "message": {**MESSAGE, "parts": None}}, "message.parts"),
        ({"id": "t", "message": MESSAGE, "sessionId": 5}, "sessionId"),
        ({"id": "t", "message": MESSAGE, "historyLength": "x"}, "historyLength"),
        ({"id": "t", "message": MESSAGE, "pushNotification": "x"}, "pushNotification"),
    ],
)
def test_an_invalid_v0_1_request_is_reported_by_field(content: object, field: str) -> None:
    with pytest.raises(WireError) as caught:
        params.parse_send(v0_1_input.convert_send_params(content).params)
    error = BY_VERSION["0.1"].error_object(caught.value)
    assert error["code"] == -32602
    assert error["data"][1]["fieldViolations"][0]["field"] == field


class LostTask:
    """Aliases and operations of one task that disappears while its stream is read."""

    async def find(self, _caller: Caller, _client_id: str) -> str:
        return "jrnl0000-t"

    @asynccontextmanager
    async def subscribe_to_task(
        self, _caller: Caller, request: a2a_pb2.SubscribeToTaskRequest
    ) -> AsyncIterator[WireEvents]:
        yield self._events(request.id)

    async def _events(self, task_id: str) -> WireEvents:
        yield [FullEvent(1, 0, a2a_pb2.StreamResponse())]
        raise TaskNotFoundError(task_id)


async def test_an_error_within_a_v0_1_stream_has_the_clients_task_id() -> None:
    lost_task: Any = LostTask()
    caller = Caller(agent="echo", version="0.1")
    method = v0_1.build_jsonrpc(lost_task).methods["tasks/resubscribe"]
    assert isinstance(method, StreamMethod)
    _, opening = method.open(lost_task, caller, {"id": "chosen"})
    async with opening as events:
        assert len(await anext(events)) == 1
        with pytest.raises(WireError) as caught:
            await anext(events)
    assert caught.value.metadata == {"taskId": "chosen"}
    assert "jrnl0000" not in caught.value.text


def test_a_cursor_is_read_from_the_metadata_of_a_request() -> None:
    caller = Caller(agent="echo", version="0.3")
    content = {"id": "t", "metadata": {LAST_EVENT_ID_KEY: "3.0"}}
    assert with_cursor_from_metadata(caller, content).last_event_id == "3.0"
    with_header = caller._replace(last_event_id="2.0")
    assert with_cursor_from_metadata(with_header, content).last_event_id == "2.0"
    empty: list[object] = [None, {}, {"metadata": 5}, {"metadata": {}}]
    assert all(with_cursor_from_metadata(caller, value) is caller for value in empty)
    with pytest.raises(WireError, match="must be a string"):
        with_cursor_from_metadata(caller, {"metadata": {LAST_EVENT_ID_KEY: 3}})
