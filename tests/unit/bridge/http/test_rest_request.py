"""Queries and bodies become the JSON of a message, or an error that names the field."""

from typing import Any
from urllib.parse import quote, urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.errors import INVALID_PARAMS, WireError
from trunkline.v1 import task_pb2
from trunkline_bridge.a2a.operations import request_parser as params
from trunkline_bridge.a2a.versions.rest_routes import put_path_field
from trunkline_bridge.http.handler import HttpRequest
from trunkline_bridge.http.messages import RequestHeaders
from trunkline_bridge.http.requests import read_body, read_query

LIST = a2a_pb2.ListTasksRequest.DESCRIPTOR.fields
SEND = a2a_pb2.SendMessageConfiguration.DESCRIPTOR.fields
NAMES = [field.json_name for field in LIST]


def read_list(query: str) -> a2a_pb2.ListTasksRequest:
    return params.parse_list(read_query(query.encode("utf-8"), LIST))


def wrong_fields(error: WireError) -> set[str]:
    assert error.kind is INVALID_PARAMS
    return {name for name, _ in error.violations}


def refused_fields(query: bytes) -> set[str]:
    """Return the fields that the error names; none if the query is valid."""
    try:
        params.parse_list(read_query(query, LIST))
    except WireError as error:
        return wrong_fields(error)
    return set()


def test_every_list_filter_is_read_from_the_query() -> None:
    request = read_list(
        "contextId=c%201&status=TASK_STATE_WORKING&pageSize=7&pageToken=a%2Bb&historyLength=0"
        "&statusTimestampAfter=2026-02-03T00%3A00%3A00.000Z&includeArtifacts=true&A2A-Version=1.0"
    )
    assert (request.context_id, request.status) == ("c 1", task_pb2.TASK_STATE_WORKING)
    assert (request.page_size, request.page_token) == (7, "a+b")
    assert request.HasField("history_length")
    assert request.status_timestamp_after.seconds == 1770076800
    assert request.include_artifacts is True


def test_protobuf_names_are_accepted_and_empty_values_ignored() -> None:
    request = read_list("page_size=7&status=&historyLength=&include_artifacts=false")
    assert (request.page_size, request.HasField("history_length")) == (7, False)


def test_lists_are_repeated_or_have_commas() -> None:
    query = b"acceptedOutputModes=text/plain,image/png&acceptedOutputModes=a"
    assert read_query(query, SEND) == {"acceptedOutputModes": ["text/plain", "image/png", "a"]}


@pytest.mark.parametrize(
    ("query", "field"),
    [
        *(("pageSize=ten", "pageSize"), ("pageSize=0", "pageSize"), ("pageSize=101", "pageSize")),
        *(("historyLength=-1", "historyLength"), ("historyLength=1.5", "historyLength")),
        *(("status=working", "status"), ("includeArtifacts=True", "includeArtifacts")),
        ("statusTimestampAfter=2026-02-03T00:00:00", "statusTimestampAfter"),
        ("statusTimestampAfter=2026-02-03T00:00:00+02:00", "statusTimestampAfter"),
        *(("pageSize=1&page_size=1", "pageSize"), ("contextId=%FF", "contextId")),
    ],
)
def test_an_invalid_value_is_refused_by_its_name(query: str, field: str) -> None:
    with pytest.raises(WireError) as caught:
        read_list(query)
    assert wrong_fields(caught.value) == {field}


VALUES = st.one_of(
    st.text(max_size=12),
    st.integers().map(str),
    st.sampled_from(["true", "false", "TASK_STATE_FAILED", "2026-02-03T00:00:00Z", "%zz", "1e3"]),
)


@given(st.lists(st.tuples(st.sampled_from([*NAMES, "other"]), VALUES), max_size=6))
def test_any_query_is_parsed_or_refused_by_its_names(pairs: list[tuple[str, str]]) -> None:
    query = urlencode(pairs).encode("ascii")
    assert refused_fields(query) <= {name for name, _ in pairs} - {"other"}


@given(st.binary(max_size=60))
def test_any_bytes_are_parsed_or_refused(query: bytes) -> None:
    assert refused_fields(b"pageSize=" + query) <= set(NAMES)


def test_a_field_of_the_path_must_not_differ_in_the_body() -> None:
    task_id = a2a_pb2.CancelTaskRequest.DESCRIPTOR.fields_by_name["id"]
    for body_id in ("t-1", "", None):
        body: dict[str, Any] = {"id": body_id, "metadata": {}}
        put_path_field(body, task_id, "t-1")
        assert body == {"id": "t-1", "metadata": {}}
    config = a2a_pb2.GetTaskPushNotificationConfigRequest.DESCRIPTOR.fields_by_name["task_id"]
    for name in ("taskId", "task_id"):
        with pytest.raises(WireError) as caught:
            put_path_field({name: "other"}, config, "t-1")
        assert wrong_fields(caught.value) == {"taskId"}


def make_request(body: bytes, **headers: str) -> HttpRequest:
    raw_headers = [(name.replace("_", "-").encode(), v.encode()) for name, v in headers.items()]
    scope = {"type": "http", "headers": raw_headers}
    return HttpRequest(scope, RequestHeaders(scope), body)


async def test_no_body_is_an_empty_object_except_from_a_web_page() -> None:
    assert await read_body(make_request(b"")) == {}
    assert await read_body(make_request(b" \n", content_type="application/json")) == {}
    assert (
        await read_body(make_request(b"", content_type="application/json", origin="https://x"))
        == {}
    )
    with pytest.raises(WireError) as caught:
        await read_body(make_request(b"", origin="https://x"))
    assert caught.value.kind.http_status == 415


@pytest.mark.parametrize("kind", ["application/json", "application/a2a+json; charset=utf-8", ""])
async def test_bodies_are_json_objects(kind: str) -> None:
    assert await read_body(make_request(b'{"a": 1}', content_type=kind)) == {"a": 1}
    assert await read_body(make_request(b"null", content_type=kind)) == {}
    for body in (b"[]", b"1", b'"x"'):
        with pytest.raises(WireError) as caught:
            await read_body(make_request(body, content_type=kind))
        assert wrong_fields(caught.value) == {"body"}
    with pytest.raises(WireError) as caught:
        await read_body(make_request(b"{", content_type=kind))
    assert caught.value.kind.rpc_code == -32700


def test_a_tenant_in_a_query_is_read() -> None:
    assert read_query(f"tenant={quote('b l')}".encode(), LIST) == {"tenant": "b l"}
