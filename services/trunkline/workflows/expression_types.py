"""Checks the types of expressions before a run, by evaluating them on samples of declared types.

The types come from the schema of the input, from what results and messages always hold, and from
literals that actions set. An expression that reads anything else is left out. A type of several
forms has a sample of each, and only what fails for all of them is a fault. Errors that depend on
the values, such as a division by zero or an index, are none.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final, NamedTuple

from trunkline.workflows.expressions import Expression, ExpressionError, ExpressionTypeError

_MAX_SAMPLES: Final = 64
_SCALARS: Final[Mapping[str, Sequence[Any]]] = {
    "string": ("text",),
    "integer": (1,),
    "number": (1, 1.5),
    "boolean": (True, False),
    "null": (None,),
}
# These depend on other values or schemas, so the type alone says nothing.
_COMBINED: Final = frozenset(
    {"$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "prefixItems"}
)
_RESULT: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("node", "text", "value", "state", "label"), "text"),
    "time": 1.5,
}
_MESSAGE: Final[Mapping[str, Any]] = dict.fromkeys(
    ("id", "causation_id", "correlation_id", "type", "sender", "recipient", "room", "text"), "text"
)
# `has(…)` asks for a value that is not there on some ways; its type is a boolean.
_HAS: Final = re.compile(r"\bhas\s*\(\s*[\w.\s]+\)")
_NAMES: Final = {
    bool: "boolean",
    int: "integer",
    float: "number",
    str: "string",
    list: "array",
    dict: "object",
    type(None): "null",
}

_Path = tuple[str, ...]


class TypeFinding(NamedTuple):
    """The knowledge of an expression before it runs."""

    values: Sequence[Any] | None = None
    """A value of each form that it may have, if its forms are known."""
    problem: str = ""
    """The reason why it fails for all values of the declared types, or "" if it may succeed."""


@dataclass(slots=True)
class ExpressionTypes:
    """The declared types of a workflow's variables."""

    inputs: Mapping[str, Any] | None
    """The schema of the input."""
    data: Mapping[str, Sequence[Any]]
    """The values that actions set, where all are literals."""
    _known: dict[str, TypeFinding] = field(default_factory=dict)

    def check(self, expression: Expression) -> TypeFinding:
        """Evaluate an expression on samples of what it reads."""
        outcome = self._known.get(expression.source)
        if outcome is None:
            outcome = self._known[expression.source] = self._check(expression)
        return outcome

    def _check(self, expression: Expression) -> TypeFinding:
        try:
            expression = Expression.parse(_HAS.sub("true", expression.source))
        except ExpressionError:
            return TypeFinding()
        samples: dict[_Path, Sequence[Any]] = {}
        for path in expression.references:
            found = self._find(path)
            if found is None:
                return TypeFinding()
            samples[found[0]] = found[1]
        values: list[Any] = []
        problem, is_typed = "", False
        combinations = _combine(list(samples.values()))
        if combinations is None:
            return TypeFinding()
        for chosen in combinations:
            try:
                values.append(expression.evaluate(_nest(samples, chosen)))
            except ExpressionTypeError as error:
                problem = str(error)
            except ExpressionError:
                is_typed = True
        if values or is_typed or not problem:
            return TypeFinding(None if is_typed else values)
        read = (f"`{'.'.join(path)}` is {describe(found)}" for path, found in samples.items())
        return TypeFinding(None, "; ".join((problem, *read)))

    def _find(self, path: _Path) -> tuple[_Path, Sequence[Any]] | None:
        """Return the samples of what a path reads, and the part of it that they stand for."""
        match path:
            case ("input", *_):
                return None if self.inputs is None else self._find_input(path)
            case ("nodes", _, name, *_) if name in _RESULT:
                return path[:3], (_RESULT[name],)
            case ("last", name, *_) if name in _RESULT:
                return path[:2], (_RESULT[name],)
            case ("message", name, *_) if name in _MESSAGE:
                return path[:2], (_MESSAGE[name],)
            case ("data", name, *_) if name in self.data:
                samples = self.data[name]
                is_whole = len(path) == 2 or not any(isinstance(each, dict) for each in samples)
                return (path[:2], samples) if is_whole else None
        return None

    def _find_input(self, path: _Path) -> tuple[_Path, Sequence[Any]] | None:
        schema: Any = {"type": "object", **(self.inputs or {})}
        for length, name in enumerate(path[1:], 1):
            if not isinstance(schema, Mapping) or _COMBINED & schema.keys():
                return None
            if schema.get("type") in (*_SCALARS, "array"):
                # It has no fields, which the evaluation finds.
                samples = build_samples(schema)
                return None if samples is None else (path[:length], samples)
            properties = schema.get("properties")
            if schema.get("type") != "object" or not isinstance(properties, Mapping):
                return None
            schema = properties.get(name)
        samples = build_samples(schema)
        return None if samples is None else (path, samples)


def build_samples(schema: Any) -> Sequence[Any] | None:  # noqa: ANN401  a JSON Schema
    """Return a value of each form that a schema allows, if its type is known."""
    if not isinstance(schema, Mapping) or _COMBINED & schema.keys():
        return None
    if "const" in schema:
        return (schema["const"],)
    if isinstance(schema.get("enum"), list | tuple):
        return tuple({type(value): value for value in schema["enum"]}.values()) or None
    kind = schema.get("type")
    if isinstance(kind, list | tuple):
        forms = [build_samples({**schema, "type": each}) for each in kind]
        return None if None in forms else [each for form in forms for each in form or ()]
    if isinstance(kind, str) and kind in _SCALARS:
        return _SCALARS[kind]
    if kind == "array":
        if "items" not in schema:
            return ([],)
        items = build_samples(schema["items"])
        return None if items is None else [[item] for item in items]
    return _build_objects(schema) if kind == "object" else None


def _build_objects(schema: Mapping[str, Any]) -> Sequence[Any] | None:
    properties = schema.get("properties", {})
    if not isinstance(properties, Mapping):
        return None
    fields: list[Sequence[Any]] = []
    for each in properties.values():
        samples = build_samples(each)
        if samples is None:
            return None
        fields.append(samples)
    combinations = _combine(fields)
    if combinations is None:
        return None
    return [dict(zip(properties, chosen, strict=True)) for chosen in combinations]


def list_kinds(values: Sequence[Any]) -> list[str]:
    """Return the types of values, by the names of JSON Schema."""
    return list(dict.fromkeys(_NAMES.get(type(value), "string") for value in values))


def describe(values: Sequence[Any]) -> str:
    """Return the types of values, in words."""
    kinds = list_kinds(values)
    if "number" in kinds and "integer" in kinds:
        kinds.remove("integer")
    articles = {"integer": "an", "array": "an", "object": "an", "null": ""}
    return " or ".join(f"{articles.get(kind, 'a')} {kind}".strip() for kind in kinds)


def _combine(values: Sequence[Sequence[Any]]) -> list[Sequence[Any]] | None:
    """Return all combinations, with one value of each list, unless there are too many."""
    count = 1
    for each in values:
        count *= len(each)
        if count > _MAX_SAMPLES:
            return None
    return list(product(*values))


def _nest(paths: Mapping[_Path, Any], values: Sequence[Any]) -> dict[str, Any]:
    """Return variables with these values at these paths."""
    variables: dict[str, Any] = {"steps": 1}
    # What is within another value comes after it.
    for path, value in sorted(zip(paths, values, strict=True), key=lambda item: len(item[0])):
        holder = variables
        for name in path[:-1]:
            inner = holder.get(name)
            holder[name] = dict(inner) if isinstance(inner, Mapping) else {}
            holder = holder[name]
        holder[path[-1]] = value
    for result in (*variables.get("nodes", {}).values(), variables.get("last")):
        if isinstance(result, dict):
            # The `value` of a result follows from its text.
            result.setdefault("text", "text")
    return variables
