"""Finds the tool for a question by the declarations `trunkline/match` of the tools.

A declaration is a list of rules: {"contains", "pattern", "require", "exclude", "fallback",
"arguments", "answer"}. The first pattern of a tool that occurs in the question is its match, unless
a group lacks what `require` demands of it, or has what `exclude` forbids. A pattern is tried only
if the question has the short pattern `contains`. Among tools, the longest match wins, and a
`fallback` loses. Arguments are built from the pattern's groups and from earlier answers of the
conversation: `{answer}` is the last one, `{answers}` all of them joined by `join`. An argument from
answers may select them by a pattern, `only`, and require a number of them, `least`. If there are
too few, the declaration does not match. A question is matched without polite words, where all of it
has to match, then as it is asked, then with digits for numbers and dates in words, then without
"if I" or "how do I" around an action, then with the amount stated before in place of a reference
to it. If none of them matches, misspelled words are corrected by those of the patterns. A fallback
counts only if nothing else matches.
Pure and deterministic. Patterns are RE2's, and all sizes are limited, since others declare them.
"""

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from trunkline.patterns import PATTERN_LIMIT_CHARS, Pattern, PatternMatch, compile_pattern
from trunkline.phrasing import (
    Vocabulary,
    ask_for_action,
    resolve_amounts,
    split_ellipsis,
    split_pair,
    strip_courtesy,
    strip_present,
    write_digits,
)
from trunkline.reasoning.models.pattern_words import list_pattern_words

logger = logging.getLogger(__name__)

QUESTION_LIMIT_CHARS = 2000
"""Longer questions match nothing. This bounds the cost of patterns, which others write."""
_STEP_LIMIT = 200_000_000
"""RE2's steps for all patterns and one question, of about 10 ns. More declarations are skipped."""
_COMPILE_STEPS = 1000
"""The steps that a character of a pattern costs, for its compilation."""
_GROUPS_PER_STEP = 10
"""The groups whose places are copied in the time of a step."""
_TEMPLATE_LIMIT_CHARS = 4000
_TEXT_LIMIT_CHARS = 1_000_000
"""Templates whose results are longer together are not filled."""
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
# "4,824", and not the arguments of a call.
_GROUPED = re.compile(r"(?<![\d.,(\w])\d{1,3}(?:,\d{3})+(?![\d,)])")
# Splits before a preposition that a part of the same question begins with.
_SHARED = re.compile(r"(?:,\s{0,4}|\s)and\s(?:also\s)?(?=(?:in|to|into)\s)", re.IGNORECASE)
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
    is_fallback: bool = False
    """True if its pattern is for questions that no other pattern matches."""


def match_tools(
    question: str, declarations: Mapping[str, Sequence[Any]], answers: Sequence[str] = ()
) -> list[ToolMatch]:
    """Return the calls for a question, in the order of its parts; [] if nothing matches.

    Returns several only if each part of the question is matched completely. Otherwise the result is
    that of `match_tool`.
    """
    fallback = None
    budget = _Budget()
    asked = question.strip()
    for text in _list_phrasings(asked):
        if matches := _match_pieces(text, declarations, answers, budget):
            return matches
        best = _find_best(text, declarations, answers, budget)
        if best is None:
            continue
        length, match = best
        fallback = fallback or match
        # Words that seem polite may be a part of the question.
        if not match.is_fallback and (text == asked or length == len(text)):
            return [match]
    for text in _list_corrections(asked, declarations):
        best = _find_best(text, declarations, answers, budget)
        if best and not best[1].is_fallback and best[0] == len(text):
            return [best[1]]
    return [fallback] if fallback else []


def match_tool(
    question: str, declarations: Mapping[str, Sequence[Any]], answers: Sequence[str] = ()
) -> ToolMatch | None:
    """Return the best match among `declarations`, keyed by tool name; None if nothing matches.

    The question is taken as it is asked, and whole. `answers` are the earlier answers of the
    conversation, oldest first. A malformed declaration is logged once and skipped.
    """
    text = question.strip()
    if len(text) > QUESTION_LIMIT_CHARS:
        return None
    best = _find_best(text, declarations, answers, _Budget())
    return best[1] if best else None


def _list_phrasings(question: str) -> list[str]:
    """Return the texts of a question to match, in their order."""
    if len(question) > QUESTION_LIMIT_CHARS:
        return []
    direct = strip_courtesy(question)
    in_digits = _GROUPED.sub(_join_groups, write_digits(direct))[:QUESTION_LIMIT_CHARS]
    resolved = (
        _GROUPED.sub(_join_groups, write_digits(strip_courtesy(text)))
        for text in resolve_amounts(direct)
    )
    action = ask_for_action(in_digits)
    actions = (action,) if action else ()
    # Last: a search for documents has all words of the question.
    timeless = strip_present(in_digits)
    return list(dict.fromkeys((direct, question, in_digits, *actions, *resolved, timeless)))


def _join_groups(number: re.Match[str]) -> str:
    return number[0].replace(",", "")


def _list_corrections(question: str, declarations: Mapping[str, Sequence[Any]]) -> Sequence[str]:
    """Return the texts of a question with misspelled words corrected by those of the patterns."""
    if len(question) > QUESTION_LIMIT_CHARS:
        return []
    patterns = tuple(
        pattern
        for rules in declarations.values()
        for rule in rules
        if isinstance(rule, Mapping) and isinstance(pattern := rule.get("pattern"), str)
    )
    corrected = _build_vocabulary(patterns).correct(question)
    return [] if corrected == question else _list_phrasings(corrected)


@lru_cache(maxsize=16)
def _build_vocabulary(patterns: tuple[str, ...]) -> Vocabulary:
    return Vocabulary(
        word
        for pattern in patterns
        if len(pattern) <= PATTERN_LIMIT_CHARS
        for word in list_pattern_words(pattern)
    )


def _match_pieces(
    text: str,
    declarations: Mapping[str, Sequence[Any]],
    answers: Sequence[str],
    budget: "_Budget",
) -> list[ToolMatch]:
    """Return the calls for the parts of a question, if there are several and all match."""
    pieces = [write_digits(piece) for piece in split_pair(text)]
    pieces = pieces or list(split_ellipsis(text)) or _share_opening(_CONJUNCTION.split(text))
    if not 1 < len(pieces) <= _PIECES_LIMIT:
        return []
    candidates = [_find_best(piece, declarations, answers, budget) for piece in pieces]
    matches = [
        match[1]
        for piece, match in zip(pieces, candidates, strict=True)
        if match is not None and match[0] == len(piece)
    ]
    return matches if len(matches) == len(pieces) else []


def _share_opening(pieces: list[str]) -> list[str]:
    """Return the parts of a question, each whole: "5 km in miles and in feet" asks of 5 km twice.

    A part that begins with a preposition takes what the first part has before the same one.
    """
    if len(pieces) > 1:
        return pieces
    parts = _SHARED.split(pieces[0])
    if not 1 < len(parts) <= _PIECES_LIMIT:
        return pieces
    preposition = parts[1].split(maxsplit=1)[0]
    first, found, _ = parts[0].rpartition(f" {preposition} ")
    return [parts[0], *(f"{first} {part}" for part in parts[1:])] if found else pieces


class _Texts:
    """Limits the texts that templates make."""

    def __init__(self) -> None:
        self._remaining = _TEXT_LIMIT_CHARS

    def charge(self, chars: int) -> None:
        """Charge a text before it is made.

        Raises:
            ValueError: it is longer than what remains.
        """
        if chars > self._remaining:
            raise ValueError("the filled templates are too long")
        self._remaining -= chars


class _Budget:
    """Limits what the declarations cost for one question. Each tool has its share."""

    def __init__(self) -> None:
        self.texts = _Texts()
        self._steps = _STEP_LIMIT
        self._reserved = 0
        self._patterns: set[str] = set()

    def begin_tool(self, tools_left: int) -> None:
        """Reserve the shares of the tools after this one."""
        self.texts = _Texts()
        self._reserved = self._steps - self._steps // tools_left

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
    text: str,
    declarations: Mapping[str, Sequence[Any]],
    answers: Sequence[str],
    budget: _Budget,
) -> tuple[int, ToolMatch] | None:
    """Return the longest match and its length."""
    best: tuple[int, ToolMatch] | None = None
    for number, (tool, rules) in enumerate(declarations.items()):
        budget.begin_tool(len(declarations) - number)
        try:
            match = _match_tool(text, tool, rules, answers, budget)
        except _BudgetSpent:
            _log_problem(tool, "its patterns are too large together")
            continue
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
        text = _fill(_PATH, get_value, template, _Texts())
    except ValueError:
        return None
    return None if is_incomplete else text


def _fill(
    fields: re.Pattern[str],
    get_value: Callable[[re.Match[str]], str],
    template: str,
    texts: _Texts,
) -> str:
    """Replace the fields of a template.

    Raises:
        ValueError: the template or the result is too long.
    """
    if len(template) > _TEMPLATE_LIMIT_CHARS:
        raise ValueError("a template is too long")

    def get_bounded(field: re.Match[str]) -> str:
        value = get_value(field)
        texts.charge(len(value))
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
            sources = _Sources(match, answers, budget)
            arguments = _build_arguments(sources, rule.get("arguments", {}))
            answer = rule.get("answer", "")
            is_fallback = bool(rule.get("fallback"))
            length = 0 if is_fallback else match.end() - match.start()
            return length, ToolMatch(tool, arguments, str(answer), is_fallback)
        except _MissingAnswers:
            continue
        except _DECLARATION_ERRORS as error:
            _log_problem(tool, f"{type(error).__name__}: {error}")
    return None


def _match_rule(text: str, rule: Mapping[str, Any], budget: _Budget) -> PatternMatch | None:
    contained = rule.get("contains")
    if contained and budget.compile(contained, text).search(text) is None:
        return None
    match = budget.compile(rule["pattern"], text).search(text)
    if match is None:
        return None
    for group, required in rule.get("require", {}).items():
        part = _get_group(match, group)
        if budget.compile(required, part).search(part) is None:
            return None
    for group, excluded in rule.get("exclude", {}).items():
        part = _get_group(match, group)
        if budget.compile(excluded, part).search(part) is not None:
            return None
    return match


def _get_group(match: PatternMatch, group: str) -> str:
    return match[int(group) if group.isdecimal() else group] or ""


@lru_cache(maxsize=1024)
def _log_problem(tool: str, problem: str) -> None:
    """Log a malformed declaration. Cached, so that it is logged once."""
    extra = {"tool": tool, "problem": problem}
    logger.warning("matching.declaration_passed_over", extra=extra)


@dataclass(frozen=True, slots=True)
class _Sources:
    """The sources of arguments, and what they may cost."""

    groups: PatternMatch
    answers: Sequence[str]
    budget: _Budget


def _build_arguments(sources: _Sources, specs: Mapping[str, Any]) -> dict[str, Any]:
    arguments = {}
    for name, spec in specs.items():
        try:
            arguments[name] = _build_argument(sources, spec)
        except _MissingGroup:
            if isinstance(spec, Mapping) and "default" in spec:
                arguments[name] = spec["default"]
    return arguments


def _build_argument(sources: _Sources, spec: object) -> object:
    """Return an argument's value, from a template, a literal, a list of both, or a table."""
    match spec:
        case str():
            return _fill_template(sources, spec, {})
        case Mapping() if "from" in spec:
            return _map_value(_fill_template(sources, spec["from"], spec), spec)
        case Mapping():
            return spec["default"]
        case list():
            return [_build_argument(sources, item) for item in spec]
        case _:
            return spec


def _map_value(text: str, spec: Mapping[str, Any]) -> object:
    mapping = {str(key).casefold(): value for key, value in spec.get("map", {}).items()}
    value = mapping.get(text.casefold(), text)
    return _convert_value(value, spec.get("type", "")) if isinstance(value, str) else value


def _fill_template(sources: _Sources, template: str, spec: Mapping[str, Any]) -> str:
    def replace_field(field: re.Match[str]) -> str:
        name = field[1]
        if name == "answer":
            return _select_answers(sources, spec)[-1]
        if name == "answers":
            return _join_answers(sources, spec)
        try:
            value = sources.groups[int(name)] if name.isdecimal() else sources.groups[name]
        except IndexError:
            # Patterns of one tool may share arguments and still have different groups.
            value = None
        if value is None:
            raise _MissingGroup
        return str(value)

    return _fill(_FIELD, replace_field, template, sources.budget.texts).strip()


def _join_answers(sources: _Sources, spec: Mapping[str, Any]) -> str:
    answers = _select_answers(sources, spec)
    separator = str(spec.get("join", ", "))
    length = sum(map(len, answers)) + len(separator) * (len(answers) - 1)
    # Not even the memory for a text that is too long.
    if length > _TEXT_LIMIT_CHARS:
        raise ValueError("the answers are too long together")
    return separator.join(answers)


def _select_answers(sources: _Sources, spec: Mapping[str, Any]) -> Sequence[str]:
    """Return the answers that an argument may use."""
    answers = sources.answers
    if only := spec.get("only"):
        answers = [
            answer
            for answer in answers[-_ANSWERS_LIMIT:]
            if len(answer) <= QUESTION_LIMIT_CHARS
            and sources.budget.compile(only, answer).fullmatch(answer)
        ]
    if len(answers) < max(1, int(spec.get("least", 1))):
        raise _MissingAnswers
    return answers


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
