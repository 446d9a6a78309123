"""The JSON-RPC envelope: ids are echoed unchanged, and errors have one line."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.a2a_wire.errors import INVALID_PARAMS, WireError
from trunkline_bridge.a2a.versions.jsonrpc_envelope import (
    RequestId,
    encode_error,
    encode_result,
    error_object,
    find_request_id,
    parse_request,
)
from trunkline_bridge.http.messages import parse_json

VALID = {"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {}}


def test_a_valid_request_is_parsed() -> None:
    call = parse_request(VALID)
    assert (call.request_id, call.method, call.params) == (1, "GetTask", {})


def test_params_may_be_omitted() -> None:
    call = parse_request({"jsonrpc": "2.0", "id": "x", "method": "ListTasks"})
    assert call.params is None


@pytest.mark.parametrize("request_id", [0, -5, 2**80, 1.5, 1e300, "", "r-1", "é", None])
def test_ids_are_echoed_with_their_type(request_id: RequestId) -> None:
    assert find_request_id({**VALID, "id": request_id}) == request_id
    assert json.loads(encode_result(request_id, {}))["id"] == request_id


@pytest.mark.parametrize("request_id", [True, False, [], {}, ["a"]])
def test_other_ids_are_refused_and_not_echoed(request_id: object) -> None:
    value = {**VALID, "id": request_id}
    assert find_request_id(value) is None
    with pytest.raises(WireError, match="id must be") as caught:
        parse_request(value)
    assert caught.value.kind.rpc_code == -32600


def test_a_request_without_an_id_is_a_notification_but_a_null_id_is_not() -> None:
    assert parse_request({"jsonrpc": "2.0", "method": "SendMessage"}).is_notification
    assert not parse_request({**VALID, "id": None}).is_notification


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([VALID], "batches"),
        ([], "batches"),
        ("text", "JSON object"),
        (None, "JSON object"),
        (1, "JSON object"),
        ({}, "jsonrpc"),
        ({**VALID, "jsonrpc": "1.0"}, "jsonrpc"),
        ({**VALID, "jsonrpc": 2.0}, "jsonrpc"),
        ({"jsonrpc": "2.0", "id": 1}, "method"),
        ({"jsonrpc": "2.0"}, "method"),
        ({"method": "GetTask"}, "jsonrpc"),
        ({**VALID, "method": 5}, "method"),
        ({**VALID, "method": ""}, "method"),
    ],
)
def test_a_wrong_envelope_is_refused(value: Any, problem: str) -> None:
    with pytest.raises(WireError, match=problem) as caught:
        parse_request(value)
    assert caught.value.kind.rpc_code == -32600


def test_a_body_that_is_not_json_is_a_parse_error() -> None:
    with pytest.raises(WireError) as caught:
        parse_json(b"{nope")
    assert caught.value.kind.rpc_code == -32700


@given(st.integers(0, 60), st.binary(max_size=8))
def test_a_damaged_request_is_a_defined_error(offset: int, damage: bytes) -> None:
    valid = json.dumps(VALID).encode()
    code = 0
    try:
        parse_request(parse_json(valid[:offset] + damage + valid[offset + len(damage) :]))
    except WireError as error:
        code = error.kind.rpc_code
    assert code in {0, -32700, -32600}


def test_an_id_can_be_read_from_a_wrong_envelope() -> None:
    assert find_request_id({"id": "r-1", "method": 5}) == "r-1"
    assert find_request_id([VALID]) is None


def test_an_error_carries_its_details_as_an_array() -> None:
    error = WireError(INVALID_PARAMS, "x: is wrong", violations=(("x", "is wrong"),))
    body = json.loads(encode_error("r-1", error_object(error)))
    assert body["id"] == "r-1"
    assert body["error"]["code"] == -32602
    assert [detail["@type"].rpartition(".")[2] for detail in body["error"]["data"]] == [
        "ErrorInfo",
        "BadRequest",
    ]
    assert "result" not in body
