"""Values are checked against schemas in a time that no pattern can stretch."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trunkline.workflows.schemas import build_validator


def find_faults(schema: dict[str, Any], value: object) -> list[str]:
    return [error.message for error in build_validator(schema).iter_errors(value)]


def test_a_pattern_takes_linear_time() -> None:
    # With backtracking, this would take longer than the universe is old.
    faults = find_faults({"pattern": "(a+)+$"}, "a" * 200 + "!")

    assert len(faults) == 1
    assert faults[0].endswith("does not match '(a+)+$'")
    assert find_faults({"pattern": "(a+)+$"}, "a" * 200) == []


def test_the_case_of_a_pattern_counts() -> None:
    assert find_faults({"pattern": "^A"}, "A") == []
    assert find_faults({"pattern": "^A"}, "a") == ["'a' does not match '^A'"]
    assert find_faults({"pattern": "^A"}, 1) == []


def test_a_pattern_that_re2_does_not_know_is_a_fault() -> None:
    (fault,) = find_faults({"pattern": "(?=a)"}, "a")

    assert fault.startswith("the pattern '(?=a)' can't be used: ")


@pytest.mark.parametrize(
    ("value", "faults"),
    [
        ({"x_a": 1, "known": "any"}, []),
        ({"x_a": "one"}, ["'one' is not of type 'integer'"]),
        ({"y": 1}, ["there is no property 'y'"]),
    ],
)
def test_properties_by_pattern_and_additional_ones(value: object, faults: list[str]) -> None:
    schema = {
        "properties": {"known": {}},
        "patternProperties": {"^x_": {"type": "integer"}},
        "additionalProperties": False,
    }

    assert find_faults(schema, value) == faults


def test_additional_properties_have_a_schema() -> None:
    schema = {"additionalProperties": {"type": "integer"}}

    assert find_faults(schema, {"a": 1, "b": "two"}) == ["'two' is not of type 'integer'"]


def test_an_optional_parser_of_uris_is_not_loaded_and_stays_usable(tmp_path: Path) -> None:
    (tmp_path / "rfc3987_syntax.py").write_text("is_valid_syntax = print('loaded')\n")
    program = (
        "from trunkline.workflows.schemas import build_validator\n"
        "build_validator({'type': 'string'}).validate('a')\n"
        "print('checked')\n"
        "import rfc3987_syntax\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )

    assert done.stdout.split() == ["checked", "loaded"]
