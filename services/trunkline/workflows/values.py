"""The value of an agent's answer, for the expressions of workflows."""

import re

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_FRACTION = re.compile(r"-?\d{1,40}/\d{1,40}")
_EQUALS = re.compile(r"[=≈]")


def extract_value(answer: str) -> str:
    """Return the value of an answer, short enough for the next question.

    It is the number after the only equals sign (92.34 in `100 USD = 92.34 EUR (…)`), or the exact
    fraction before a rounded number (1/3 in `1/3 ≈ 0.333333`). Without a sign it is the whole
    answer. Commas are removed from a number.
    """
    answer = answer.strip()
    pieces = _EQUALS.split(answer)
    exact = pieces[0].strip()
    if len(pieces) == 2 and "≈" in answer and _FRACTION.fullmatch(exact):
        return f"({exact})"
    value = pieces[1].strip() if len(pieces) == 2 else answer
    number = _NUMBER.match(value)
    if number and (len(pieces) == 2 or value == number[0]):
        return number[0].replace(",", "")
    return answer
