"""Valid parameters are parsed; errors name the invalid field."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.a2a_wire.errors import WireError
from trunkline.v1 import event_pb2
from trunkline_bridge.a2a.operations import request_parser as params
from trunkline_bridge.a2a.operations.request_parser import parse_plain_send
from trunkline_bridge.callers.caller import parse_deadline, parse_tree

MESSAGE = {"messageId": "m-1", "role": "ROLE_USER", "parts": [{"text": "hi"}]}


def violated_fields(caught: pytest.ExceptionInfo[WireError]) -> list[str]:
    assert caught.value.kind.rpc_code == -32602
    return [name for name, _ in caught.value.violations]


HOOK = {"url": "https://x.example/hook", "token": "t"}


def test_v0_3_fields_of_the_release_candidates_are_accepted() -> None:
    content = {
        "message": MESSAGE,
        "configuration": {"blocking": False, "pushNotificationConfig": HOOK},
    }
    configuration = params.parse_send(content).configuration
    assert configuration.return_immediately
    assert configuration.task_push_notification_config.url == HOOK["url"]
    nested = {"taskPushNotificationConfig": {"pushNotificationConfig": HOOK}}
    request = params.parse_send({"message": MESSAGE, "configuration": nested})
    assert request.configuration.task_push_notification_config.token == "t"
    config = params.parse_create_push({"taskId": "t-1", "pushNotificationConfig": HOOK})
    assert (config.task_id, config.url, config.token) == ("t-1", HOOK["url"], "t")
    flat = {"taskId": "t-1", **HOOK, "pushNotificationConfig": {"url": "x", "id": "ignored"}}
    assert params.parse_create_push(flat).id == ""


@pytest.mark.parametrize(
    ("parse", "content", "fields"),
    [
        (params.parse_create_push, {}, ["taskId", "url"]),
        (params.parse_create_push, {"taskId": "t", "url": 5}, ["url"]),
        (params.parse_get_push, {"taskId": "t"}, ["id"]),
        (params.parse_delete_push, {"id": "c"}, ["taskId"]),
        (params.parse_list_pushes, {"pageSize": -1}, ["taskId", "pageSize"]),
    ],
)
def test_missing_webhook_fields_are_named(
    parse: Any, content: dict[str, Any], fields: list[str]
) -> None:
    with pytest.raises(WireError) as caught:
        parse(content)
    assert violated_fields(caught) == fields


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"messageId": 5}, "message.messageId: must be a string"),
        ({"messageId": ""}, "message.messageId: "),
        ({"messageId": True, "taskId": []}, "message.taskId: must be a string"),
        ({"role": "user"}, "message.role: must be ROLE_USER"),
        ({"role": "ROLE_AGENT"}, "message.role: must be ROLE_USER"),
        *(({"role": role}, "message.role: must be ROLE_USER") for role in (None, True, 7)),
        ({"parts": []}, "message.parts: "),
        ({"parts": "text"}, "message.parts: "),
        ({"parts": [{"text": "x"}, {}]}, "message.parts[1]: "),
        ({"parts": [{"kind": "text"}]}, "message.parts[0]: "),
        ({"parts": ["text"]}, "message.parts[0]: "),
        ({"parts": [{"text": 5}]}, "message.parts[0].text: "),
        ({"parts": [{"raw": "***"}]}, "message.parts[0].raw: "),
        ({"parts": [{"raw": "AAAAA"}]}, "message.parts[0].raw: "),
        ({"extensions": ["a", 1]}, "message.extensions[1]: must be a string"),
        ({"extensions": [None]}, "message.extensions[0]: must be a string"),
        ({"metadata": "x"}, "message.metadata: must be an object"),
        ({"parts": [{"raw": 1}]}, "message.parts[0].raw: must be a string in base64"),
        (
            {"parts": [{"text": "a", "url": "b"}]},
            "message.parts[0]: must have only one of text, url",
        ),
        ({"parts": [{"data": 10**308 * 10}]}, "params: a number is too large"),
        ({"message_id": "m", "parts": [{"text": "a"}, 5]}, "message.parts[1]: must be an object"),
    ],
)
def test_an_invalid_message_has_a_readable_error(changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(WireError) as caught:
        params.parse_send({"message": {**MESSAGE, **changes}})
    assert expected in str(caught.value)
    assert expected.partition(": ")[0] in violated_fields(caught)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        *(({"pageSize": size}, "pageSize: ") for size in (0, 101, -1, "many")),
        *(({"status": state}, "status: ") for state in ("TASK_STATE_WORKIN", 99)),
        *(
            ({"statusTimestampAfter": time}, "statusTimestampAfter: ")
            for time in ("2026-02-03", "2026-02-03T00:00:00")
        ),
        ({"historyLength": -1}, "historyLength: "),
        ({"includeArtifacts": "yes"}, "includeArtifacts: "),
        ({"pageSize": 1.5}, "pageSize: must be a whole number below 2^31"),
        ({"pageSize": True}, "pageSize: must be a whole number below 2^31"),
        ({"pageSize": 2**31}, "pageSize: must be a whole number below 2^31"),
        ({"includeArtifacts": 1}, "includeArtifacts: must be true or false"),
        ({"status": "working"}, "status: must be one of TASK_STATE_SUBMITTED, "),
        ({"statusTimestampAfter": 5}, "statusTimestampAfter: must be a time with its zone"),
        ({"pageSize": 3, "page_size": 3}, "params: must be those of this method"),
    ],
)
def test_an_invalid_filter_has_a_readable_error(content: dict[str, Any], expected: str) -> None:
    with pytest.raises(WireError) as caught:
        params.parse_list(content)
    assert str(caught.value).startswith(expected)
    assert expected.partition(": ")[0] in violated_fields(caught)


@pytest.mark.parametrize("content", [{"text": ""}, {"data": None}, {"raw": ""}, {"url": ""}])
def test_empty_content_is_content(content: dict[str, Any]) -> None:
    request = params.parse_send({"message": {**MESSAGE, "parts": [content]}})
    assert request.message.parts[0].WhichOneof("content") == next(iter(content))


def nested(levels: int, *, of: str) -> object:
    value: object = 1
    for _ in range(levels):
        value = {"a": value} if of == "objects" else [value]
    return value


@pytest.mark.parametrize("of", ["objects", "arrays"])
@pytest.mark.parametrize("levels", [1, 24, 25, 26, 27, 40, 59])
def test_content_too_deep_for_protobuf_is_refused(of: str, levels: int) -> None:
    content = {"message": {**MESSAGE, "parts": [{"data": nested(levels, of=of)}]}}
    refusal: WireError | None = None
    try:
        request = params.parse_send(content)
    except WireError as error:
        refusal = error
    if levels > 25:
        assert refusal is None or refusal.kind.rpc_code == -32602
    else:
        assert refusal is None
    if refusal is None:
        created = event_pb2.TaskCreated(message=request.message)
        batch = event_pb2.EventBatch(events=[event_pb2.Event(created=created)])
        assert event_pb2.EventBatch.FromString(batch.SerializeToString()) == batch


@given(
    st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
        lambda inner: st.one_of(
            st.lists(inner, max_size=3),
            st.dictionaries(
                st.sampled_from(["message", "messageId", "parts", "data", "raw", "role", "text"]),
                inner,
                max_size=4,
            ),
        ),
        max_leaves=15,
    )
)
def test_any_params_are_parsed_or_refused_as_invalid_params(content: object) -> None:
    code = 0
    try:
        params.parse_send(content)
    except WireError as error:
        code = error.kind.rpc_code
    assert code in {0, -32602}


def test_too_many_values_are_refused() -> None:
    data = {"message": {**MESSAGE, "parts": [{"data": [1] * 49_000}]}}
    assert len(params.parse_send(data).message.parts[0].data.list_value.values) == 49_000
    data = {"message": {**MESSAGE, "parts": [{"data": [[1] * 30_000, [1] * 30_000]}]}}
    with pytest.raises(WireError, match="more than 50000 values") as caught:
        params.parse_send(data)
    assert violated_fields(caught) == ["params"]


@pytest.mark.parametrize("header", ["", "soon", "0", "-1", "nan", "inf", "1e30"])
def test_an_invalid_timeout_is_refused(header: str) -> None:
    with pytest.raises(WireError) as caught:
        parse_deadline(header)
    assert violated_fields(caught) == ["Trunkline-Timeout"]


@pytest.mark.parametrize("header", ["!", "a", "AAAA", "CgEB" * 3000])
def test_an_invalid_tree_is_refused(header: str) -> None:
    with pytest.raises(WireError) as caught:
        parse_tree(header)
    assert violated_fields(caught) == ["Trunkline-Tree"]


texts = st.one_of(st.text(max_size=3), st.integers(), st.none())
plain_messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["ROLE_USER", "ROLE_USER", "ROLE_AGENT", 1]), "messageId": texts},
    optional={
        "contextId": texts,
        "taskId": texts,
        "parts": st.lists(
            st.one_of(
                st.fixed_dictionaries({"text": texts}),
                st.fixed_dictionaries({"text": st.text()}),
                st.fixed_dictionaries({"text": st.text(), "filename": st.text()}),
                st.fixed_dictionaries({"url": st.text()}),
            ),
            max_size=3,
        ),
        "unknown": st.none(),
    },
)
configurations = st.fixed_dictionaries(
    {},
    optional={
        "returnImmediately": st.one_of(st.booleans(), st.integers(0, 1)),
        "historyLength": st.one_of(st.integers(-1, 2), st.just(2**31), st.booleans()),
        "acceptedOutputModes": st.lists(texts, max_size=2),
    },
)


@given(
    st.fixed_dictionaries(
        {"message": plain_messages},
        optional={"configuration": configurations, "metadata": st.just({"k": 1})},
    )
)
def test_the_fast_path_returns_the_same_as_the_general_parser(content: Any) -> None:
    fast_result = parse_plain_send(content)
    # The general parser gives the same result as the fast one.
    assert fast_result is None or fast_result == params.parse_any_send(content)


def test_a_plain_message_takes_the_fast_path() -> None:
    configuration = {"returnImmediately": True, "historyLength": 3, "acceptedOutputModes": ["a/b"]}
    fast_result = parse_plain_send({"message": MESSAGE, "configuration": configuration})
    assert fast_result is not None
    assert fast_result.configuration.HasField("history_length")
    assert [part.text for part in fast_result.message.parts] == ["hi"]
    assert parse_plain_send({"message": {**MESSAGE, "metadata": {}}}) is None
