"""Finds the tool for a question by the declarations `trunkline/match` of the tools.

A declaration is a list of rules: {"pattern", "require", "fallback", "arguments", "answer"}. The
first rule of a tool whose pattern occurs in the question is its match, unless a group lacks what
`require` demands of it. Among tools the longest match wins, and a `fallback` only counts if nothing
else matches. Arguments are built from the pattern's groups. Pure and deterministic. Patterns are
RE2's, and all sizes are limited, since tool servers declare them.
"""

import logging
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from trunkline.patterns import PATTERN_LIMIT_CHARS, Pattern, PatternMatch, compile_pattern

logger = logging.getLogger(__name__)

QUESTION_LIMIT_CHARS: Final = 2000
"""Longer questions match nothing. This bounds the cost of patterns, which tool servers write."""
_STEP_LIMIT: Final = 200_000_000
"""RE2's steps for all patterns and one question, of about 10 ns. More declarations are skipped."""
_COMPILE_STEPS: Final = 1000
"""The steps that a character of a pattern costs, for its compilation."""
_GROUPS_PER_STEP: Final = 10
"""The groups whose places are copied in the time of a step."""
_TEMPLATE_LIMIT_CHARS: Final = 4000
_TEXT_LIMIT_CHARS: Final = 1_000_000
"""Templates whose results are longer together are not filled."""
_PIECES_LIMIT: Final = 8
_SEPARATOR: Final = re.compile(
    r"\s*[;\n]\s*|(?<=[?.!])\s+|,?\s+and\s+(?:then\s+)?|,\s+(?:then\s+)?", re.IGNORECASE
)
_FIELD: Final = re.compile(r"\{(\w+(?:\.\w+)*)\}")
_TRUE: Final = frozenset({"1", "on", "true", "yes"})
# Errors that malformed declarations cause.
_DECLARATION_ERRORS: Final = (
    AttributeError,
    LookupError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)


class _MissingGroup(Exception):  # noqa: N818
    """A group that an argument needs did not take part in the match."""


class _BudgetSpent(Exception):  # noqa: N818
    """The patterns took all the steps that a question may cost."""


@dataclass(frozen=True, slots=True)
class ToolMatch:
    """The tool call for a question, or for a part of it."""

    tool: str
    arguments: dict[str, Any]
    answer: str = ""
    """A template for the structured result; "": use the tool's text."""


def match_tools(question: str, declarations: Mapping[str, Sequence[Any]]) -> list[ToolMatch]:
    """Return the calls for a question, in the order of its parts; [] if nothing matches.

    `declarations` are keyed by the names of tools. The result has several calls only if no pattern
    matches the whole question, and "and", commas and ends of sentences divide it into parts that
    are each matched completely. A malformed declaration is logged once and skipped.
    """
    text = question.strip()
    if not text or len(text) > QUESTION_LIMIT_CHARS:
        return []
    budget = _Budget()
    best = _find_best(text, declarations, budget)
    if best is not None and best[0] == len(text):
        return [best[1]]
    pieces = [piece.strip() for piece in _SEPARATOR.split(text)]
    if 1 < len(pieces) <= _PIECES_LIMIT and all(pieces):
        found = [_find_best(piece, declarations, budget) for piece in pieces]
        matches = [
            match[1]
            for piece, match in zip(pieces, found, strict=True)
            if match is not None and match[0] == len(piece)
        ]
        if len(matches) == len(pieces):
            return matches
    return [] if best is None else [best[1]]


def fill_answer(template: str, structured: Mapping[str, Any]) -> str | None:
    """Fill `{name}` and `{name.of.nested}` in a template; None if the result lacks a value."""

    def find(path: str) -> str:
        value: Any = structured
        for step in path.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        if value is None or isinstance(value, Mapping | list):
            raise _MissingGroup
        return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)

    if len(template) > _TEMPLATE_LIMIT_CHARS:
        return None
    try:
        return _FIELD.sub(lambda field: find(field[1]), template)
    except _MissingGroup:
        return None


class _Budget:
    """Limits the cost of the declarations for one question. Each tool has its share."""

    def __init__(self) -> None:
        self._steps = _STEP_LIMIT
        self._chars = 0
        self._reserved = 0
        self._patterns: set[str] = set()

    def begin_tool(self, tools_left: int) -> None:
        """Reserve the shares of the tools after this one."""
        self._chars = _TEXT_LIMIT_CHARS
        self._reserved = self._steps - self._steps // tools_left

    def charge_text(self, chars: int) -> None:
        """Charge a text before it is made.

        Raises:
            ValueError: it is longer than what remains.
        """
        if chars > self._chars:
            raise ValueError("the filled templates are too long")
        self._chars -= chars

    def compile(self, pattern: str, text: str) -> Pattern:
        """Return a compiled pattern, for one search in a text.

        Raises:
            _BudgetSpent: the search may cost more than what remains of the tool's share.
        """
        if pattern not in self._patterns:
            self._charge(_COMPILE_STEPS * min(len(pattern), PATTERN_LIMIT_CHARS))
            self._patterns.add(pattern)
        compiled = compile_pattern(pattern)
        size = compiled.programsize * (_GROUPS_PER_STEP + compiled.groups) // _GROUPS_PER_STEP
        # RE2 searches the text's UTF-8.
        self._charge(size * (len(text.encode(errors="replace")) + 1))
        return compiled

    def _charge(self, steps: int) -> None:
        if steps > self._steps - self._reserved:
            raise _BudgetSpent
        self._steps -= steps


def _find_best(
    text: str, declarations: Mapping[str, Sequence[Any]], budget: _Budget
) -> tuple[int, ToolMatch] | None:
    """Return the longest match and its length, which is 0 for a fallback."""
    best: tuple[int, ToolMatch] | None = None
    for number, (tool, rules) in enumerate(declarations.items()):
        budget.begin_tool(len(declarations) - number)
        try:
            match = _match_tool(text, tool, rules, budget)
        except _BudgetSpent:
            _log_problem(tool, "its patterns are too large together")
            continue
        if match is not None and (best is None or match[0] > best[0]):
            best = match
    return best


def _match_tool(
    text: str, tool: str, rules: Sequence[Any], budget: _Budget
) -> tuple[int, ToolMatch] | None:
    for rule in rules:
        try:
            match = budget.compile(rule["pattern"], text).search(text)
            if match is None or not _has_required(match, rule.get("require", {}), budget):
                continue
            arguments = _build_arguments(match, rule.get("arguments", {}), budget)
            length = 0 if rule.get("fallback") else match.end() - match.start()
            return length, ToolMatch(tool, arguments, str(rule.get("answer", "")))
        except _DECLARATION_ERRORS as error:
            _log_problem(tool, f"{type(error).__name__}: {error}")
    return None


def _has_required(match: PatternMatch, required: Mapping[str, str], budget: _Budget) -> bool:
    for group, pattern in required.items():
        part = match[int(group) if group.isdecimal() else group] or ""
        if budget.compile(pattern, part).search(part) is None:
            return False
    return True


@lru_cache(maxsize=1024)
def _log_problem(tool: str, problem: str) -> None:
    """Log a malformed declaration. Cached, so that it is logged once."""
    extra = {"tool": tool, "problem": problem}
    logger.warning("matching.declaration_passed_over", extra=extra)


def _build_arguments(
    groups: PatternMatch, specs: Mapping[str, Any], budget: _Budget
) -> dict[str, Any]:
    arguments = {}
    for name, spec in specs.items():
        try:
            arguments[name] = _build_argument(groups, spec, budget)
        except _MissingGroup:
            if isinstance(spec, Mapping) and "default" in spec:
                arguments[name] = spec["default"]
    return arguments


def _build_argument(groups: PatternMatch, spec: object, budget: _Budget) -> object:
    """Return an argument's value, from a template, a literal, a list of both, or a table."""
    match spec:
        case str():
            return _fill_template(groups, spec, budget)
        case Mapping() if "from" in spec:
            text = _fill_template(groups, spec["from"], budget)
            mapping = {str(key).casefold(): value for key, value in spec.get("map", {}).items()}
            value = mapping.get(text.casefold(), text)
            kind = spec.get("type", "")
            return _convert_value(value, kind) if isinstance(value, str) else value
        case Mapping():
            return spec["default"]
        case list():
            return [_build_argument(groups, item, budget) for item in spec]
        case _:
            return spec


def _fill_template(groups: PatternMatch, template: str, budget: _Budget) -> str:
    if len(template) > _TEMPLATE_LIMIT_CHARS:
        raise ValueError("a template is too long")

    def replace_field(field: re.Match[str]) -> str:
        name = field[1]
        try:
            value = groups[int(name)] if name.isdecimal() else groups[name]
        except IndexError:
            # Patterns of one tool may share arguments and still have different groups.
            value = None
        if value is None:
            raise _MissingGroup
        budget.charge_text(len(value))
        return value

    return _FIELD.sub(replace_field, template).strip()


def _convert_value(text: str, kind: str) -> object:
    try:
        match kind:
            case "integer":
                return int(text.replace(",", ""))
            case "number":
                number = float(text.replace(",", ""))
                if not math.isfinite(number):
                    raise _MissingGroup
                return int(number) if number.is_integer() and abs(number) < 2**53 else number
            case "boolean":
                return text.casefold() in _TRUE
            case _:
                return text
    except (ValueError, OverflowError):
        raise _MissingGroup from None
