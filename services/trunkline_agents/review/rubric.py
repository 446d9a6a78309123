"""The rubric of a review: its checks, their costs, and the score.

A text has 100 points. Each failed check costs points, down to 0:

- the length: one point for each percent of the words that are missing or too many, at least 1 and
  at most 40
- each required term that is missing, and each forbidden term that is there: 25
- each arithmetic statement that is wrong, or that can't be checked: 25
"""

import math
import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trunkline_agents.review.arithmetic import (
    STATEMENT_LIMIT,
    UNKNOWN,
    ArithmeticStatement,
    MathResult,
    is_right,
)

FULL_SCORE: Final = 100
_TERM_COST: Final = 25
_ARITHMETIC_COST: Final = 25
_LENGTH_COST_LIMIT: Final = 40
_TERM_LIMIT: Final = 100

RubricTerm = Annotated[str, Field(min_length=1, max_length=100)]
WordLimit = Annotated[int, Field(ge=0, le=10_000)]


class Rubric(BaseModel):
    """The requirements of a text."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    min_words: WordLimit = 0
    max_words: WordLimit | None = None
    """The largest number of words, if there is a limit."""
    required_terms: Annotated[list[RubricTerm], Field(max_length=_TERM_LIMIT)] = Field(
        default_factory=list[RubricTerm]
    )
    """Words or phrases, in any case."""
    forbidden_terms: Annotated[list[RubricTerm], Field(max_length=_TERM_LIMIT)] = []
    arithmetic: bool = True
    """Check statements such as `12 * 5 = 60`."""

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.max_words is not None and self.max_words < max(1, self.min_words):
            raise ValueError("max_words is below min_words, or 0")
        return self

    def merge(self, other: "Rubric") -> "Rubric":
        """Return a rubric with the limits of `other` in place of these, and the terms of both.

        Raises:
            ValueError: the limits together make no sense.
        """
        own = self.model_dump()
        added = other.model_dump(include=other.model_fields_set)
        for name in ("required_terms", "forbidden_terms"):
            added[name] = list(dict.fromkeys([*own[name], *added.get(name, ())]))
        return Rubric.model_validate(own | added)

    def describe(self) -> str:
        """Return the requirements in words, one a line; empty without any."""
        lines = []
        if self.min_words:
            lines.append(f"- at least {self.min_words} words")
        if self.max_words is not None:
            lines.append(f"- at most {self.max_words} words")
        if self.required_terms:
            lines.append(f"- it has to contain: {', '.join(self.required_terms)}")
        if self.forbidden_terms:
            lines.append(f"- it must not contain: {', '.join(self.forbidden_terms)}")
        return "\n".join(lines)


class RubricCheck(BaseModel):
    """The outcome of one check."""

    rule: Literal["min_words", "max_words", "required_term", "forbidden_term", "arithmetic"]
    expected: str
    """The limit, the term, or the text of the statement."""
    passed: bool
    cost: int = 0
    feedback: str = ""
    correction: str = ""
    """The statement with the right result."""


def count_words(text: str) -> int:
    """Return the number of words of a text."""
    return len(text.split())


def has_term(text: str, term: str) -> bool:
    """Return whether a text has a term, as whole words, in any case."""
    words = r"\s+".join(map(re.escape, term.split()))
    return re.search(rf"(?<!\w){words}(?!\w)", text, re.IGNORECASE) is not None


def check_text(text: str, rubric: Rubric) -> list[RubricCheck]:
    """Return the checks of a text's length and terms."""
    checks = []
    words = count_words(text)
    if rubric.min_words:
        problem = f"It has {words} words; write at least {rubric.min_words}."
        cost = _length_cost(rubric.min_words - words, rubric.min_words)
        checks.append(_check("min_words", str(rubric.min_words), cost, problem))
    if rubric.max_words is not None:
        problem = f"It has {words} words; write at most {rubric.max_words}."
        cost = _length_cost(words - rubric.max_words, rubric.max_words)
        checks.append(_check("max_words", str(rubric.max_words), cost, problem))
    for term in rubric.required_terms:
        cost = 0 if has_term(text, term) else _TERM_COST
        checks.append(_check("required_term", term, cost, f"It lacks the term {term!r}."))
    for term in rubric.forbidden_terms:
        cost = _TERM_COST if has_term(text, term) else 0
        checks.append(_check("forbidden_term", term, cost, f"It must not have {term!r}."))
    return checks


def check_arithmetic(
    statements: Sequence[ArithmeticStatement], answers: Mapping[str, MathResult]
) -> list[RubricCheck]:
    """Return the checks of statements, by the answers of the math agent to their expressions."""
    return [_check_statement(each, answers[each.expression]) for each in statements]


def skip_statement(statement: ArithmeticStatement) -> RubricCheck:
    """Return the failed check of a statement beyond the limit."""
    problem = f"{statement.text} was not checked; state at most {STATEMENT_LIMIT} results."
    return _check("arithmetic", statement.text, _ARITHMETIC_COST, problem)


def _check_statement(statement: ArithmeticStatement, answer: MathResult) -> RubricCheck:
    if answer.value is None:
        problem = f"{statement.text} can't be checked: {answer.text}"
        return _check("arithmetic", statement.text, _ARITHMETIC_COST, problem)
    if statement.result != UNKNOWN and is_right(statement, answer.value):
        return _check("arithmetic", statement.text, 0, "")
    right = statement.with_result(_in_unit_of(statement, answer))
    problem = f"{statement.text} is wrong; write {right}."
    check = _check("arithmetic", statement.text, _ARITHMETIC_COST, problem)
    return check.model_copy(update={"correction": right})


def _in_unit_of(statement: ArithmeticStatement, answer: MathResult) -> str:
    """Return the right result, with the sign of percent or money of the stated one."""
    if statement.result.endswith("%"):
        percent = (answer.value or Fraction(0)) * FULL_SCORE
        return f"{float(percent):g}%"
    money = statement.result.lstrip("-\N{MINUS SIGN}")[:1]
    return f"{money}{answer.text}" if money in "$€£¥" else answer.text


def _length_cost(excess: int, limit: int) -> int:
    return 0 if excess <= 0 else min(_LENGTH_COST_LIMIT, math.ceil(100 * excess / limit))


def _check(
    rule: Literal["min_words", "max_words", "required_term", "forbidden_term", "arithmetic"],
    expected: str,
    cost: int,
    problem: str,
) -> RubricCheck:
    feedback = problem if cost else ""
    return RubricCheck(rule=rule, expected=expected, passed=not cost, cost=cost, feedback=feedback)


def score_checks(checks: Sequence[RubricCheck]) -> int:
    """Return the score of a text by its checks, 0 to 100."""
    return max(0, FULL_SCORE - sum(check.cost for check in checks))


def describe_failures(checks: Sequence[RubricCheck]) -> str:
    """Return the feedback of the failed checks, one a line."""
    return "\n".join(check.feedback for check in checks if not check.passed)
