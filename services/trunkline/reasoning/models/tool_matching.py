"""Finds the tool for a question by the declarations `trunkline/match` of the tools.

A declaration is a list of {"pattern", "require", "fallback", "arguments", "answer"}. The first
pattern of a tool that occurs in the question is its match, unless a group lacks what `require`
demands of it. Among tools, the longest match wins, and a `fallback` loses. Arguments are built from
the pattern's groups and from earlier answers of the conversation: `{answer}` is the last one,
`{answers}` all of them joined by `join`. An argument from answers may select them by a pattern,
`only`, and require a number of them, `least`. If there are too few, the declaration does not match.
Pure and deterministic. Patterns are RE2's, and all sizes are limited, since others declare them.
"""

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from trunkline.patterns import PatternMatch, compile_pattern

logger = logging.getLogger(__name__)

QUESTION_LIMIT_CHARS = 2000
"""Longer questions match nothing. This bounds the cost of patterns, which others write."""
_STEP_LIMIT = 100_000_000
"""RE2's steps for all patterns and one question: about a second. More declarations are skipped."""
_PATTERN_LIMIT = 500
"""The patterns for one question. More declarations are skipped."""
_TEMPLATE_LIMIT_CHARS = 4000
_TEXT_LIMIT_CHARS = 1_000_000
"""Templates with longer results are not filled."""
_PIECES_LIMIT = 8
_ANSWERS_LIMIT = 100
"""The earlier answers that `only` selects from. It never selects one longer than a question."""
# Splits a question before words that start a new one. Other words after "and" may belong to the
# part before it.
_CONJUNCTION = re.compile(
    r"(?:[,;.?]\s{0,4}|\s)(?:and|then|and\sthen|and\salso)\s{1,4}"
    r"(?=(?:search|look|find|get|list|show|fetch|what|which|how)\b)",
    re.IGNORECASE,
)
_FIELD = re.compile(r"\{(\w+)\}")
_PATH = re.compile(r"\{(\w+(?:\.\w+)*)\}")
_TRUE = {"1", "on", "true", "yes"}
# Errors that malformed declarations cause.
_DECLARATION_ERRORS = (
    AttributeError,
    LookupError,
    OverflowError,
    RecursionError,
    TypeError,
    ValueError,
)


class _MissingGroup(Exception):  # noqa: N818
    """A group that an argument needs did not take part in the match."""


class _MissingAnswers(Exception):  # noqa: N818
    """An argument needs more earlier answers than there are."""


class _BudgetSpent(Exception):  # noqa: N818
    """The patterns took all the steps that a question may cost."""


@dataclass(frozen=True, slots=True)
class ToolMatch:
    """The tool call for a question, or for a part of it."""

    tool: str
    arguments: dict[str, Any]
    answer: str
    """A template for the structured result; "": use the tool's text."""


def match_tools(
    question: str, declarations: Mapping[str, Sequence[Any]], answers: Sequence[str] = ()
) -> list[ToolMatch]:
    """Return the calls for a question, in the order of its parts; [] if nothing matches.

    Returns several only if each part of the question is matched completely. Otherwise the result is
    that of `match_tool`.
    """
    text = question.strip()
    budget = _Budget()
    pieces = _CONJUNCTION.split(text) if len(text) <= QUESTION_LIMIT_CHARS else []
    if 1 < len(pieces) <= _PIECES_LIMIT:
        candidates = [_find_best(piece, declarations, answers, budget) for piece in pieces]
        matches = [
            match[1]
            for piece, match in zip(pieces, candidates, strict=True)
            if match is not None and match[0] == len(piece)
        ]
        if len(matches) == len(pieces):
            return matches
    single = match_tool(question, declarations, answers)
    return [single] if single else []


def match_tool(
    question: str, declarations: Mapping[str, Sequence[Any]], answers: Sequence[str] = ()
) -> ToolMatch | None:
    """Return the best match among `declarations`, keyed by tool name; None if nothing matches.

    `answers` are the earlier answers of the conversation, oldest first. A malformed declaration is
    logged once and skipped.
    """
    text = question.strip()
    if len(text) > QUESTION_LIMIT_CHARS:
        return None
    best = _find_best(text, declarations, answers, _Budget())
    return best[1] if best else None


class _Budget:
    """Limits what the patterns for one question cost."""

    def __init__(self) -> None:
        self._steps = _STEP_LIMIT
        self._patterns: set[str] = set()

    def search(self, pattern: str, text: str) -> PatternMatch | None:
        """Return the first match of a pattern.

        Raises:
            _BudgetSpent: the search may cost more than remains.
        """
        self._patterns.add(pattern)
        if len(self._patterns) > _PATTERN_LIMIT:
            raise _BudgetSpent
        compiled = compile_pattern(pattern)
        self._steps -= compiled.programsize * (len(text) + 1)
        if self._steps < 0:
            raise _BudgetSpent
        return compiled.search(text)


def _find_best(
    text: str,
    declarations: Mapping[str, Sequence[Any]],
    answers: Sequence[str],
    budget: _Budget,
) -> tuple[int, ToolMatch] | None:
    """Return the longest match and its length."""
    best: tuple[int, ToolMatch] | None = None
    for tool, rules in declarations.items():
        try:
            match = _match_tool(text, tool, rules, answers, budget)
        except _BudgetSpent:
            _log_problem(tool, "the patterns of all tools are too large together")
            break
        if match is not None and (best is None or match[0] > best[0]):
            best = match
    return best


def fill_answer(template: str, structured: Mapping[str, Any]) -> str | None:
    """Fill `{name}` and `{name.of.nested}` in a template; None if the result lacks a value."""
    is_incomplete = False

    def get_value(field: re.Match[str]) -> str:
        nonlocal is_incomplete
        value: Any = structured
        for step in field[1].split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        if value is None or isinstance(value, Mapping | list):
            is_incomplete = True
            return ""
        return _format_value(value)

    try:
        text = _fill(_PATH, get_value, template)
    except ValueError:
        return None
    return None if is_incomplete else text


def _fill(fields: re.Pattern[str], get_value: Callable[[re.Match[str]], str], template: str) -> str:
    """Replace the fields of a template.

    Raises:
        ValueError: the template or the result is too long.
    """
    if len(template) > _TEMPLATE_LIMIT_CHARS:
        raise ValueError("a template is too long")
    remaining = _TEXT_LIMIT_CHARS

    def get_bounded(field: re.Match[str]) -> str:
        nonlocal remaining
        value = get_value(field)
        remaining -= len(value)
        if remaining < 0:
            raise ValueError("a filled template is too long")
        return value

    return fields.sub(get_bounded, template)


def _match_tool(
    text: str, tool: str, rules: Sequence[Any], answers: Sequence[str], budget: _Budget
) -> tuple[int, ToolMatch] | None:
    for rule in rules:
        try:
            match = _match_rule(text, rule, budget)
            if match is None:
                continue
            arguments = _build_arguments(match, rule.get("arguments", {}), answers)
            answer = rule.get("answer", "")
            length = 0 if rule.get("fallback") else match.end() - match.start()
            return length, ToolMatch(tool, arguments, str(answer))
        except _MissingAnswers:
            continue
        except _DECLARATION_ERRORS as error:
            _log_problem(tool, f"{type(error).__name__}: {error}")
    return None


def _match_rule(text: str, rule: Mapping[str, Any], budget: _Budget) -> PatternMatch | None:
    match = budget.search(rule["pattern"], text)
    if match is None:
        return None
    for group, required in rule.get("require", {}).items():
        part = match[int(group) if group.isdecimal() else group] or ""
        if budget.search(required, part) is None:
            return None
    return match


@lru_cache(maxsize=1024)
def _log_problem(tool: str, problem: str) -> None:
    """Log a malformed declaration. Cached, so that it is logged once."""
    extra = {"tool": tool, "problem": problem}
    logger.warning("matching.declaration_passed_over", extra=extra)


def _build_arguments(
    groups: PatternMatch, specs: Mapping[str, Any], answers: Sequence[str]
) -> dict[str, Any]:
    arguments = {}
    for name, spec in specs.items():
        try:
            arguments[name] = _build_argument(groups, spec, answers)
        except _MissingGroup:
            if isinstance(spec, Mapping) and "default" in spec:
                arguments[name] = spec["default"]
    return arguments


def _build_argument(groups: PatternMatch, spec: object, answers: Sequence[str]) -> object:
    """Return an argument's value, from a template, a literal, a list of both, or a table."""
    match spec:
        case str():
            return _fill_template(groups, spec, {}, answers)
        case Mapping() if "from" in spec:
            return _map_value(_fill_template(groups, spec["from"], spec, answers), spec)
        case Mapping():
            return spec["default"]
        case list():
            return [_build_argument(groups, item, answers) for item in spec]
        case _:
            return spec


def _map_value(text: str, spec: Mapping[str, Any]) -> object:
    mapping = {str(key).casefold(): value for key, value in spec.get("map", {}).items()}
    value = mapping.get(text.casefold(), text)
    return _convert_value(value, spec.get("type", "")) if isinstance(value, str) else value


def _fill_template(
    groups: PatternMatch, template: str, spec: Mapping[str, Any], answers: Sequence[str]
) -> str:
    def replace_field(field: re.Match[str]) -> str:
        name = field[1]
        if name in {"answer", "answers"}:
            earlier = _select_answers(spec, answers)
            return earlier[-1] if name == "answer" else str(spec.get("join", ", ")).join(earlier)
        try:
            value = groups[int(name)] if name.isdecimal() else groups[name]
        except IndexError:
            # Patterns of one tool may share arguments and still have different groups.
            value = None
        if value is None:
            raise _MissingGroup
        return str(value)

    return _fill(_FIELD, replace_field, template).strip()


def _select_answers(spec: Mapping[str, Any], answers: Sequence[str]) -> list[str]:
    """Return the answers that an argument may use."""
    earlier = list(answers)
    if only := spec.get("only"):
        pattern = compile_pattern(only)
        earlier = [
            answer
            for answer in answers[-_ANSWERS_LIMIT:]
            if len(answer) <= QUESTION_LIMIT_CHARS and pattern.fullmatch(answer)
        ]
    if len(earlier) < max(1, int(spec.get("least", 1))):
        raise _MissingAnswers
    return earlier


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


def _format_value(value: object) -> str:
    """Format a value for people: JSON numbers arrive as floats, so 5.0 becomes 5."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
