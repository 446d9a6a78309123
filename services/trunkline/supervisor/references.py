"""Finds references to earlier results ("that", "the result", {1}) and fills them in. Pure.

{1} in a later step stands for the result of step 1: the whole answer if it is alone on its line,
else its value.
"""

import re
from collections.abc import Mapping, Sequence

# Text that follows a pronoun for a value: the end, an operator, a preposition or a currency.
_FOLLOWS = (
    r"(?=\s{0,4}(?:$|[?.!,;:+*/^%)]|-\s{0,2}\d|(?-i:[A-Z]{3})\b"
    r"|(?:to|in|into|by|with|from|as|plus|minus|times|squared|cubed)\b))"
)
# Words that are said of numbers, as in "is it divisible by 5".
_NUMBER_ADJECTIVE = (
    r"(?:(?:a |an )?(?:divisible|prime|even|odd|multiple of|perfect square)"
    r"|(?:bigger|greater|larger|smaller|less) than)\b"
)
_REFERENCE = re.compile(
    r"\bthe (?:(?:previous|last) )?(?:result|answer)\b"
    rf"|\b(?:that|this){_FOLLOWS}"
    # "What time is it" and "is it true" refer to no result; "how much is it" does.
    rf"|\b(?:it|that|this)(?=\s{{1,4}}{_NUMBER_ADJECTIVE})"
    rf"|(?:(?<=how much is )|(?<!\bis )(?<!\bwas )(?<!\bdoes ))\bit{_FOLLOWS}",
    re.IGNORECASE,
)
_PLACEHOLDER = re.compile(r"\{(\d{1,3})\}")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_EQUALS = re.compile(r"[=≈]")


def has_reference(text: str) -> bool:
    """Return whether the text refers to an earlier result."""
    return _REFERENCE.search(text) is not None


def extract_value(answer: str) -> str:
    """Return the value of an answer, short enough for a question.

    The value is the number after the only equals sign (92.34 in `100 USD = 92.34 EUR (…)`). Without
    one it is the whole answer. Commas are removed from a number.
    """
    answer = answer.strip()
    pieces = _EQUALS.split(answer)
    value = pieces[1].strip() if len(pieces) == 2 else answer
    number = _NUMBER.match(value)
    if number and (len(pieces) == 2 or value == number[0]):
        return number[0].replace(",", "")
    return answer


def find_needed_steps(text: str, after: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of the earlier steps whose results the text refers to."""
    ids = {format_step_id(int(match[1])) for match in _PLACEHOLDER.finditer(text)}
    if needed := tuple(earlier for earlier in after if earlier in ids):
        return needed
    return tuple(after[-1:]) if after and has_reference(text) else ()


def fill_references(text: str, answers: Mapping[str, str]) -> str:
    """Fill in references. `answers` are those of the steps that find_needed_steps() returned.

    Only the first reference in words is replaced. Answers are not searched for references.
    """
    if not answers:
        return text

    def replace(match: re.Match[str]) -> str:
        answer = answers.get(format_step_id(int(match[1])))
        if answer is None:
            return match[0]
        start, end = match.span()
        is_line = text[start - 1 : start] in ("", "\n") and text[end : end + 1] in ("", "\n")
        return answer.strip() if is_line else extract_value(answer)

    if any(format_step_id(int(match[1])) in answers for match in _PLACEHOLDER.finditer(text)):
        return _PLACEHOLDER.sub(replace, text)
    (answer,) = answers.values()
    value = extract_value(answer)
    return _REFERENCE.sub(lambda _: value, text, count=1)


def format_step_id(number: int) -> str:
    """Return the id of a step by its number, counted from 1."""
    return f"step-{number}"
