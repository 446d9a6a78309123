"""JSON of any shape passes through our messages exactly, and their bytes are Google's."""

import json
import sys
from typing import Any

import pytest
from a2a.types import a2a_pb2 as sdk_pb2
from google.protobuf import json_format, struct_pb2
from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.json_values import (
    build_value,
    find_exact_number,
    message_to_dict,
    parse_dict,
    serialize_for_a2a,
    value_json,
)
from trunkline.errors import UnsupportedOperationError
from trunkline.v1 import json_pb2, message_pb2, part_pb2

LARGEST = int(sys.float_info.max)
texts = st.text(st.characters(codec="utf-8"), max_size=4)
# Doubles hold these, and JSON readers read them as they were written.
plain_numbers = st.one_of(
    st.integers(-(2**53), 2**53),
    st.floats(allow_nan=False, allow_infinity=False).filter(lambda number: number % 1),
)
numbers = st.one_of(
    plain_numbers,
    st.integers(-LARGEST, LARGEST),
    st.integers(-(2**65), 2**65),
    st.floats(allow_nan=False, allow_infinity=False),
    st.integers(-9, 9).map(float),
)


def documents(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """JSON with these numbers, of which members have any order."""
    return st.recursive(
        st.one_of(st.none(), st.booleans(), texts, leaves),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=12,
    )


def as_text(value: object) -> str:
    """Return JSON as text, which tells 1 from 1.0 and true, and has the order of the members."""
    return json.dumps(value)


@given(documents(numbers))
def test_json_comes_back_exactly_and_in_order(value: Any) -> None:
    data = build_value(value).SerializeToString()
    assert as_text(value_json(json_pb2.Value.FromString(data))) == as_text(value)


@given(documents(numbers))
def test_messages_that_hold_json_are_written_and_read_exactly(value: Any) -> None:
    fields = {"parts": [{"data": value, "metadata": {"z": value, "a": 1}}, {"text": "t"}]}
    message = parse_dict(json.loads(json.dumps(fields)), message_pb2.Message())
    assert as_text(message_to_dict(message)) == as_text(fields)


@given(documents(plain_numbers))
def test_google_reads_our_bytes_and_we_read_googles(value: Any) -> None:
    theirs = json_format.ParseDict(value, struct_pb2.Value())
    assert struct_pb2.Value.FromString(build_value(value).SerializeToString()) == theirs
    back = json_pb2.Value.FromString(theirs.SerializeToString())
    # Google's maps have no order.
    assert value_json(back) == value


@given(documents(plain_numbers))
def test_our_json_of_a_message_is_that_of_json_format(value: Any) -> None:
    part = part_pb2.Part(data=build_value(value), filename="f")
    theirs = sdk_pb2.Part.FromString(part.SerializeToString())
    assert message_to_dict(part) == json_format.MessageToDict(theirs)


@given(documents(numbers))
def test_what_google_would_round_is_refused_by_its_path_and_nothing_else_is(value: Any) -> None:
    part = part_pb2.Part(data=build_value({"inner": [value]}))
    if path := find_exact_number(part, part.SerializeToString()):
        assert path.startswith("data.inner[0]")
        with pytest.raises(UnsupportedOperationError, match=r"data\.inner\[0\]"):
            serialize_for_a2a(part)
    else:
        theirs = sdk_pb2.Part.FromString(serialize_for_a2a(part))
        assert json_format.MessageToDict(theirs)["data"] == {"inner": [value]}


def test_a_repeated_key_is_its_last_member_as_in_googles_map() -> None:
    twice = json_pb2.Struct(
        members=[json_pb2.Member(key="a", value=build_value(number)) for number in (1, 2)]
    )
    theirs = struct_pb2.Struct.FromString(twice.SerializeToString())
    assert message_to_dict(twice) == dict(theirs) == {"a": 2}


@pytest.mark.parametrize(
    "fields",
    [
        {"parts": [{"data": 1, "text": "t"}]},
        {"parts": [{"data": float("nan")}]},
        {"parts": [{"data": {"a": object()}}]},
        {"parts": [None]},
        {"parts": ["text"]},
        {"parts": {}},
        {"metadata": []},
        {"metadata": "text"},
    ],
)
def test_what_does_not_fit_is_a_parse_error(fields: dict[str, Any]) -> None:
    with pytest.raises(json_format.ParseError):
        parse_dict(fields, message_pb2.Message())
