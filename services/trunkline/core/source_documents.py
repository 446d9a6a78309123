"""Parses YAML and JSON to plain values, with the line and column of each. Faults are collected.

YAML is read by its core schema of version 1.2, so `yes`, `no` and `on` are texts, and dates are
texts. Nothing in a document is run. Anchors are limited in what they expand to, and nesting is
limited, so that a small file can't use much memory or time.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any, Final, NamedTuple, TypeAlias

import yaml

from trunkline.core.json_types import JsonValue

MAX_BYTES: Final = 256 * 1024
MAX_VALUES: Final = 20_000
"""The number of values in a document, with anchors expanded."""
MAX_DEPTH: Final = 40
MAX_FAULTS: Final = 200
_CLOSE: Final = 0.65
"""The likeness of words from which one may stand for the other, so that `gone` is no `lonely`."""
_TOO_DEEP: Final = f"is nested deeper than {MAX_DEPTH} levels"

Keys: TypeAlias = tuple[str | int, ...]
"""The path of a value: keys of objects and indexes of lists."""

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_STRING_TAG: Final = "tag:yaml.org,2002:str"
# Libyaml's style of a plain text is empty, not None.
_QUOTED_STYLES: Final = frozenset({"'", '"', "|", ">"})
_CONSTANTS: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
# Escapes of JSON for characters beyond 16 bits, behind an even number of backslashes.
_SURROGATES: Final = re.compile(r"((?<!\\)(?:\\\\)*)((?:\\u[dD][89a-fA-F][0-9a-fA-F]{2})+)")
_INTEGER: Final = re.compile(r"[-+]?[0-9]{1,18}")
_NUMBER: Final = re.compile(
    r"[-+]?(\.[0-9]{1,40}|[0-9]{1,40}(\.[0-9]{0,40})?)([eE][-+]?[0-9]{1,3})?"
)


class Position(NamedTuple):
    """A place in a file, from 1."""

    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Fault:
    """Something wrong in a workflow, and what would be right."""

    file: str
    line: int
    column: int
    where: str
    """The value, such as `nodes[2].agent`; empty: the file."""
    problem: str

    def __str__(self) -> str:
        where = f"{self.where}: " if self.where else ""
        return f"{self.file}:{self.line}:{self.column}: {where}{self.problem}"


@dataclass(slots=True)
class SourceDocument:
    """The value of a file, the positions in it, and the faults so far."""

    file: str
    value: Any = None
    positions: dict[Keys, Position] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)

    def add(self, keys: Keys, problem: str, position: Position | None = None) -> None:
        """Add a fault of a value, at its position unless another is given.

        Equal faults are reported once.
        """
        position = position or self.locate(keys)
        fault = Fault(self.file, *position, format_keys(keys), _cut(problem, 400))
        if fault not in self.faults and not self.is_full:
            self.faults.append(fault)

    @property
    def is_full(self) -> bool:
        """True if there are so many faults that further ones are dropped."""
        return len(self.faults) >= MAX_FAULTS

    def locate(self, keys: Keys) -> Position:
        """Return the position of a value, or of the value around it if it is missing."""
        for length in range(len(keys), 0, -1):
            position = self.positions.get(keys[:length])
            if position is not None:
                return position
        return self.positions.get((), Position(1, 1))


def format_keys(keys: Keys) -> str:
    """Return a path as text, such as `nodes[2].agent`."""
    text = ""
    for key in keys:
        text += f"[{key}]" if isinstance(key, int) else f".{key}" if text else _cut(str(key), 80)
    return text


def walk_texts(value: Any, keys: Keys = ()) -> Iterator[tuple[Keys, str]]:  # noqa: ANN401
    """Yield all texts in a JSON value with their paths, which begin with `keys`."""
    if isinstance(value, str):
        yield keys, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from walk_texts(item, (*keys, key))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from walk_texts(item, (*keys, index))


def suggest(word: str, known: Sequence[str]) -> str:
    """Return a text that names the known word that is meant, else all of them."""
    near = get_close_matches(word, known, n=1, cutoff=_CLOSE)
    if near:
        return f"did you mean {near[0]!r}?"
    names = sorted(known)
    if not names:
        return "there is none"
    return f"there are: {', '.join(names[:12])}{', …' if len(names) > 12 else ''}"


def parse_document(content: bytes, file: str, *, is_json: bool | None = None) -> SourceDocument:
    """Parse a file. The value is None if it can't be parsed, and the faults say why.

    `is_json` says whether it is JSON or YAML; by default, the name of the file does.
    """
    document = SourceDocument(file)
    try:
        if len(content) > MAX_BYTES:
            raise _SyntaxFault(Position(1, 1), f"is larger than {MAX_BYTES // 1024} KiB")
        text = _decode(content)
        if file.endswith(".json") if is_json is None else is_json:
            text = _SURROGATES.sub(_join_surrogates, text)
            value = _parse_json(text)
            # JSON is a part of YAML, which has the positions, but for tabs between values.
            _Reader(document, text.replace("\t", " ")).read()
            document.value = value
        else:
            document.value = _Reader(document, text).read()
    except _SyntaxFault as fault:
        document.add((), fault.problem, fault.position)
    return document


class _SyntaxFault(Exception):  # noqa: N818  caught in this module
    def __init__(self, position: Position, problem: str) -> None:
        super().__init__(problem)
        self.position = position
        self.problem = problem


def _decode(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        raise _SyntaxFault(Position(line, column), "is not UTF-8; save it as UTF-8") from None


def _parse_json(text: str) -> JsonValue:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        problem = f"is not JSON: {error.msg}"
        raise _SyntaxFault(Position(error.lineno, error.colno), problem) from None
    except RecursionError:
        raise _SyntaxFault(Position(1, 1), _TOO_DEEP) from None
    except ValueError as error:
        raise _SyntaxFault(Position(1, 1), f"is not JSON: {error}") from None


def _join_surrogates(match: re.Match[str]) -> str:
    """Return the characters of escapes in pairs, which YAML does not have."""
    units = [int(unit[2:], 16) for unit in re.findall(r"\\u\w{4}", match[2])]
    text = "".join(map(chr, units)).encode("utf-16-le", "surrogatepass")
    return match[1] + text.decode("utf-16-le", "replace")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


class _Reader:
    """Reads the value of a document from the events of the YAML parser."""

    def __init__(self, document: SourceDocument, text: str) -> None:
        self._document = document
        self._text = text
        self._events = yaml.parse(text, Loader=_LOADER)
        # The position of the last event.
        self._position = Position(1, 1)
        # The value of each anchor, and the number of values in it.
        self._anchors: dict[str, tuple[Any, int]] = {}
        self._values = 0

    def read(self) -> JsonValue:
        """Return the value. An empty file has the value None."""
        try:
            return self._read_document()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = getattr(mark, "line", None), getattr(mark, "column", None)
            position = self._position
            if line is not None and column is not None:
                position = Position(line + 1, column + 1)
            raise _SyntaxFault(position, _explain(self._text, position, error)) from None
        except (yaml.YAMLError, UnicodeError) as error:
            problem = " ".join(str(error).split("\n")[:1])
            raise self._fault(f"is not YAML: {problem}") from None

    def _read_document(self) -> Any:  # noqa: ANN401
        self._next()
        if isinstance(self._next(), yaml.StreamEndEvent):
            return None
        value = self._read_value(self._next(), (), 0)
        self._next()
        if not isinstance(self._next(), yaml.StreamEndEvent):
            raise self._fault("has several documents; write one workflow a file")
        return value

    def _next(self) -> Any:  # noqa: ANN401  an event of PyYAML
        event: Any = next(self._events)
        self._position = Position(event.start_mark.line + 1, event.start_mark.column + 1)
        return event

    def _fault(self, problem: str) -> _SyntaxFault:
        return _SyntaxFault(self._position, problem)

    def _read_value(self, event: Any, keys: Keys, depth: int) -> Any:  # noqa: ANN401
        """Read the value that begins with an event, inside `depth` lists and objects."""
        # The position of a member is the position of its key, which is set before.
        self._document.positions.setdefault(keys, self._position)
        if isinstance(event, yaml.AliasEvent):
            return self._expand(str(event.anchor), depth)
        before = self._values
        self._count(1)
        if isinstance(event, yaml.ScalarEvent):
            is_text = event.style in _QUOTED_STYLES or event.tag == _STRING_TAG
            value = event.value if is_text else _resolve(event.value)
        elif depth >= MAX_DEPTH:
            raise self._fault(_TOO_DEEP)
        elif isinstance(event, yaml.MappingStartEvent):
            value = self._read_object(keys, depth + 1)
        else:
            value = self._read_list(keys, depth + 1)
        if event.anchor:
            self._anchors[event.anchor] = value, self._values - before
        return value

    def _read_list(self, keys: Keys, depth: int) -> list[Any]:
        values: list[Any] = []
        while not isinstance(event := self._next(), yaml.SequenceEndEvent):
            values.append(self._read_value(event, (*keys, len(values)), depth))
        return values

    def _read_object(self, keys: Keys, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while not isinstance(event := self._next(), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise self._fault("has a key that is no text; write `name: value`")
            name, place = event.value, (*keys, event.value)
            if name in members:
                line = self._document.positions[place].line
                problem = f"is there twice, first in line {line}; remove one"
                self._document.add(place, problem, self._position)
            elif name == "<<" and event.style not in _QUOTED_STYLES:
                problem = "is a merge key, which YAML 1.2 does not have; write the fields here"
                self._document.add(place, problem, self._position)
            self._document.positions.setdefault(place, self._position)
            value = self._read_value(self._next(), place, depth)
            members.setdefault(name, value)
        return members

    def _expand(self, anchor: str, depth: int) -> Any:  # noqa: ANN401
        if anchor not in self._anchors:
            raise self._fault(f"*{anchor} has no anchor &{anchor} before it")
        value, size = self._anchors[anchor]
        if depth + _measure_depth(value) > MAX_DEPTH:
            raise self._fault(_TOO_DEEP)
        self._count(size)
        return value

    def _count(self, values: int) -> None:
        self._values += values
        if self._values > MAX_VALUES:
            raise self._fault(f"has more than {MAX_VALUES:,} values, aliases expanded")


def _measure_depth(value: JsonValue) -> int:
    """Return how deep a value is nested. Its depth is limited, and so is its size."""
    items = value.values() if isinstance(value, dict) else value
    return 1 + max(map(_measure_depth, items), default=0) if isinstance(value, dict | list) else 0


def _resolve(text: str) -> JsonValue:
    """Return the value of a text without quotes."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _NUMBER.fullmatch(text):
        number = float(text)
        return number if abs(number) != float("inf") else text
    return text


def _explain(text: str, position: Position, error: yaml.MarkedYAMLError) -> str:
    lines: Sequence[str] = text.split("\n")
    line = lines[position.line - 1] if position.line <= len(lines) else ""
    if "\t" in line[: len(line) - len(line.lstrip())] or "'\\t'" in str(error.problem):
        return "is indented by a tab; YAML takes spaces only"
    context = f" {error.context}" if error.context else ""
    return f"is not YAML: {error.problem}{context}"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"
