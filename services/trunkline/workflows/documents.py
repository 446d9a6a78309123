"""Parses YAML and JSON to plain values, with the line and column of each. Faults are collected.

YAML is read by its core schema of version 1.2, so `yes`, `no` and `on` are texts, and dates are
texts. JSON is a part of it. Nothing in a document is run. Anchors are limited in what they expand
to, and nesting is limited, so that a small file can't use much memory or time.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import yaml

MAX_BYTES: Final = 256 * 1024
MAX_VALUES: Final = 20_000
"""The number of values in a document, with anchors expanded."""
MAX_DEPTH: Final = 40
MAX_FAULTS: Final = 200

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

    def add(self, keys: Keys, problem: str) -> None:
        """Add a fault of a value. Equal ones are reported once."""
        position = self.locate(keys)
        fault = Fault(self.file, *position, format_keys(keys), _cut(problem, 400))
        if fault not in self.faults and len(self.faults) < MAX_FAULTS:
            self.faults.append(fault)

    def locate(self, keys: Keys) -> Position:
        """Return the position of a value; if it is missing, that of the value around it."""
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


def parse_document(content: bytes, file: str) -> SourceDocument:
    """Parse a file. `value` is None if it can't be parsed; the faults say why."""
    document = SourceDocument(file)
    try:
        if len(content) > MAX_BYTES:
            raise _SyntaxFault(Position(1, 1), f"is larger than {MAX_BYTES // 1024} KiB")
        text = _decode(content)
        if file.endswith(".json"):
            text = _check_json(text)
        document.value = _Builder(document).build(text)
    except _SyntaxFault as fault:
        document.value = None
        document.faults.append(Fault(file, *fault.position, "", fault.problem))
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


def _check_json(text: str) -> str:
    """Check the syntax of JSON, and return it as YAML that has the same positions."""
    try:
        json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        problem = f"is not JSON: {error.msg}"
        raise _SyntaxFault(Position(error.lineno, error.colno), problem) from None
    except RecursionError:
        problem = f"is nested deeper than {MAX_DEPTH} levels"
        raise _SyntaxFault(Position(1, 1), problem) from None
    except ValueError as error:
        raise _SyntaxFault(Position(1, 1), f"is not JSON: {error}") from None
    # Tabs are only between values: in texts, JSON escapes them. YAML does not take all of them,
    # and no escapes in pairs.
    return _SURROGATES.sub(_join_surrogates, text.replace("\t", " "))


def _join_surrogates(match: re.Match[str]) -> str:
    units = [int(unit[2:], 16) for unit in re.findall(r"\\u\w{4}", match[2])]
    text = "".join(map(chr, units)).encode("utf-16-le", "surrogatepass")
    return match[1] + text.decode("utf-16-le", "replace")


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is no number of JSON")


@dataclass(slots=True)
class _Open:
    """A list or an object that is being read."""

    value: list[Any] | dict[str, Any]
    keys: Keys
    anchor: str | None
    began: int
    """The number of values before it."""
    key: str | None = None
    is_duplicate: bool = False


class _Builder:
    """Builds the value of a document from the events of the parser, without recursion."""

    def __init__(self, document: SourceDocument) -> None:
        self._document = document
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Any, int, int]] = {}
        self._values = 0
        self._root: Any = None
        self._is_complete = False

    def build(self, text: str) -> Any:  # noqa: ANN401  a JSON value
        """Return the value."""
        position = Position(1, 1)
        try:
            for event in yaml.parse(text, Loader=_LOADER):
                begin: Any = event.start_mark
                position = Position(begin.line + 1, begin.column + 1)
                self._take(event, position)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = getattr(mark, "line", None), getattr(mark, "column", None)
            if line is not None and column is not None:
                position = Position(line + 1, column + 1)
            raise _SyntaxFault(position, _explain(text, position, error)) from None
        except (yaml.YAMLError, UnicodeError) as error:
            problem = " ".join(str(error).split("\n")[:1])
            raise _SyntaxFault(position, f"is not YAML: {problem}") from None
        return self._root

    def _take(self, event: Any, position: Position) -> None:  # noqa: ANN401  an event of PyYAML
        match event:
            case yaml.DocumentStartEvent() if self._is_complete:
                raise _SyntaxFault(position, "has several documents; write one workflow a file")
            case yaml.MappingStartEvent() | yaml.SequenceStartEvent():
                self._begin(event, position)
            case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                self._end()
            case yaml.ScalarEvent():
                self._take_scalar(event, position)
            case yaml.AliasEvent():
                self._take_alias(event.anchor or "", position)

    def _begin(self, event: Any, position: Position) -> None:  # noqa: ANN401
        if self._open and isinstance(self._open[-1].value, dict) and self._open[-1].key is None:
            raise _SyntaxFault(position, "has a key that is no text; write `name: value`")
        if len(self._open) >= MAX_DEPTH:
            raise _SyntaxFault(position, f"is nested deeper than {MAX_DEPTH} levels")
        value: list[Any] | dict[str, Any] = {} if isinstance(event, yaml.MappingStartEvent) else []
        began = self._values
        keys = self._place(value, position)
        self._open.append(_Open(value, keys, event.anchor, began))

    def _end(self) -> None:
        ended = self._open.pop()
        if ended.anchor:
            depth = _measure_depth(ended.value)
            self._anchors[ended.anchor] = (ended.value, self._values - ended.began, depth)
        self._is_complete = not self._open

    def _take_scalar(self, event: Any, position: Position) -> None:  # noqa: ANN401
        text = event.value
        if self._open and isinstance(self._open[-1].value, dict) and self._open[-1].key is None:
            self._take_key(self._open[-1], text, position)
            if text == "<<" and event.style not in _QUOTED_STYLES:
                problem = "is a merge key, which YAML 1.2 does not have; write the fields here"
                self._document.add((*self._open[-1].keys, text), problem)
            return
        is_text = event.style in _QUOTED_STYLES
        value = text if is_text or event.tag == _STRING_TAG else _resolve(text)
        self._place(value, position)
        if event.anchor:
            self._anchors[event.anchor] = (value, 1, 0)
        self._is_complete = not self._open

    def _take_key(self, around: _Open, key: str, position: Position) -> None:
        around.key = key
        around.is_duplicate = key in around.value
        if around.is_duplicate:
            first = self._document.positions[(*around.keys, key)]
            problem = f"is there twice, first in line {first.line}; remove one"
            name = format_keys((*around.keys, key))
            self._document.faults.append(Fault(self._document.file, *position, name, problem))
        else:
            self._document.positions[(*around.keys, key)] = position

    def _take_alias(self, anchor: str, position: Position) -> None:
        if self._open and isinstance(self._open[-1].value, dict) and self._open[-1].key is None:
            raise _SyntaxFault(position, "has a key that is no text; write `name: value`")
        if anchor not in self._anchors:
            raise _SyntaxFault(position, f"*{anchor} has no anchor &{anchor} before it")
        value, size, depth = self._anchors[anchor]
        if len(self._open) + depth > MAX_DEPTH:
            raise _SyntaxFault(position, f"is nested deeper than {MAX_DEPTH} levels")
        self._values += size - 1
        self._place(value, position)
        self._is_complete = not self._open

    def _place(self, value: Any, position: Position) -> Keys:  # noqa: ANN401  a JSON value
        """Put a value where it belongs, and return its path."""
        self._values += 1
        if self._values > MAX_VALUES:
            raise _SyntaxFault(position, f"has more than {MAX_VALUES:,} values, aliases expanded")
        if not self._open:
            self._root = value
            self._document.positions[()] = position
            return ()
        around = self._open[-1]
        if isinstance(around.value, list):
            keys: Keys = (*around.keys, len(around.value))
            around.value.append(value)
            self._document.positions[keys] = position
            return keys
        key, around.key = around.key or "", None
        keys = (*around.keys, key)
        if around.is_duplicate:
            return keys
        around.value[key] = value
        return keys


def _measure_depth(value: Any) -> int:  # noqa: ANN401  a JSON value
    """Return how deep a value is nested. Its depth is limited, and so is its size."""
    level, depth = [value], 0
    while level := [
        item
        for each in level
        if isinstance(each, dict | list)
        for item in (each.values() if isinstance(each, dict) else each)
    ]:
        depth += 1
    return depth


def _resolve(text: str) -> Any:  # noqa: ANN401  a JSON value
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
