"""Finds where a step speaks of an earlier result ("that", "the result"), and puts it in. Pure."""

import re

# What may follow a pronoun that stands for a value: an end, an operator, a preposition, a currency.
_FOLLOWS = (
    r"(?=\s{0,4}(?:$|[?.!,;:+*/^%)]|-\s{0,2}\d|(?-i:[A-Z]{3})\b"
    r"|(?:to|in|into|by|with|from|as|plus|minus|times|squared|cubed)\b))"
)
_REFERENCE = re.compile(
    r"\bthe (?:(?:previous|last) )?(?:result|answer)\b"
    rf"|\b(?:that|this){_FOLLOWS}"
    # "What time is it", "is it true" speak of nothing before; "how much is it" does.
    rf"|(?:(?<=how much is )|(?<!\bis )(?<!\bwas )(?<!\bdoes ))\bit{_FOLLOWS}",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_EQUALS = re.compile(r"[=≈]")


def has_reference(text: str) -> bool:
    """Whether the text speaks of an earlier result."""
    return _REFERENCE.search(text) is not None


def value_of(answer: str) -> str:
    """Return what an answer says, short enough to be put into a question.

    That is the number behind its one equals sign, if there is one (`100 USD = 92.34 EUR (…)` says
    92.34), the number it begins with, or all of it.
    """
    answer = answer.strip()
    pieces = _EQUALS.split(answer)
    said = pieces[1].strip() if len(pieces) == 2 else answer
    number = _NUMBER.match(said)
    if number and (len(pieces) == 2 or said == number[0]):
        return number[0].replace(",", "")
    return answer


def resolved(text: str, answer: str) -> str:
    """Return the text with the first mention of an earlier result replaced by its value."""
    value = value_of(answer)
    return _REFERENCE.sub(lambda _: value, text, count=1)
