from dataclasses import dataclass, field
from typing import Any

import pytest

from trunkline.errors import InvalidArgumentError
from trunkline_agents.math.operations import run_operation

DEFAULTS: dict[str, dict[str, Any]] = {
    "calculate": {"digits": None},
    "solve": {"variable": None},
    "differentiate": {"variable": None, "order": 1},
    "integrate": {"variable": None, "lower": None, "upper": None},
}


def answer(operation: str, **arguments: str | int | None) -> str:
    return run_operation(operation, DEFAULTS[operation] | arguments).text


@dataclass(frozen=True)
class Case:
    text: str
    answer: str
    more: dict[str, Any] = field(default_factory=dict)


def phrase(case: Case) -> str:
    return " ".join([case.text, *map(str, case.more.values())])


@pytest.mark.parametrize(
    "case",
    [
        Case("1+2", "3"),
        Case("(2+3)*4", "20"),
        Case("15% of 240", "36"),
        Case("10% of 33", "3.3"),
        Case("0.1+0.2", "0.3"),
        Case("(250)*(1+(19)%)", "297.5"),
        Case("round(sqrt(50), 2)", "7.07"),
        Case("1/2", "1/2 = 0.5"),
        Case("2 3/4 * 4", "11"),
        Case("6 x 7", "42"),
        Case("1/3", "1/3 ≈ 0.333333333333333"),
        Case("-7/2", "-7/2 = -3.5"),
        Case("sqrt(2)", "1.414213562", {"digits": 10}),
        Case("sqrt(2)", "sqrt(2) ≈ 1.41421356237310"),
        Case("1/8", "0.125", {"digits": 10}),
        Case("100!", "9.3326e+157", {"digits": 5}),
        Case("(2/3)^200", "≈ 6.04989989819375e-36"),
        Case("log10(1000)", "3"),
        Case("log(8, 2)", "3"),
        Case("cbrt(-8)", "-2"),
        Case("sqrt(-4)", "2*i"),
        Case("gcd(12, 18) + lcm(4, 6) + mod(17, 5)", "20"),
        Case("sin(1)^2 + cos(1)^2", "1"),
        Case("2x + 3x", "5*x"),
        Case("(x^2-1)/(x-1)", "x + 1"),
        Case("ln(e^2)", "2"),
        Case("ceil(1.2) + floor(1.8) + max(1, 2) + min(1, 2) + abs(-1)", "7"),
    ],
    ids=phrase,
)
def test_calculate_returns_exact_and_short_answers(case: Case) -> None:
    assert answer("calculate", expression=case.text, **case.more) == case.answer


@pytest.mark.parametrize(
    "case",
    [
        Case("x^2-5x+6=0", "x = 2 or x = 3"),
        Case("x^2 = 2", "x = -sqrt(2) or x = sqrt(2)"),
        Case("x^2+1", "x = -i or x = i"),
        Case("(x^2-1)/(x-1) = 0", "x = -1"),
        Case("2^x = 8", "x = 3"),
        Case("abs(x) = 3", "x = -3 or x = 3"),
        Case("a*x = b", "a = b/x", {"variable": "a"}),
        Case("sin(x) = 0", "x = 2*pi*n or x = 2*pi*n + pi, for every integer n"),
        Case("cos(x) = x", "x ≈ 0.739085133215161 (found numerically; there may be more)"),
        Case(
            "x^3-3x+1=0",
            "x ≈ -1.87938524157182 or x ≈ 0.347296355333861 or x ≈ 1.53208888623796",
        ),
        Case("x = x", "Every value of x is a solution."),
        Case("x = x+1", "There is no solution."),
        Case("sqrt(x) = -1", "There is no solution."),
    ],
    ids=phrase,
)
def test_solve_lists_the_solutions(case: Case) -> None:
    assert answer("solve", equation=case.text, **case.more) == case.answer


def test_every_root_of_a_quintic_is_found_as_a_number() -> None:
    result = run_operation("solve", {"equation": "x^5-x+1", "variable": None}).data
    assert len(result["solutions"]) == 5
    assert result["solutions"][0]["approximation"] == "-1.16730397826142"
    assert result["is_complete"]


@pytest.mark.parametrize(
    "case",
    [
        Case("x^3", "3*x^2"),
        Case("x^5", "60*x^2", {"order": 3}),
        Case("y^2", "2*y"),
        Case("x*y", "x", {"variable": "y"}),
        Case("5", "0"),
        Case("x^x", "x^x*(ln(x) + 1)"),
    ],
    ids=phrase,
)
def test_differentiate_returns_the_derivative(case: Case) -> None:
    assert answer("differentiate", expression=case.text, **case.more) == case.answer


@pytest.mark.parametrize(
    "case",
    [
        Case("x*sin(x)", "-x*cos(x) + sin(x) + C"),
        Case("1/x", "ln(x) + C"),
        Case("x*sin(x)", "pi ≈ 3.14159265358979", {"lower": "0", "upper": "pi"}),
        Case("x^2", "1/3 ≈ 0.333333333333333", {"lower": "0", "upper": "1"}),
        Case("1/x^2", "1", {"lower": "1", "upper": "oo"}),
        Case("a*x", "a/2", {"lower": "0", "upper": "1"}),
    ],
    ids=phrase,
)
def test_integrate_returns_an_antiderivative_or_a_value(case: Case) -> None:
    assert answer("integrate", expression=case.text, **case.more) == case.answer


@pytest.mark.parametrize(
    ("operation", "arguments", "hint"),
    [
        ("calculate", {"expression": "1/0"}, "divides by zero"),
        ("calculate", {"expression": "mod(1, 0)"}, "divides by zero"),
        ("calculate", {"expression": "0^0"}, "not defined"),
        ("calculate", {"expression": "tan(pi/2)"}, "no finite value"),
        ("calculate", {"expression": "oo - oo"}, "no finite value"),
        ("calculate", {"expression": "gcd(1.5, 2)"}, "take whole numbers"),
        ("calculate", {"expression": "9**9**9**9"}, "too large"),
        ("solve", {"equation": "1 = 2"}, "no variable to solve for"),
        ("solve", {"equation": "y + z = 3"}, "Which variable is meant: y or z"),
        ("solve", {"equation": "x^1000000000 = 2"}, "degree is too high"),
        ("solve", {"equation": "x^5 + a*x + b"}, "no general formula"),
        ("integrate", {"expression": "1/x", "lower": "-1", "upper": "1"}, "no finite value"),
        ("integrate", {"expression": "1/x", "lower": "1", "upper": "oo"}, "no finite value"),
    ],
)
def test_an_undefined_result_is_refused_with_a_reason(
    operation: str, arguments: dict[str, Any], hint: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=hint):
        answer(operation, **arguments)


@pytest.mark.parametrize("text", ["2*pi", "sqrt(3)/2", "x^2*ln(x)", "3*i", "exp(-x^2)", "abs(x)"])
def test_an_answer_is_a_valid_expression(text: str) -> None:
    first_result = run_operation("calculate", {"expression": text, "digits": None}).data["exact"]
    second_result = run_operation("calculate", {"expression": first_result, "digits": None}).data[
        "exact"
    ]
    assert second_result == first_result
