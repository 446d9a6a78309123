"""JSON that would be too much work, or that our messages cannot hold, is refused at once."""

from typing import Any

import pytest

from trunkline.core.json_values import build_struct, struct_json
from trunkline.tools.json_limits import find_json_problem


def nest(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([0] * 100, "has more than 50 values"),
        ({str(number): 0 for number in range(50)}, "has more than 50 values"),
        ([[0] * 10] * 10, "has more than 50 values"),
        ({"maximum": 10**400}, "has a number that is out of range"),
        ([-(10**400)], "has a number that is out of range"),
        ([float("nan")], "has a number that is out of range"),
        ({"a": float("inf")}, "has a number that is out of range"),
        (nest(28), "is nested too deeply"),
        (nest(27), ""),
        ({"a": [1, 2.5, True, None, "text"]}, ""),
        (None, ""),
    ],
)
def test_the_first_problem_is_named(value: object, problem: str) -> None:
    assert find_json_problem(value, limit_values=50) == problem


class CountedList(list[object]):
    """A list that counts how often its items are read."""

    reads = 0

    def __iter__(self) -> Any:
        self.reads += 1
        return super().__iter__()


def test_what_is_too_large_is_not_walked() -> None:
    values = CountedList([0] * 1000)
    assert find_json_problem([values], limit_values=999) == "has more than 999 values"
    assert values.reads == 0


def test_every_accepted_number_fits_into_our_messages() -> None:
    largest = int(float.fromhex("0x1.fffffffffffffp+1023"))
    assert find_json_problem([largest, -largest], limit_values=50) == ""
    assert find_json_problem([largest + 1], limit_values=50) != ""
    assert struct_json(build_struct({"a": largest})) == {"a": largest}
