"""References to earlier results: "that", "the result", {1}. Pure.

{1} in a later step stands for the result of step 1: the whole answer if it is alone on its line,
else its value.
"""

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

# Text that follows a pronoun for a value: the end, an operator, a preposition or a currency.
_FOLLOWS = (
    r"(?=\s{0,4}(?:$|[?.!,;:+*/^%)]|-\s{0,2}\d|(?-i:[A-Z]{3})\b"
    r"|(?:to|in|into|by|with|from|as|plus|minus|times|squared|cubed)\b))"
)
# Words that are said of numbers, as in "is it divisible by 5".
_NUMBER_ADJECTIVE = (
    r"(?:(?:a |an )?(?:divisible|prime|even|odd|multiple of|(?:perfect )?square|whole number"
    r"|integer|composite|positive|negative)|between \d"
    r"|(?:bigger|greater|larger|smaller|more|less) than)\b"
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


def has_reference(text: str) -> bool:
    """Return whether the text refers to an earlier result."""
    return _REFERENCE.search(text) is not None


def find_needed_steps(text: str, after: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of the earlier steps whose results the text refers to."""
    ids = {format_step_id(int(match[1])) for match in _PLACEHOLDER.finditer(text)}
    if needed := tuple(earlier for earlier in after if earlier in ids):
        return needed
    return tuple(after[-1:]) if after and has_reference(text) else ()


def has_pronoun(text: str) -> bool:
    """Return whether a text refers to an earlier result by one word, and not as "the answer"."""
    found = _REFERENCE.search(text)
    return found is not None and " " not in found[0]


def write_number(text: str) -> str:
    """Return the text with a number in place of its reference: "is 1 odd" for "is it odd"."""
    return _REFERENCE.sub("1", text, count=1)


class TextReference(NamedTuple):
    """A part of a text that stands for a value."""

    start: int
    end: int
    path: str
    """The name of the value in expressions of workflows."""


def find_references(text: str, needed_steps: Sequence[str]) -> list[TextReference]:
    """Return the references of a step's text. Of those in words, only the first is one.

    `needed_steps` are those that find_needed_steps() returned.
    """
    if not needed_steps:
        return []
    placeholders = [
        TextReference(*match.span(), _name_result(step_id, is_whole=_is_line(text, match)))
        for match in _PLACEHOLDER.finditer(text)
        if (step_id := format_step_id(int(match[1]))) in needed_steps
    ]
    if placeholders:
        return placeholders
    words = _REFERENCE.search(text)
    path = _name_result(needed_steps[0], is_whole=False)
    return [TextReference(*words.span(), path)] if words else []


def write_template(text: str, references: Iterable[TextReference]) -> str:
    """Return a text as a template of a workflow, in which the references are expressions."""
    pieces: list[str] = []
    position = 0
    for start, end, path in sorted(references):
        pieces += [_escape(text[position:start], is_before_reference=True), f"${{{path}}}"]
        position = end
    return "".join([*pieces, _escape(text[position:], is_before_reference=False)])


def _is_line(text: str, match: re.Match[str]) -> bool:
    start, end = match.span()
    return text[start - 1 : start] in ("", "\n") and text[end : end + 1] in ("", "\n")


def _name_result(step_id: str, *, is_whole: bool) -> str:
    return f"nodes.{format_node_id(step_id)}.{'text' if is_whole else 'value'}"


def _escape(text: str, *, is_before_reference: bool) -> str:
    """Return a text that a template renders as it is."""
    text = text.replace("${", "$${")
    if is_before_reference and text.endswith("$"):
        # `$` before an expression would escape it.
        body = text.rstrip("$")
        return f'{body}${{"{text[len(body) :]}"}}'
    return text


def format_step_id(number: int) -> str:
    """Return the id of a step by its number, counted from 1."""
    return f"step-{number}"


def format_node_id(step_id: str) -> str:
    """Return the id of a step's node, which is an identifier."""
    return step_id.replace("-", "_")
