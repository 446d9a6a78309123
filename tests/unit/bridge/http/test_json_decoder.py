"""JSON from clients is decoded strictly, and invalid JSON is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline_bridge.http.json_decoder import (
    MAX_NESTING,
    decode_json,
    has_more_values,
    nesting_depth,
)

json_values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(2**70), 2**70),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(),
    ),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text(), inner)),
    max_leaves=20,
)


@given(json_values)
def test_json_round_trips(value: object) -> None:
    assert decode_json(json.dumps(value).encode()) == value
    assert decode_json(json.dumps(value, ensure_ascii=False).encode("utf-8")) == value


@given(st.binary())
def test_any_bytes_are_decoded_or_refused(body: bytes) -> None:
    refusal = ""
    try:
        value = decode_json(body)
    except ValueError as error:
        refusal = str(error)
    assert refusal or json.dumps(value)


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "Expecting value"),
        (b"{", "line 1"),
        (b'{"a":1}x', "Extra data"),
        (b"\xff", "not UTF-8 at byte 0"),
        (b'"\xed\xa0\x80"', "not UTF-8"),
        (b'{"a":NaN}', "NaN is not JSON"),
        (b"[-Infinity]", "Infinity is not JSON"),
        (b"1e999", "too large"),
        (b"1" * 400, "too large"),
        (b"1" * 5000, "too large"),
        (b'{"a":1,"a":2}', "same name twice"),
        (b'{"x":{"a":1,"\\u0061":2}}', "same name twice"),
        (b'"\\ud800"', "unpaired surrogate"),
        (b'{"\\uDC00x":1}', "unpaired surrogate"),
        (b"[" * 101 + b"]" * 101, "nested deeper"),
        (b'{"a":' * 101 + b"1" + b"}" * 101, "nested deeper"),
        (b"[" * 200_000, "nested deeper"),
        (b"[" * 200_000 + b"]" * 200_000, "nested deeper"),
        (b"'single'", "Expecting value"),
        (b'"a\nb"', "control character"),
    ],
)
def test_invalid_or_ambiguous_json_is_refused(body: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        decode_json(body)


def test_nesting_up_to_the_limit_is_accepted() -> None:
    body = b"[" * MAX_NESTING + b"]" * MAX_NESTING
    assert nesting_depth(decode_json(body)) == MAX_NESTING


def test_whole_characters_may_be_escaped() -> None:
    assert decode_json(b'"\\ud83d\\ude00"') == "\U0001f600"


def test_values_are_counted_on_every_level() -> None:
    value = {"a": [1, 2, {"b": []}], "c": "text"}
    assert [has_more_values(value, limit) for limit in (0, 5, 6, 7)] == [True, True, False, False]
    assert not has_more_values("text", 0)


def test_breadth_does_not_count_as_depth() -> None:
    assert nesting_depth([[], [], {"a": []}] * 1000) == 3
    assert nesting_depth("plain") == 0
