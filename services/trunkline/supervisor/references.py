"""References to the results of earlier steps, and the ids of steps. Pure.

{1} in a later step stands for the result of step 1: the whole answer if it is alone on its line,
else its value.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from trunkline.workflows.values import extract_value

_PLACEHOLDER = re.compile(r"\{(\d{1,3})\}")


def find_needed_steps(text: str, after: Sequence[str]) -> tuple[str, ...]:
    """Return the ids of the earlier steps whose results the text refers to."""
    ids = {format_step_id(int(match[1])) for match in _PLACEHOLDER.finditer(text)}
    return tuple(earlier for earlier in after if earlier in ids)


def fill_references(text: str, results: Mapping[str, str]) -> str:
    """Return a text with the results of steps in place of its references.

    `results` are answers by the ids of steps. References to other steps stay as they are.
    """

    def fill(match: re.Match[str]) -> str:
        result = results.get(format_step_id(int(match[1])))
        if result is None:
            return match[0]
        return result.strip() if _is_line(text, match) else extract_value(result)

    return _PLACEHOLDER.sub(fill, text)


class TextReference(NamedTuple):
    """A part of a text that stands for a value."""

    start: int
    end: int
    path: str
    """The name of the value in expressions of workflows."""


def find_references(text: str, needed_steps: Sequence[str]) -> list[TextReference]:
    """Return the references of a step's text.

    `needed_steps` are the steps that find_needed_steps() returned.
    """
    return [
        TextReference(*match.span(), _name_result(step_id, is_whole=_is_line(text, match)))
        for match in _PLACEHOLDER.finditer(text)
        if (step_id := format_step_id(int(match[1]))) in needed_steps
    ]


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
