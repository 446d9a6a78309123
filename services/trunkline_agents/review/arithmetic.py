"""Arithmetic statements in a text, such as `12 * 5 = 60`, and their results by the math agent."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

from trunkline import InvalidArgumentError, TaskContext

MATH_AGENT: Final = "math"
STATEMENT_LIMIT: Final = 20
"""The number of statements of one text that are checked."""
UNKNOWN: Final = "?"
"""The result that a text leaves open: `12 * 5 = ?`."""

_NUMBER: Final = r"[$€£¥]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?"
_MINUS: Final = "\N{MINUS SIGN}"
_TIMES: Final = "\N{MULTIPLICATION SIGN}"
_OPERATORS: Final = rf"[-{_MINUS}+*·{_TIMES}/÷^]"
_GAP: Final = "[ \N{NO-BREAK SPACE}]?"
_JOINT: Final = rf"(?:{_GAP}%{_GAP}of{_GAP}|{_GAP}(?:{_OPERATORS}|x){_GAP})"
_EXPRESSION: Final = re.compile(rf"(?<![\w.,]){_NUMBER}(?:{_JOINT}{_NUMBER})+")
_RESULT: Final = re.compile(
    rf"{_GAP}={_GAP}(\?|[-{_MINUS}]?{_NUMBER}%?)(?!\w|[.,]\d|{_GAP}{_OPERATORS}{_GAP}\d)"
)
# The expression is a part of a longer expression, for example with a variable.
_CONTINUES: Final = re.compile(rf"(?:[+*·{_TIMES}/÷^(]|\b[A-Za-z]{_GAP}[-{_MINUS}]){_GAP}$")
_PLAIN: Final = str.maketrans(
    {_TIMES: "*", "·": "*", "x": "*", "÷": "/", _MINUS: "-", ",": None, **dict.fromkeys("$€£¥")}
)
_ROUNDED_DECIMALS: Final = 2


@dataclass(frozen=True, slots=True)
class ArithmeticStatement:
    """A statement `EXPRESSION = RESULT` in a text."""

    text: str
    """The text of the statement."""
    expression: str
    """Its left side, in the form for the math agent."""
    result: str
    """Its right side in the text, or `?`."""
    head: str
    """The text before the result."""

    def with_result(self, result: str) -> str:
        """Return the statement with another result."""
        return f"{self.head}{result}"


def find_statements(text: str) -> list[ArithmeticStatement]:
    """Return the statements of a text, each once, in their order."""
    found: dict[str, ArithmeticStatement] = {}
    for left in _EXPRESSION.finditer(text):
        right = _RESULT.match(text, left.end())
        if right is None or _CONTINUES.search(text, max(0, left.start() - 4), left.start()):
            continue
        whole = text[left.start() : right.end()]
        head = text[left.start() : right.start(1)]
        expression = left[0].translate(_PLAIN).replace("%of", "% of")
        found.setdefault(whole, ArithmeticStatement(whole, expression, right[1], head))
    return list(found.values())


@dataclass(frozen=True, slots=True)
class MathResult:
    """The result of an expression by the math agent."""

    value: Fraction | None
    """The value, or None if the agent found no value."""
    text: str
    """The result in the form for a text, or the reason why there is no result."""


async def compute(task: TaskContext[Any], expressions: Iterable[str]) -> Mapping[str, MathResult]:
    """Ask the math agent for the results of expressions.

    Raises:
        PeerError: the mesh can't reach the agent.
    """
    answers: dict[str, MathResult] = {}
    for expression in dict.fromkeys(expressions):
        answers[expression] = await _ask(task, expression)
    return answers


async def _ask(task: TaskContext[Any], expression: str) -> MathResult:
    try:
        reply = await task.ask(MATH_AGENT, expression, check=False)
    except InvalidArgumentError as error:
        # There is no such agent on the mesh.
        return MathResult(None, str(error))
    if reply.state != "completed":
        return MathResult(None, reply.text or f"the agent {MATH_AGENT} ended as {reply.state}")
    # A fraction comes with its decimals: `10/3 ≈ 3.333`, `1/8 = 0.125`.
    exact, _, decimals = re.sub("[≈=]", "=", reply.text).partition("=")
    try:
        value = Fraction(exact.strip().replace(" ", ""))
    except (ValueError, ZeroDivisionError):
        return MathResult(None, f"the agent {MATH_AGENT} answered {reply.text!r}")
    return MathResult(value, _write(value, decimals.strip() or exact.strip()))


def _write(value: Fraction, decimals: str) -> str:
    """Return a result for a text: exact if that is short, else with two decimals."""
    if value.denominator == 1 or len(decimals) <= len("0.1234"):
        return decimals
    return f"{float(value):.{_ROUNDED_DECIMALS}f}"


def is_right(statement: ArithmeticStatement, value: Fraction) -> bool:
    """Return whether a statement has a result: exactly, or rounded to two decimals or more."""
    plain = statement.result.translate(_PLAIN)
    claimed = Fraction(plain.rstrip("%"))
    decimals = len(plain.rstrip("%").partition(".")[2])
    if plain.endswith("%"):
        claimed, decimals = claimed / 100, decimals + 2
    if claimed == value:
        return True
    return decimals >= _ROUNDED_DECIMALS and abs(claimed - value) <= Fraction(1, 2 * 10**decimals)


def correct(text: str, corrections: Sequence[tuple[str, str]]) -> str:
    """Return a text with statements replaced by others."""
    for wrong, right in corrections:
        # Not within a longer number. A backslash in the replacement must stay a backslash.
        pattern = rf"(?<![\w.,]){re.escape(wrong)}(?!\w|[.,]\d)"
        text = re.sub(pattern, right.replace("\\", r"\\"), text)
    return text
