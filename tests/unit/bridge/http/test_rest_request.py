"""Queries and bodies become the JSON of a message, or an error that names the field."""

from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.errors import INVALID_PARAMS, WireError
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
