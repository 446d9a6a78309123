"""Finds where a step speaks of earlier results ("that", "the result", {1}), and puts them in. Pure.

{1} stands for the result of step 1, in a step that comes after it: alone on its line for all of
the answer, elsewhere for its value.
"""

import re
from collections.abc import Mapping, Sequence

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
_PLACE = re.compile(r"\{(\d{1,3})\}")
_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_EQUALS = re.compile(r"[=≈]")


def has_reference(text: str) -> bool:
    """Whether the text speaks of an earlier result."""
    return _REFERENCE.search(text) is not None


def extract_value(answer: str) -> str:
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


def find_needed_steps(text: str, after: Sequence[str]) -> tuple[str, ...]:
    """Return those of the earlier steps, by their ids, whose results the text speaks of."""
    named = {format_step_id(int(place[1])) for place in _PLACE.finditer(text)}
    if found := tuple(earlier for earlier in after if earlier in named):
        return found
    return tuple(after[-1:]) if after and has_reference(text) else ()


def fill_references(text: str, answers: Mapping[str, str]) -> str:
    """Return the text with what it needs put in; `answers` are those of the `needed` steps.

    Of mentions in words only the first is replaced. What an answer says is never looked into.
    """
    if not answers:
        return text

    def put(place: re.Match[str]) -> str:
        answer = answers.get(format_step_id(int(place[1])))
        if answer is None:
            return place[0]
        begin, end = place.span()
        is_line = text[begin - 1 : begin] in ("", "\n") and text[end : end + 1] in ("", "\n")
        return answer.strip() if is_line else extract_value(answer)

    if any(format_step_id(int(place[1])) in answers for place in _PLACE.finditer(text)):
        return _PLACE.sub(put, text)
    (answer,) = answers.values()
    value = extract_value(answer)
    return _REFERENCE.sub(lambda _: value, text, count=1)


def format_step_id(number: int) -> str:
    """Return the id of the step of this number, which counts from 1."""
    return f"step-{number}"
