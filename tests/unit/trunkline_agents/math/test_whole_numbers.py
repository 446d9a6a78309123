"""Whole numbers that are computed without SymPy are the results of SymPy."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from trunkline.errors import InvalidArgumentError
from trunkline_agents.math.operations import calculate
from trunkline_agents.math.parser import parse_expression
from trunkline_agents.math.size_limits import check_size
from trunkline_agents.math.whole_numbers import compute_whole_number

NUMBERS = st.sampled_from(["0", "1", "2", "3", "12", "0.5", "1.25", "15%", "1000000007"])
EXPRESSIONS = st.recursive(
    NUMBERS,
    lambda parts: st.one_of(
        st.builds("({} {} {})".format, parts, st.sampled_from("+-*/"), parts),
        st.builds("({})^{}".format, parts, st.sampled_from(["0", "1", "2", "(-1)", "0.5"])),
        st.builds("(-{})".format, parts),
    ),
    max_leaves=8,
)


@given(EXPRESSIONS)
def test_the_answer_is_that_of_sympy(expression: str) -> None:
    node = parse_expression(expression)
    try:
        check_size(node)
    except InvalidArgumentError:
        assume(False)
    number = compute_whole_number(node)
    if number is not None:
        answer = calculate(expression=expression, digits=None)
        assert answer.text == str(number)
        assert answer.data == {"exact": str(number), "approximation": None}


@pytest.mark.parametrize(
    ("expression", "number"),
    [
        ("1+2", 3),
        ("15% of 240", 36),
        ("(2+3)*4", 20),
        ("6/2", 3),
        ("(1/3)*3", 1),
        ("2^10", 1024),
        ("-5+3", -2),
    ],
)
def test_the_four_operations_and_powers_need_no_sympy(expression: str, number: int) -> None:
    assert compute_whole_number(parse_expression(expression)) == number


@pytest.mark.parametrize(
    "expression", ["7/2", "1/0", "0*(1/0)", "0^0", "0^(-1)", "4^0.5", "sqrt(4)", "x-x", "5!", "pi"]
)
def test_all_else_is_left_to_sympy(expression: str) -> None:
    assert compute_whole_number(parse_expression(expression)) is None
