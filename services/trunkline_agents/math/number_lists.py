"""Lists of numbers: in order of size, and the next number of a sequence. Roman numerals.

A sequence is continued only if its numbers fit a rule with one of them to spare.
"""

import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Final, TypeAlias

from trunkline.errors import InvalidArgumentError
from trunkline_agents.math.amount_rendering import write_amount

MAX_NUMBERS: Final = 100
_LEAST: Final = 3
_MAX_TERM: Final = 1000
_NUMBER = re.compile(r"-?\d[\d]*(?:\.\d+)?(?:/\d+)?")
_ROMAN = re.compile(r"M{0,3}(?:CM|CD|D?C{0,3})(?:XC|XL|L?X{0,3})(?:IX|IV|V?I{0,3})", re.IGNORECASE)
_Rule: TypeAlias = tuple[str, Callable[[Sequence[Fraction]], Fraction]]
_DIGITS: Final = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100, "D": 500, "M": 1000}


def parse_list(text: str) -> list[tuple[Fraction, str]]:
    """Return the numbers of a list, each with its spelling.

    Raises:
        InvalidArgumentError: it has fewer than two numbers or too many, or a number is none.
    """
    written = _NUMBER.findall(text)
    if not 1 < len(written) <= MAX_NUMBERS:
        raise InvalidArgumentError("numbers", f"Name 2 to {MAX_NUMBERS} numbers.")
    try:
        return [(Fraction(number), number) for number in written]
    except ZeroDivisionError:
        raise InvalidArgumentError("numbers", "A number is divided by zero.") from None


def sort_numbers(text: str, *, descending: bool) -> str:
    """Return the numbers of a list in order of size, as they are written.

    Raises:
        InvalidArgumentError: it is no list of numbers.
    """
    numbers = sorted(parse_list(text), key=lambda number: number[0], reverse=descending)
    return ", ".join(written for _, written in numbers)


def continue_sequence(text: str, position: int | None = None) -> str:
    """Return the next number of a sequence, or the one at a position, and the rule.

    Raises:
        InvalidArgumentError: the numbers follow no simple rule.
    """
    numbers = [value for value, _ in parse_list(text)]
    at = len(numbers) + 1 if position is None else position
    if not 1 <= at <= _MAX_TERM:
        raise InvalidArgumentError("position", f"Ask for a position of 1 to {_MAX_TERM:,}.")
    found = _find_rule(numbers)
    if found is None:
        raise InvalidArgumentError(
            "numbers", "I see no rule in these numbers: each one more, times the same, or a sum."
        )
    rule, following = found
    while len(numbers) < at:
        numbers.append(following(numbers))
    return f"{write_amount(numbers[at - 1])} ({rule})"


def _find_rule(numbers: Sequence[Fraction]) -> _Rule | None:
    """Return the words of a rule and the next number by it; None if there is none."""
    steps = [later - earlier for earlier, later in pairwise(numbers)]
    if len(numbers) < _LEAST:
        return None
    if len(set(steps)) == 1:
        step = steps[0]
        words = f"{'minus' if step < 0 else 'plus'} {write_amount(abs(step))}"
        return f"each is the one before {words}", lambda known: known[-1] + step
    if (
        all(numbers)
        and len(ratios := {later / earlier for earlier, later in pairwise(numbers)}) == 1
    ):
        (ratio,) = ratios
        words = f"times {write_amount(ratio)}"
        return f"each is the one before {words}", lambda known: known[-1] * ratio
    return _find_longer_rule(numbers, steps)


def _find_longer_rule(numbers: Sequence[Fraction], steps: Sequence[Fraction]) -> _Rule | None:
    """Return a rule that takes two numbers to begin with, so that four are needed to see it."""
    if len(numbers) <= _LEAST:
        return None
    if all(numbers[n] == numbers[n - 1] + numbers[n - 2] for n in range(2, len(numbers))):
        return "each is the sum of the two before", lambda known: known[-1] + known[-2]
    growth = {later - earlier for earlier, later in pairwise(steps)}
    if len(growth) == 1:
        (more,) = growth
        rule = f"the differences grow by {write_amount(more)}"
        return rule, lambda known: 2 * known[-1] - known[-2] + more
    return None


def read_roman(text: str) -> int:
    """Return the number of a Roman numeral.

    Raises:
        InvalidArgumentError: it is none.
    """
    word = text.strip().upper()
    if not word or not _ROMAN.fullmatch(word):
        raise InvalidArgumentError("numeral", f"{text[:40]!r} is not a Roman numeral.")
    values = [_DIGITS[letter] for letter in word]
    pairs = zip(values, [*values[1:], 0], strict=True)
    return sum(-value if value < following else value for value, following in pairs)
