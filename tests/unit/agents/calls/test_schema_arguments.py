"""Arguments as people write them, by the schema of a tool."""

from typing import Any

import pytest

from trunkline.agents.calls.schema_arguments import take_arguments

SCHEMA: dict[str, Any] = {
    "properties": {
        "item": {"type": "string"},
        "n": {"type": "integer", "minimum": 1, "maximum": 9},
        "from_unit": {"enum": ["m", "ft"]},
        "unit": {"enum": ["kg", "g"]},
        "urgent": {"type": "boolean"},
        "day": {"type": "string", "format": "date"},
        "extra": {"type": "object"},
    },
    "required": ["item"],
}


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("item: pear, n: 3", {"item": "pear", "n": 3}),
        ("item: pear n: 3", {"item": "pear", "n": 3}),
        ("item = pear; n = 3", {"item": "pear", "n": 3}),
        ("item pear and n 3", {"item": "pear", "n": 3}),
        ("item: salt and pepper", {"item": "salt and pepper"}),
        ("item: pears, apples", {"item": "pears, apples"}),
        ('item: "a, n: 3", n: 4', {"item": "a, n: 3", "n": 4}),
        ("the item: pear", {"item": "pear"}),
        ("item: pear, from unit: ft, unit: kg", {"item": "pear", "from_unit": "ft", "unit": "kg"}),
        ("item: pear\n3\nkg", {"item": "pear", "n": 3, "unit": "kg"}),
        ("item: pear, 3 n", {"item": "pear", "n": 3}),
        ("item: pear, urgent: yes", {"item": "pear", "urgent": True}),
        ("item: pear, 2026-07-28", {"item": "pear", "day": "2026-07-28"}),
        ('item: pear, extra: {"a": 1}', {"item": "pear", "extra": {"a": 1}}),
        ("n: 3, n: 4, item: pear", {"n": 4, "item": "pear"}),
    ],
)
def test_an_argument_is_named_or_fits_one_argument(text: str, arguments: dict[str, Any]) -> None:
    taken = take_arguments(text, SCHEMA)
    assert (taken.arguments, taken.rejected, taken.missing) == (arguments, {}, [])
