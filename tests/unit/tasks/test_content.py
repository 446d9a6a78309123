"""Mappings of authors are stored as JSON, or refused with ValueError."""

import math

import pytest

from trunkline.tasks.content import to_json, to_struct


@pytest.mark.parametrize(
    "values",
    [
        {"a": math.nan},
        {"a": -math.inf},
        {"a": object()},
        {"a": "\ud800"},
        {1: "a"},
        {"a": [{2: "b"}]},
    ],
)
def test_a_value_that_is_not_json_is_a_value_error(values: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"."):
        to_struct(values)


def test_whole_numbers_stay_integers() -> None:
    values = {"a": [1, 2.5, {"b": None, "c": True}], "d": "text"}
    struct = to_struct(values)
    assert struct is not None
    assert to_json(struct) == values
