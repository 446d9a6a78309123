from dataclasses import dataclass
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trunkline.errors import InvalidArgumentError
from trunkline_agents.math.parser import (
    CONSTANTS,
    FUNCTIONS,
    parse_equation,
    parse_expression,
    parse_variable,
)
from trunkline_agents.math.size_limits import check_size
from trunkline_agents.math.syntax import (
    Constant,
    Equation,
    FunctionCall,
    Negation,
    Node,
    Number,
    Power,
    Product,
    Reciprocal,
    Sum,
    Variable,
    has_decimals,
)


def integer(value: int) -> Number:
    return Number(Fraction(value))


X = Variable("x")
PERCENT = Number(Fraction(1, 100), is_decimal=True)


@dataclass(frozen=True)
class Case:
    text: str
    tree: Node


@pytest.mark.parametrize(
    "case",
    [
        Case("1+2", Sum((integer(1), integer(2)))),
        Case("1 - 2", Sum((integer(1), Negation(integer(2))))),
        Case("2*x", Product((integer(2), X))),
        Case("5x", Product((integer(5), X))),
        Case("2(3+4)", Product((integer(2), Sum((integer(3), integer(4)))))),
        Case("x sin(x)", Product((X, FunctionCall("sin", (X,))))),
        Case("1/2x", Product((integer(1), Reciprocal(integer(2)), X))),
        Case("-x^2", Negation(Power(X, integer(2)))),
        Case("--x", X),
        Case("x**2", Power(X, integer(2))),
        Case("2^3^x", Power(integer(2), Power(integer(3), X))),
        Case("2^-x", Power(integer(2), Negation(X))),
        Case("5!", FunctionCall("factorial", (integer(5),))),
        Case("x!^2", Power(FunctionCall("factorial", (X,)), integer(2))),
        Case("15%", Product((integer(15), PERCENT))),
        Case("15% of 240", Product((Product((integer(15), PERCENT)), integer(240)))),
        Case("0.5", Number(Fraction(1, 2), is_decimal=True)),
        Case(".5", Number(Fraction(1, 2), is_decimal=True)),
        Case("2.5e-3", Number(Fraction(1, 400), is_decimal=True)),
        Case("2e", Product((integer(2), Constant("e")))),
        Case(
            "3\N{MULTIPLICATION SIGN}4÷2", Product((integer(3), integer(4), Reciprocal(integer(2))))
        ),
        Case("x² \N{MINUS SIGN} π", Sum((Power(X, integer(2)), Negation(Constant("pi"))))),
        Case("√2x", Product((FunctionCall("sqrt", (integer(2),)), X))),
        Case("1,200", integer(1200)),
        Case("gcd(12, 18)", FunctionCall("gcd", (integer(12), integer(18)))),
        Case("Sin(PI)", FunctionCall("sin", (Constant("pi"),))),
        Case("arcsin(x)", FunctionCall("asin", (X,))),
        Case("I", Constant("i")),
        Case("E", Variable("E")),
    ],
    ids=lambda case: case.text,
)
def test_an_expression_is_parsed_as_people_mean_it(case: Case) -> None:
    assert parse_expression(case.text) == case.tree


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("__import__('os').system('id')", "can't be part of an expression. Allowed are"),
        ("().__class__", "can't be part"),
        ("x.real", "can't be part"),
        ("'abc'", "can't be part"),
        ('"abc"*5', "can't be part"),
        ("lambda: 1", "can't be part"),
        ("[1,2]", "can't be part"),
        ("eval(1)", "'eval' is not known here. Allowed are"),
        ("foo + 1", "'foo' is not known here"),
        ("1,00", "Write 1000 for 1,000"),
        ("5 % 3", r"write mod\(5, 3\)"),
        ("5!!", "ambiguous"),
        ("3 of 4", "needs a percentage"),
        ("1 2", "operator is missing"),
        ("2 + sin", r"sin needs something to work on, in parentheses: sin\(x\)"),
        ("sqrt 16", r"in parentheses: sqrt\(x\)"),
        ("80 off 20", "'off' is not known here"),
        ("gcd(12)", "gcd takes 2 to 20 arguments, not 1"),
        ("1+", "expected at the end"),
        ("(1", "'\\)' was expected at the end"),
        ("1)", "one too many"),
        ("x=1", "makes it an equation"),
        ("1e99999", "too large or too small"),
        ("", "is empty"),
        ("   ", "is empty"),
        ("1\x00", r"U\+0000 can't"),
        ("(" * 500, "nested too deeply"),
        ("√" * 500, "nested too deeply"),
        ("2^" * 400 + "2", "nested too deeply"),
        ("sin(" * 100 + "1" + ")" * 100, "nested too deeply"),
        ("1+" * 900 + "1", "too many parts"),
        ("1" * 1_000_000, "too long: 1,000,000 characters"),
    ],
    ids=lambda text: text[:20],
)
def test_an_invalid_expression_is_refused_with_a_reason(text: str, hint: str) -> None:
    with pytest.raises(InvalidArgumentError, match=hint):
        parse_expression(text)


@pytest.mark.parametrize(
    "text",
    [
        "9**9**9**9",
        "factorial(10**9)",
        "2000!",
        "10^5000",
        "0.5^(10^9)",
        "2^-(10^9)",
        "e^(e^(e^100))",
        "exp(exp(exp(99)))",
        "(2x)^(10^9)",
        "(1/3)^(9^9)",
        "(10^3000)^2",
        "*".join(["10^900"] * 5),
        "factorial(factorial(factorial(9)))",
    ],
)
def test_too_large_a_result_is_refused_before_it_is_computed(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="more than 4,000 digits"):
        check_size(parse_expression(text))


@pytest.mark.parametrize(
    "text",
    ["100!", "2^1000", "x^(10^9)", "1^(10^9)", "2^0.00001", "exp(1000)", "+".join(["10^9"] * 150)],
)
def test_a_result_of_usable_size_is_accepted(text: str) -> None:
    check_size(parse_expression(text))
    assert parse_expression(text) is not None


def test_an_equation_has_two_sides() -> None:
    assert parse_equation("x = 2") == Equation(X, integer(2))
    assert parse_equation("x") == Equation(X, integer(0))
    with pytest.raises(InvalidArgumentError, match="has one '='"):
        parse_equation("x = 2 = 3")
    with pytest.raises(InvalidArgumentError, match="expected at '='"):
        parse_equation("= 2")


@pytest.mark.parametrize("name", ["e", "i", "xy", "", "1", "é"])
def test_a_variable_is_one_letter_that_is_no_constant(name: str) -> None:
    assert parse_variable(" x ") == "x"
    with pytest.raises(InvalidArgumentError, match="can't be a variable"):
        parse_variable(name)


def test_decimals_and_percentages_are_detected() -> None:
    assert has_decimals(parse_expression("sqrt(0.5)"))
    assert has_decimals(parse_expression("15% of 2"))
    assert not has_decimals(parse_expression("1/2"))


def parse_outcome(text: str) -> str:
    """Return "read", or the problem of an InvalidArgumentError; other exceptions propagate."""
    try:
        check_size(parse_expression(text))
        check_size(parse_equation(text).right)
    except InvalidArgumentError as error:
        return error.problem
    return "read"


@given(st.text(max_size=3_000))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    assert parse_outcome(text)


PIECES = st.sampled_from(
    [*"0123456789.+-*/^%!(),=xyei√²\u00a0 ", "**", "10^", " of ", "_", "'", *CONSTANTS]
    + [f"{name}(" for name in FUNCTIONS]
)


@given(st.lists(PIECES, max_size=300).map("".join))
def test_any_sequence_of_expression_tokens_is_parsed_or_refused(text: str) -> None:
    assert parse_outcome(text)
