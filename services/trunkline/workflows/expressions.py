"""Expressions of workflows: CEL, and texts with `${EXPRESSION}` in them.

An expression is parsed once, when the workflow is read. It reads variables and calls functions of
CEL; it can't reach Python. One that only names a value, such as `nodes.draft.text`, is read without
the library, which is an extra.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import import_module
from typing import Any, Final, Self, TypeVar

from trunkline.core.json_types import JsonValue
from trunkline.core.settings import describe_install
from trunkline.core.source_documents import suggest, walk_texts
from trunkline.errors import ConfigurationError
from trunkline.workflows.values import extract_value

VARIABLES: Final = frozenset({"input", "nodes", "last", "data", "steps", "message"})
"""The variables that expressions read. `message` is for the conditions of waits only."""
FUNCTIONS: Final = frozenset(
    {"contains", "double", "duration", "dyn", "endsWith", "getDate", "getDayOfMonth"}
    | {"getDayOfWeek", "getDayOfYear", "getFullYear", "getHours", "getMilliseconds", "getMinutes"}
    | {"getMonth", "getSeconds", "int", "matches", "size", "startsWith", "string", "timestamp"}
    | {"type", "uint", "bytes"}
)
"""The functions of CEL that there are, beside `has` and the loops."""
LOOPS: Final = ("all", "exists", "exists_one", "filter", "map")
MAX_CHARS: Final = 4_000
MAX_VALUES: Final = 200_000
"""The number of values, and of eights of characters, that an expression reads or builds."""
MAX_LOOP_VALUES: Final = 2_000
"""The number of values that an expression with a loop reads."""
MAX_LIST_VALUES: Final = 200
"""The same with `map` or `filter`: for each element, the library copies the list it builds."""
MAX_LOOP_CHARS: Final = 50_000
"""The number of characters that an expression with a loop reads."""
MAX_MATCHED_CHARS: Final = 5_000
"""The number of characters that an expression with `matches` reads."""
_MAX_LOOPS: Final = 2
# CEL's integers are signed or unsigned; the library reads others as doubles.
_CEL_INTEGERS: Final = (-(2**63), 2**64)
_LOOP: Final = re.compile(rf"\.\s*(?:{'|'.join(LOOPS)})\s*\(\s*([A-Za-z_]\w*)?")
_STRING: Final = re.compile(
    r"""[rRbB]{0,2}(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')""", re.DOTALL
)
# `nodes["draft"]` reads what `nodes.draft` reads.
_FIELD: Final = re.compile(r"""\s*(?:\.\s*(\w+)|\[\s*(?:'([^'\\]*)'|"([^"\\]*)")\s*\])""")
_CHAIN: Final = re.compile(
    rf"{_STRING.pattern}|(?<![\w.\])])(?P<variable>input|nodes|last|data|message)\b"
    rf"(?P<fields>(?:{_FIELD.pattern})*)(?P<call>\s*\()?",
    re.DOTALL,
)
_PLACE: Final = re.compile(r"ERROR: <input>:(\d+):(\d+): (.*)")
_MISSING: Final = re.compile(r"^Undefined variable or function: '(\w+)'")
_TAKEN: Final = {
    "size": "a string, an array or an object",
    **dict.fromkeys(("contains", "endsWith", "matches", "startsWith"), "a string, of a string"),
    **dict.fromkeys(("double", "int", "uint"), "a number or a string"),
    "string": "a number or a string",
    **dict.fromkeys(("duration", "timestamp"), "a string"),
    **{name: "a timestamp" for name in FUNCTIONS if name.startswith("get")},
}
"""The values that functions take, in words."""
_OPENING: Final = "${"
_PATH: Final = re.compile(r"(?:input|nodes|last|data|message)(?:\.[A-Za-z_]\w*)*|steps", re.ASCII)
_PLAIN_TEXT: Final = re.compile(r"\"[^\"\\\n]*\"")
RESERVED: Final = frozenset(
    {"as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in"}
    | {"let", "loop", "namespace", "null", "package", "return", "true", "var", "void", "while"}
)
"""Words that the grammar of CEL keeps for itself."""
VALUE: Final = "value"
"""The field of a result that is not stored, because it follows from the text."""
_T = TypeVar("_T")


class ExpressionError(ValueError):
    """An expression that can't be parsed, or that fails with the values of a run."""


class ExpressionTypeError(ExpressionError):
    """An expression that fails because of the types of the values that it reads."""


@dataclass(frozen=True, slots=True)
class Expression:
    """A parsed expression."""

    source: str
    _program: Any = field(repr=False, compare=False)
    """The program of the library. A single reference or a text needs no program."""
    variables: frozenset[str] = field(compare=False)
    """The variables that it reads."""
    references: tuple[tuple[str, ...], ...] = field(compare=False)
    """The variables with the fields that it reads of them, such as `("nodes", "draft", "text")`."""
    _loop_values: int | None = field(repr=False, compare=False)
    """The number of values that it may read, if it has a loop."""

    @classmethod
    def parse(cls, source: str) -> Self:
        """Parse an expression.

        Raises:
            ExpressionError: it is not CEL, is too long, or reads an unknown variable or function.
        """
        if len(source) > MAX_CHARS:
            raise ExpressionError(f"is longer than {MAX_CHARS:,} characters")
        if _is_plain(source):
            path = () if source.startswith('"') else tuple(source.split("."))
            return cls(source, None, frozenset(path[:1]), (path,) if path else (), None)
        code = _STRING.sub(lambda match: '"' + " " * (len(match[0]) - 2) + '"', source)
        loop_variables = _check_loops(code)
        program = _compile(source)
        unknown = sorted(set(program.variables()) - VARIABLES - loop_variables)
        if unknown:
            column = _find_word(code, unknown[0])
            near = suggest(unknown[0], sorted(VARIABLES))
            raise ExpressionError(f"column {column}: unknown variable {unknown[0]!r}; {near}")
        functions = {name for name in program.functions() if name.isidentifier()}
        unknown = sorted(functions - FUNCTIONS)
        if unknown:
            column, known = _find_word(code, unknown[0]), [*FUNCTIONS, *LOOPS, "has"]
            raise ExpressionError(
                f"column {column}: unknown function {unknown[0]!r}; {suggest(unknown[0], known)}"
            )
        variables = frozenset(program.variables()) & VARIABLES
        return cls(source, program, variables, _find_references(source), _limit_values(code))

    def evaluate(self, variables: Mapping[str, Any]) -> JsonValue:
        """Return the value, of JSON's types.

        Raises:
            ExpressionError: it fails with these values, or they are too large.
        """
        if self._program is None:
            return _follow(self.references[0], variables) if self.references else self.source[1:-1]
        values = self._select(variables)
        self._check_size(values)
        try:
            return _to_json(self._program.execute(values))
        except KeyError as error:
            raise ExpressionError(f"{self.source}: there is no {error.args[0]!r}") from None
        except BaseException as error:
            if not _is_of_library(error):
                raise
            if problem := _find_type_problem(error):
                raise ExpressionTypeError(f"{self.source}: {problem}") from None
            raise ExpressionError(f"{self.source}: {_shorten(error)}") from None

    def _select(self, variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return what it reads: the library copies all values that it gets."""
        values = {name: variables[name] for name in self.variables if name in variables}
        for path in self.references:
            if path[-1] == VALUE:
                _add_value(values, path)
        for name in ("nodes", "data", "input"):
            fields = {path[1] for path in self.references if path[0] == name and len(path) > 1}
            is_whole = any(path == (name,) for path in self.references)
            if fields and not is_whole and isinstance(values.get(name), Mapping):
                values[name] = {key: item for key, item in values[name].items() if key in fields}
        return values

    def _check_size(self, values: Mapping[str, Any]) -> None:
        count, chars, is_rounded = _measure(values, MAX_VALUES)
        if is_rounded:
            problem = "reads an integer of more than 64 bits, which CEL rounds; use a function"
            raise ExpressionError(f"{self.source}: {problem}")
        limit = self._loop_values
        if limit is not None and (count > limit or chars > MAX_LOOP_CHARS):
            raise ExpressionError(
                f"{self.source}: a loop reads more than {limit:,} values or {MAX_LOOP_CHARS:,} "
                "characters; use a function"
            )
        if ".matches(" in self.source and chars > MAX_MATCHED_CHARS:
            problem = f"`matches` reads more than {MAX_MATCHED_CHARS:,} characters; use a function"
            raise ExpressionError(f"{self.source}: {problem}")
        # Each `+` may double the text again.
        factor = 1 + self.source.count("+")
        if count + chars // 8 * factor > MAX_VALUES * (1 if factor > 1 else 8):
            raise ExpressionError(f"{self.source}: reads too much data; use a function")


def _is_plain(source: str) -> bool:
    """Return whether an expression only names a value, or is a text."""
    if _PLAIN_TEXT.fullmatch(source):
        return True
    return bool(_PATH.fullmatch(source)) and not RESERVED.intersection(source.split("."))


def _follow(path: Sequence[str], variables: Mapping[str, Any]) -> JsonValue:
    """Return the value that a path names."""
    value: Any = variables
    for number, name in enumerate(path):
        if name == VALUE and _is_result(path[:number]) and isinstance(value, Mapping):
            value = extract_value(value["text"])
        elif isinstance(value, Mapping) and name in value:
            value = value[name]
        else:
            has_fields = value is None or isinstance(value, Mapping)
            kind = ExpressionError if has_fields else ExpressionTypeError
            raise kind(f"{'.'.join(path)}: there is no {name!r}")
    return value


def _is_result(path: Sequence[str]) -> bool:
    """Return whether a path names the result of a node."""
    return tuple(path) == ("last",) or (len(path) == 2 and path[0] == "nodes")


def _add_value(values: dict[str, Any], path: Sequence[str]) -> None:
    """Add the value of a result that an expression reads."""
    owner = path[:-1]
    if not _is_result(owner):
        return
    holder = values
    for name in owner:
        if not isinstance(holder.get(name), Mapping):
            return
        holder[name] = dict(holder[name])
        holder = holder[name]
    holder[VALUE] = extract_value(holder["text"])


def _check_loops(code: str) -> set[str]:
    """Check that there are few loops, none in another; return their variables."""
    loops = list(_LOOP.finditer(code))
    if len(loops) > _MAX_LOOPS:
        raise ExpressionError(f"has more than {_MAX_LOOPS} loops ({', '.join(LOOPS)})")
    for loop in loops:
        depth, position = 1, loop.end()
        while position < len(code) and depth:
            depth += {"(": 1, ")": -1}.get(code[position], 0)
            position += 1
        if any(loop.end() <= other.start() < position for other in loops):
            column = loop.start() + 2
            raise ExpressionError(f"column {column}: has a loop within a loop; use a function")
    return {loop[1] for loop in loops if loop[1]}


def _limit_values(code: str) -> int | None:
    """Return the number of values that an expression may read, if it has a loop."""
    if not _LOOP.search(code):
        return None
    return MAX_LIST_VALUES if re.search(r"\.\s*(map|filter)\s*\(", code) else MAX_LOOP_VALUES


def _compile(source: str) -> Any:  # noqa: ANN401  a program of the library
    library = _import_cel()
    try:
        return library.compile(source)
    except BaseException as error:
        if not _is_of_library(error):
            raise
        places = _PLACE.findall(str(error))
        # The fault that the parser found comes after the faults that follow from it.
        chosen = next((place for place in places if "Syntax error" in place[2]), None)
        line, column, problem = chosen or (places[0] if places else ("1", "", _shorten(error)))
        problem = problem.removeprefix("Syntax error: ").partition(" expecting ")[0]
        problem = problem.replace("mismatched input '<EOF>'", "it ends too early")
        place = f"line {line}, column {column}" if line != "1" else f"column {column}"
        raise ExpressionError(f"is not CEL: {place}: {problem}") from None


def _find_type_problem(error: BaseException) -> str:
    """Return the fault in the types of an operator or a function, or "" without a fault."""
    if isinstance(error, TypeError):
        text = str(error)
        if text.startswith("No such overload"):
            text = "an operator or a field does not take values of these types"
        text, _, _ = text.partition(". CEL")
        return f"{text}; convert with int(x), double(x) or string(x)"
    # The library has no other words for a function that it has for other types.
    missing = _MISSING.search(str(error)) if isinstance(error, RuntimeError) else None
    if missing is None or missing[1] not in FUNCTIONS:
        return ""
    taken = _TAKEN.get(missing[1], "other values")
    return f"`{missing[1]}` does not take these values; it takes {taken}"


def _is_of_library(error: BaseException) -> bool:
    """Return whether an error is the library's: its panics are no `Exception`."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _find_references(source: str) -> tuple[tuple[str, ...], ...]:
    """Return the chains of names that begin with a variable."""
    found: dict[tuple[str, ...], None] = {}
    for match in _CHAIN.finditer(source):
        if match["variable"] is None:
            continue  # A text.
        fields = ["".join(forms) for forms in _FIELD.findall(match["fields"])]
        if match["call"]:
            fields = fields[:-1]
        found[match["variable"], *fields] = None
    return tuple(found)


def _find_word(code: str, word: str) -> int:
    match = re.search(rf"\b{re.escape(word)}\b", code)
    return match.start() + 1 if match else 1


def show_path(path: Sequence[str]) -> str:
    """Return a variable with fields as an expression reads it: `nodes["a-b"].text`."""
    variable, *fields = path
    shown = (f".{each}" if each.isidentifier() else f"[{json.dumps(each)}]" for each in fields)
    return variable + "".join(shown)


def _measure(value: JsonValue, limit: int) -> tuple[int, int, bool]:
    """Return the number of values and of characters, and whether the library rounds an integer.

    They are counted up to a limit of values.
    """
    count = chars = 0
    is_rounded = False
    pending = [value]
    while pending and count <= limit:
        item = pending.pop()
        count += 1
        if isinstance(item, str):
            chars += len(item)
        elif isinstance(item, int):
            is_rounded = is_rounded or not _CEL_INTEGERS[0] <= item < _CEL_INTEGERS[1]
        elif isinstance(item, Mapping):
            pending += item.values()
        elif isinstance(item, list | tuple):
            pending += item
    return count, chars, is_rounded


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
        return cls(source, tuple(_split(source, Expression.parse)))

    @property
    def expressions(self) -> list[Expression]:
        """The expressions in it."""
        return [piece for piece in self.pieces if isinstance(piece, Expression)]

    def render(self, variables: Mapping[str, Any]) -> JsonValue:
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
def parse_expression(source: str) -> Expression:
    """Return the parsed expression, from a cache. Raises as `Expression.parse`."""
    return Expression.parse(source)


@lru_cache(maxsize=4096)
def parse_template(source: str) -> Template:
    """Return the parsed text, from a cache. Raises as `Template.parse`."""
    return Template.parse(source)


def render(value: JsonValue, variables: Mapping[str, Any]) -> JsonValue:
    """Render all texts in a JSON value. Raises as `Template.render`."""
    if isinstance(value, str):
        return parse_template(value).render(variables) if "$" in value else value
    if isinstance(value, Mapping):
        return {key: render(item, variables) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [render(item, variables) for item in value]
    return value


def has_template(value: JsonValue) -> bool:
    """Return whether there is an expression in the texts of a JSON value."""
    return any(_OPENING in text for _, text in walk_texts(value))


def parse_each(source: str) -> list[Expression | ExpressionError]:
    """Return the expressions of a text; in place of each that is wrong, its error."""

    def parse(expression: str) -> Expression | ExpressionError:
        try:
            return Expression.parse(expression)
        except ExpressionError as error:
            # Columns count within the expression, so a longer text needs its name.
            is_whole = source == f"{_OPENING}{expression}}}"
            return error if is_whole else ExpressionError(f"`{expression}`: {error}")

    try:
        return [piece for piece in _split(source, parse) if not isinstance(piece, str)]
    except ExpressionError as error:
        return [error]


def _split(source: str, parse: Callable[[str], _T]) -> Iterator[str | _T]:
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
        yield parse(source[start + len(_OPENING) : end])
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


def _to_text(value: JsonValue) -> str:
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


def _shorten(error: BaseException) -> str:
    """Return the first line of the library's text, without its own prefix."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text.rpartition("ERROR: <input>:")[2] if "ERROR: <input>:" in text else text


def _import_cel() -> Any:  # noqa: ANN401  a module without types
    """Return the module of CEL, which an extra installs.

    Raises:
        ConfigurationError: it is not installed.
    """
    try:
        return import_module("cel")
    except ImportError as error:
        problem = f"expressions need CEL; run {describe_install('workflows')}"
        raise ConfigurationError("workflows", problem) from error
