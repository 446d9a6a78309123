"""Checks values against the JSON Schemas of workflows and tools.

Patterns are run by RE2, because the text and the pattern may be a caller's: `(a+)+$` would hold up
the whole process otherwise. RE2 has no lookaround and no backreferences.
"""

import importlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from trunkline.core.json_types import JsonValue
from trunkline.core.light_imports import leave_out
from trunkline.core.patterns import InvalidPatternError, Pattern, compile_pattern
from trunkline.core.source_documents import Keys, walk_texts

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError
    from jsonschema.protocols import Validator


# jsonschema loads this parser of URIs if it is installed, which takes seconds. We check no formats.
_SLOW_PARSER = "rfc3987_syntax"
_MESSAGE_CHARS = 300
_MAX_PROBLEMS = 5
_PATTERN_KEYWORDS = frozenset({"pattern", "patternProperties", "additionalProperties"})


def _load_jsonschema() -> None:
    """Load jsonschema without a slow parser that is optional. Others may load the parser later.

    To be called before jsonschema is imported for the first time.
    """
    with leave_out(_SLOW_PARSER):
        importlib.import_module("jsonschema")


def build_validator(schema: Mapping[str, Any]) -> "Validator":
    """Return a validator (JSON Schema 2020-12). It finds a fault where a pattern is not RE2's."""
    return _build_class()(dict(schema))


class UncheckableSchemaError(ValueError):
    """A reference in a schema leads nowhere, or back to itself. The text is the kind of error."""


def find_schema_problems(schema: Mapping[str, Any]) -> Iterator[tuple[Keys, str]]:
    """Yield the faults of a schema, each with its path in the schema."""
    _load_jsonschema()
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError

    try:
        Draft202012Validator.check_schema(dict(schema))
    except SchemaError as error:
        yield tuple(error.absolute_path), f"is no JSON Schema: {error.message}"
    except RecursionError:
        yield (), "is no JSON Schema that can be checked: it is nested too deeply"
    for keys, text in walk_texts(schema):
        match keys[-1]:
            case "$ref" | "$dynamicRef" if not text.startswith("#"):
                problem = f"{text!r} is outside this file; write the schema here, under $defs"
                yield keys, problem
            case "pattern" if problem := _find_pattern_problem(text):
                yield keys, f"is no pattern in the syntax of RE2: {problem}"


def find_problems(
    schema: Mapping[str, Any],
    value: JsonValue,
    *,
    part: Mapping[str, Any] | None = None,
) -> list[tuple[Keys, str]]:
    """Return the first faults of a value, each with its path in the value.

    With `part`, the value is checked against this part of the schema.

    Raises:
        UncheckableSchemaError: the schema can't be used.
    """
    validator = build_validator(schema)
    if part is not None:
        validator = validator.evolve(schema=part)
    try:
        errors = list(islice(validator.iter_errors(value), _MAX_PROBLEMS))
    except Exception as error:
        raise UncheckableSchemaError(type(error).__name__) from error
    return [(tuple(error.absolute_path), error.message) for error in errors]


def find_problem(schema: Mapping[str, Any], value: JsonValue) -> str:
    """Return the first fault of a value with the path of its member, or "" without a fault."""
    return _describe(build_validator(schema).iter_errors(value))


def find_argument_problem(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """Return the first fault of the arguments of a tool, or "" if no fault can be found.

    The server of the tool checks its own schema, which may be of a kind that is not understood
    here, and its patterns, which may not be patterns of RE2.
    """
    validator = build_validator(schema)
    from jsonschema.exceptions import SchemaError
    from referencing.exceptions import Unresolvable

    try:
        validator.check_schema(dict(schema))
        errors = validator.iter_errors(dict(arguments))
        return _describe(error for error in errors if error.validator not in _PATTERN_KEYWORDS)
    except (SchemaError, Unresolvable, RecursionError):
        return ""


def _describe(errors: "Iterable[ValidationError]") -> str:
    # Only now, since the validator loads jsonschema without its slow parts.
    from jsonschema.exceptions import best_match

    error = best_match(iter(errors))
    if error is None:
        return ""
    path = ".".join(map(str, error.absolute_path))
    text = error.message
    message = text if len(text) <= _MESSAGE_CHARS else f"{text[:_MESSAGE_CHARS]}…"
    return f"{path}: {message}" if path else message


def _find_pattern_problem(pattern: str) -> str:
    """Return the reason why a pattern can't be used, or "" if it can be used."""
    try:
        _compile(pattern)
    except InvalidPatternError as error:
        return str(error)
    return ""


def _compile(pattern: str) -> Pattern:
    # The case counts in patterns of JSON Schema.
    return compile_pattern(f"(?-i){pattern}")


def _has_match(pattern: str, text: str) -> bool:
    return _compile(pattern).search(text) is not None


@cache
def _build_class() -> "type[Validator]":
    _load_jsonschema()
    from jsonschema import Draft202012Validator
    from jsonschema.validators import extend

    keywords = {
        "pattern": _check_pattern,
        "patternProperties": _check_pattern_properties,
        "additionalProperties": _check_additional_properties,
    }
    extended: type[Validator] = extend(Draft202012Validator, keywords)
    return extended


def _check_pattern(
    _: "Validator",
    pattern: str,
    text: JsonValue,
    __: Mapping[str, Any],
) -> Iterator["ValidationError"]:
    from jsonschema.exceptions import ValidationError

    try:
        if isinstance(text, str) and not _has_match(pattern, text):
            yield ValidationError(f"{text!r} does not match {pattern!r}")
    except InvalidPatternError as error:
        yield ValidationError(f"the pattern {pattern!r} can't be used: {error}")


def _check_pattern_properties(
    validator: "Validator",
    patterns: Mapping[str, Any],
    value: JsonValue,
    _: Mapping[str, Any],
) -> Iterator["ValidationError"]:
    from jsonschema.exceptions import ValidationError

    if not isinstance(value, dict):
        return
    for pattern, schema in patterns.items():
        try:
            names = [name for name in value if _has_match(pattern, name)]
        except InvalidPatternError as error:
            yield ValidationError(f"the pattern {pattern!r} can't be used: {error}")
            continue
        for name in names:
            yield from validator.descend(value[name], schema, path=name, schema_path=pattern)


def _check_additional_properties(
    validator: "Validator",
    additional: Any,  # noqa: ANN401  a schema
    value: JsonValue,
    schema: Mapping[str, Any],
) -> Iterator["ValidationError"]:
    from jsonschema.exceptions import ValidationError

    if not isinstance(value, dict):
        return
    patterns = schema.get("patternProperties", {})
    for name in value:
        try:
            is_known = any(_has_match(pattern, name) for pattern in patterns)
        except InvalidPatternError:
            # `patternProperties` has the fault.
            is_known = True
        if is_known or name in schema.get("properties", {}):
            continue
        if additional is False:
            yield ValidationError(f"there is no property {name!r}")
        else:
            yield from validator.descend(value[name], additional, path=name)
