"""Expressions of workflows: CEL, and texts with `${EXPRESSION}` in them.

An expression is parsed once, when the workflow is read. It reads variables and calls functions of
CEL; it can't reach Python.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, Self

import cel

VARIABLES: Final = frozenset({"input", "nodes", "last", "data", "steps", "message"})
"""The variables that expressions read. `message` is for the conditions of waits only."""
MAX_CHARS: Final = 4_000
_FUNCTIONS: Final = frozenset(
    {"all", "exists", "exists_one", "filter", "map"}  # loops, which may be nested
)
_MAX_LOOPS: Final = 2
_LOOP: Final = re.compile(r"\.\s*(all|exists|exists_one|filter|map)\s*\(")
_OPENING: Final = "${"


class ExpressionError(ValueError):
    """An expression that can't be parsed, or that fails with the values of a run."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression."""

    source: str
    _program: Any = field(repr=False, compare=False)

    @classmethod
    def parse(cls, source: str) -> Self:
        """Parse an expression.

        Raises:
            ExpressionError: it is not CEL, is too long, or reads an unknown variable.
        """
        if len(source) > MAX_CHARS:
            raise ExpressionError(f"is longer than {MAX_CHARS:,} characters")
        if len(_LOOP.findall(source)) > _MAX_LOOPS:
            problem = f"has more than {_MAX_LOOPS} loops ({', '.join(sorted(_FUNCTIONS))})"
            raise ExpressionError(problem)
        try:
            program = cel.compile(source)
        # The library raises ValueError and, for some faults of its parser, a BaseException.
        except Exception as error:
            raise ExpressionError(_shorten(error)) from None
        unknown = sorted(set(program.variables()) - VARIABLES)
        if unknown:
            known = ", ".join(sorted(VARIABLES))
            raise ExpressionError(f"reads the unknown variable {unknown[0]!r}; there are: {known}")
        return cls(source, program)

    @property
    def variables(self) -> frozenset[str]:
        """The variables that it reads."""
        return frozenset(self._program.variables())

    def evaluate(self, variables: Mapping[str, Any]) -> Any:  # noqa: ANN401  a JSON value
        """Return the value, of JSON's types.

        Raises:
            ExpressionError: it fails with these values.
        """
        try:
            return _to_json(self._program.execute(dict(variables)))
        except KeyError as error:
            raise ExpressionError(f"{self.source}: there is no {error.args[0]!r}") from None
        except Exception as error:
            raise ExpressionError(f"{self.source}: {_shorten(error)}") from None


@dataclass(frozen=True, slots=True)
class Template:
    """A text with expressions."""

    source: str
    pieces: tuple[str | Expression, ...]

    @classmethod
    def parse(cls, source: str) -> Self:
        """Parse a text. `$${` is a literal `${`.

        Raises:
            ExpressionError: an expression in it is wrong, or has no end.
        """
        return cls(source, tuple(_split(source)))

    @property
    def expressions(self) -> list[Expression]:
        """The expressions in it."""
        return [piece for piece in self.pieces if isinstance(piece, Expression)]

    def render(self, variables: Mapping[str, Any]) -> Any:  # noqa: ANN401  a JSON value
        """Return the text; the value itself if the text is one expression.

        Raises:
            ExpressionError: an expression fails with these values.
        """
        if len(self.pieces) == 1 and isinstance(self.pieces[0], Expression):
            return self.pieces[0].evaluate(variables)
        return "".join(
            piece if isinstance(piece, str) else _to_text(piece.evaluate(variables))
            for piece in self.pieces
        )


@lru_cache(maxsize=4096)
def parse_template(source: str) -> Template:
    """Return the parsed text, from a cache. Raises as `Template.parse`."""
    return Template.parse(source)


def render(value: Any, variables: Mapping[str, Any]) -> Any:  # noqa: ANN401  JSON values
    """Render all texts in a JSON value. Raises as `Template.render`."""
    if isinstance(value, str):
        return parse_template(value).render(variables) if "$" in value else value
    if isinstance(value, Mapping):
        return {key: render(item, variables) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [render(item, variables) for item in value]
    return value


def iterate_texts(value: Any) -> Iterator[str]:  # noqa: ANN401  a JSON value
    """Yield all texts in a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from iterate_texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from iterate_texts(item)


def _split(source: str) -> Iterator[str | Expression]:
    position, text = 0, ""
    while (start := source.find(_OPENING, position)) >= 0:
        if start > 0 and source[start - 1] == "$":
            text += source[position : start - 1] + _OPENING
            position = start + len(_OPENING)
            continue
        end = _find_end(source, start + len(_OPENING))
        text += source[position:start]
        if text:
            yield text
            text = ""
        yield Expression.parse(source[start + len(_OPENING) : end])
        position = end + 1
    if text or position < len(source):
        yield text + source[position:]


def _find_end(source: str, start: int) -> int:
    """Return the position of the brace that ends an expression; quoted braces don't count."""
    depth, quote, position = 0, "", start
    while position < len(source):
        character = source[position]
        if quote:
            if character == "\\":
                position += 1
            elif character == quote:
                quote = ""
        elif character in "'\"":
            quote = character
        elif character == "{":
            depth += 1
        elif character == "}":
            if depth == 0:
                return position
            depth -= 1
        position += 1
    raise ExpressionError(f"`${{` at character {start - 1} has no end; close it with `}}`")


def _to_text(value: Any) -> str:  # noqa: ANN401  a JSON value
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value, ensure_ascii=False)


def _to_json(value: Any) -> Any:  # noqa: ANN401  a value of CEL
    if isinstance(value, Mapping):
        return {str(key): _to_json(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json(item) for item in value]
    if value is None or isinstance(value, str | bool | int | float):
        return value
    return str(value)


def _shorten(error: Exception) -> str:
    """Return the first line of the library's text, without its own prefix."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text.rpartition("ERROR: <input>:")[2] if "ERROR: <input>:" in text else text
