"""Finds the tool for a question by the descriptions of tools that declare no patterns.

A tool fits if the question names it: by words of its name or title, while its description and its
arguments explain most of the other words. It is called if its schema finds all its required
arguments in the question, and all values of the question are arguments. Deterministic and cautious:
a question that fits two tools alike, or leaves anything open, gets a text that says what to add.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from trunkline.phrasing.content_words import (
    fits_description,
    share_of,
    split_lower_words,
    stem_words,
)
from trunkline.phrasing.schema_arguments import TakenArguments, split_name, take_arguments
from trunkline.reasoning.toolbox import ToolSpec

_TOOLS_LIMIT: Final = 500
_DESCRIPTION_CHARS: Final = 1000
_ARGUMENT_CHARS: Final = 200
# Tools whose scores differ by less fit alike.
_SAME: Final = 0.1


@dataclass(frozen=True, slots=True)
class DescribedMatch:
    """The tool that a question fits by its description."""

    tool: str
    title: str
    arguments: dict[str, Any]
    problem: str
    """The reason why it can't be called yet, and the remedy; "" if it can."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    tool: ToolSpec
    taken: TakenArguments
    score: float

    @property
    def is_complete(self) -> bool:
        return not (self.taken.missing or self.taken.unused)


def match_descriptions(question: str, tools: Sequence[ToolSpec]) -> DescribedMatch | None:
    """Return the tool among `tools` whose description fits a question; None if none does."""
    found = [
        candidate
        for tool in tools[:_TOOLS_LIMIT]
        if (candidate := _rate(question, tool)) is not None
    ]
    if not found:
        return None
    found.sort(key=lambda candidate: (-candidate.score, _name(candidate.tool)))
    alike = [one for one in found if found[0].score - one.score < _SAME]
    complete = [one for one in alike if one.is_complete]
    best, *others = complete or alike
    name, title = _name(best.tool), _title(best.tool)
    return DescribedMatch(name, title, best.taken.arguments, _find_problem(best, others))


def _find_problem(best: _Candidate, others: Sequence[_Candidate]) -> str:
    """Return why a tool can't be called; "" if it can."""
    title = _title(best.tool)
    if others:
        titles = ", ".join(_title(one.tool) for one in (best, *others))
        return f"Several of my tools fit that: {titles}. Say which one you mean."
    if best.taken.missing:
        rejected = [f"{name} can't be {said}" for name, said in best.taken.rejected.items()]
        problem = ", and ".join(rejected) or "can't find all it needs"
        return (
            f"I would use my tool {title} for that, but {problem}. "
            f"Please add {', '.join(best.taken.missing)}."
        )
    if best.taken.unused:
        values = ", ".join(value.text for value in best.taken.unused)
        names = ", ".join(best.tool["function"]["parameters"].get("properties", ()))
        return (
            f"I would use my tool {title} for that, but can't tell what this is for: {values}. "
            f"Put the argument's name before it: {names or 'the tool has none'}."
        )
    return ""


def _rate(question: str, tool: ToolSpec) -> _Candidate | None:
    """Return how well a tool fits a question; None if it does not."""
    function = tool["function"]
    schema = function.get("parameters") or {}
    said = stem_words(split_lower_words(question))
    name_words = stem_words(split_name(_name(tool).partition("__")[2] or _name(tool)))
    title_words = stem_words(split_lower_words(_title(tool)))
    if not said & (name_words | title_words):
        return None
    taken = take_arguments(question, schema, name_words | title_words)
    outside = list(question)
    for start, end in (*taken.spent, *((value.start, value.end) for value in taken.unused)):
        outside[start:end] = " " * (end - start)
    open_words = stem_words(split_lower_words("".join(outside)))
    # Words of the question that became arguments do not name the tool.
    named = max(share_of(name_words, open_words), share_of(title_words, open_words))
    vocabulary = name_words | title_words | stem_words(_describing_words(tool, schema))
    explained = share_of(open_words, vocabulary)
    fits = fits_description(
        named=named,
        explained=explained,
        has_argument=bool(taken.arguments),
        lacks_argument=bool(taken.missing),
    )
    return _Candidate(tool, taken, named + explained) if fits else None


def _describing_words(tool: ToolSpec, schema: Mapping[str, Any]) -> list[str]:
    function = tool["function"]
    words = split_lower_words(str(function.get("description", ""))[:_DESCRIPTION_CHARS])
    words += split_name(_name(tool).partition("__")[0])
    properties = schema.get("properties", {})
    for name, about in properties.items() if isinstance(properties, Mapping) else ():
        words += split_name(name)
        if isinstance(about, Mapping):
            words += split_lower_words(str(about.get("description", ""))[:_ARGUMENT_CHARS])
    return words


def _name(tool: ToolSpec) -> str:
    name: str = tool["function"]["name"]
    return name


def _title(tool: ToolSpec) -> str:
    return str(tool.get("metadata", {}).get("title") or _name(tool))
