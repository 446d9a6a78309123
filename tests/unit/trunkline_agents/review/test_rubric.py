"""The checks of a text, its score, and the arithmetic statements in it."""

from fractions import Fraction
from pathlib import Path

import pytest
import yaml

import trunkline_agents.review
from trunkline_agents.review.arithmetic import MathResult, correct, find_statements, is_right
from trunkline_agents.review.rubric import (
    Rubric,
    check_arithmetic,
    check_text,
    describe_failures,
    score_checks,
)


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("It takes 12 * 5 = 60 seconds.", [("12 * 5", "60")]),
        ("12×5=60, and 9 ÷ 3 = 3.", [("12*5", "60"), ("9 / 3", "3")]),  # noqa: RUF001
        ("$1,200 + $300.50 = $1,500.50", [("1200 + 300.50", "$1,500.50")]),
        ("15% of 240 = 36 and 2 + 3 * 4 = 14", [("15% of 240", "36"), ("2 + 3 * 4", "14")]),
        ("it costs 3 x 4 = ?", [("3 * 4", "?")]),
        ("2 − 5 = −3", [("2 - 5", "−3")]),  # noqa: RUF001
        ("- 2 + 2 = 4\n- 2 + 2 = 4", [("2 + 2", "4")]),
        # Parts of longer expressions, variables, versions and dates are no statements.
        ("x * 3 + 4 = 10, x - 3 + 4 = 10", []),
        ("2 * (3 + 4) = 14, 3 + 4 = 2x, 3 + 4 = 5 + 2", []),
        ("version 1.2-3 of 2026-11-24, a = b", []),
    ],
)
def test_statements_are_found_in_a_text(text: str, statements: list[tuple[str, str]]) -> None:
    assert [(each.expression, each.result) for each in find_statements(text)] == statements


def test_long_texts_are_searched_at_once() -> None:
    assert find_statements("1+" * 10_000) == []
    assert find_statements("1" * 20_000) == []


@pytest.mark.parametrize(
    ("statement", "value", "right"),
    [
        ("10 / 3 = 3.33", Fraction(10, 3), True),
        ("10 / 3 = 3.34", Fraction(10, 3), False),
        # Rounding to less than two decimals is no result.
        ("10 / 3 = 3", Fraction(10, 3), False),
        ("12.1 * 5 = 60", Fraction(605, 10), False),
        ("3 / 20 = 15%", Fraction(3, 20), True),
        ("1000 * 1000 = 1,000,000", Fraction(10**6), True),
        ("2 - 5 = -3", Fraction(-3), True),
    ],
)
def test_a_statement_is_right_exactly_or_rounded(
    statement: str, value: Fraction, right: bool
) -> None:
    (found,) = find_statements(statement)
    assert is_right(found, value) is right


def test_a_correction_replaces_the_statement_only() -> None:
    text = "112 * 5 = 50, 12 * 5 = 50, 12 * 5 = 501"
    assert correct(text, [("12 * 5 = 50", "12 * 5 = 60")]) == (
        "112 * 5 = 50, 12 * 5 = 60, 12 * 5 = 501"
    )


def test_each_failed_check_costs_points_and_says_what_to_change() -> None:
    rubric = Rubric(
        min_words=10, max_words=20, required_terms=["Refund", "tax id"], forbidden_terms=["cheap"]
    )
    text = "A cheap refund, with the tax\nid number."
    checks = check_text(text, rubric)
    assert [(check.rule, check.cost) for check in checks] == [
        ("min_words", 20),
        ("max_words", 0),
        ("required_term", 0),
        ("required_term", 0),
        ("forbidden_term", 25),
    ]
    assert score_checks(checks) == 55
    assert describe_failures(checks) == (
        "It has 8 words; write at least 10.\nIt must not have 'cheap'."
    )
    assert score_checks(check_text("refunds", rubric)) == 10


def test_wrong_and_unknown_results_cost_points() -> None:
    statements = find_statements("12 * 5 = 50, $3 * 4 = $13, 1 / 0 = 7, 3 / 20 = 16%")
    answers = {
        "12 * 5": MathResult(Fraction(60), "60"),
        "3 * 4": MathResult(Fraction(12), "12"),
        "1 / 0": MathResult(None, "It divides by zero."),
        "3 / 20": MathResult(Fraction(3, 20), "0.15"),
    }
    checks = check_arithmetic(statements, answers)
    assert [check.correction for check in checks] == [
        "12 * 5 = 60",
        "$3 * 4 = $12",
        "",
        "3 / 20 = 15%",
    ]
    assert "can't be checked: It divides by zero." in checks[2].feedback
    assert score_checks(checks) == 0


def test_the_rubric_of_a_request_replaces_limits_and_adds_terms() -> None:
    house = Rubric(min_words=5, max_words=50, forbidden_terms=["cheap"])
    merged = house.merge(Rubric(max_words=20, forbidden_terms=["free"], arithmetic=False))
    assert merged == Rubric(
        min_words=5, max_words=20, forbidden_terms=["cheap", "free"], arithmetic=False
    )
    with pytest.raises(ValueError, match="max_words is below min_words"):
        house.merge(Rubric(max_words=2))


def test_the_inputs_of_the_workflow_take_the_fields_of_the_rubric() -> None:
    file = Path(trunkline_agents.review.__file__).with_name("review.yaml")
    inputs = yaml.safe_load(file.read_text(encoding="utf-8"))["inputs"]
    assert set(inputs["properties"]["rubric"]["properties"]) == set(Rubric.model_fields)
