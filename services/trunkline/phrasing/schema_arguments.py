"""Takes the arguments of a tool from a question by the tool's JSON Schema. Pure and deterministic.

Only what a question says plainly is taken: numbers, words of an enum, quoted text, dates, times,
booleans, URLs, e-mail addresses, and any value that follows its argument's name ("city: Rome").
"""

import json
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

_PROPERTIES_LIMIT: Final = 32
_ENUM_LIMIT: Final = 500
_REFERENCES_LIMIT: Final = 8
_VALUES: Final = re.compile(
    r"""
    "(?P<quote>[^"]*)" | “(?P<curly>[^”]*)” | «(?P<angle>[^»]*)» | `(?P<tick>[^`]*)`
    | (?<!\w)'(?P<single>[^']+)'(?!\w)
    | (?P<url>https?://[^\s<>"]*[^\s<>".,;:!?)\]])
    | (?P<email>[\w.+-]{1,64}@\w[\w-]*(?:\.[\w-]+)+)
    | (?P<datetime>\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?)
    | (?P<date>(?<!\d)\d{4}-\d\d-\d\d(?!\d))
    | (?P<time>(?<![\d:])\d{1,2}:\d\d(?::\d\d)?(?![\d:]))
    | (?P<number>(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:[eE][-+]?\d+)?(?!\w|\.\d))
    """,
    re.VERBOSE,
)
_QUOTES: Final = frozenset({"quote", "curly", "angle", "tick", "single"})
_FORMATS: Final = {
    "date": "date",
    "date-time": "datetime",
    "email": "email",
    "time": "time",
    "uri": "url",
    "url": "url",
}
_YES: Final = frozenset({"true", "yes", "on"})
_NO: Final = frozenset({"false", "no", "off"})
_BOUNDS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    "minimum": operator.lt,
    "maximum": operator.gt,
    "exclusiveMinimum": operator.le,
    "exclusiveMaximum": operator.ge,
}
_SHOWN_VALUES: Final = 12
# Shorter words of an enum are taken only behind the argument's name.
_SHORTEST_WORD: Final = 2
_WORD: Final = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class Span:
    """A value that a question says plainly, and its position."""

    kind: str
    start: int
    end: int
    text: str


@dataclass(slots=True)
class TakenArguments:
    """The arguments that a question has for a tool."""

    arguments: dict[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    """Required arguments that the question lacks, each with the values that it may have."""
    spent: list[tuple[int, int]] = field(default_factory=list)
    """Positions of the arguments in the question."""
    unused: list[Span] = field(default_factory=list)
    """Values in the question that are no argument."""


def split_name(name: str) -> list[str]:
    """Return the words of an identifier in lower case: of `fromUnit`, "from" and "unit"."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return [word.casefold() for word in re.findall(r"[^\W_]+", spaced)]


def take_arguments(question: str, schema: Mapping[str, Any]) -> TakenArguments:
    """Return the arguments that a question has for a tool with this schema."""
    return _Taking(question, schema).take()


def take_one(text: str, name: str, schema: Mapping[str, Any]) -> Any:  # noqa: ANN401  a JSON value
    """Return a whole text as the value of one argument; None if it is no such value."""
    slot = _find_slot(name, schema)
    quoted = find_values(text)
    if slot.kind != "text":
        text = text.rstrip(" .!")
    elif len(quoted) == 1 and quoted[0].kind == "text":
        text = quoted[0].text
    try:
        return slot.parse(text.strip()) if text.strip() else None
    except (ValueError, OverflowError, RecursionError):
        return None


def describe_argument(name: str, schema: Mapping[str, Any]) -> str:
    """Return an argument's name, the values that it takes, and its description, for people."""
    slot = _find_slot(name, schema)
    note = str(slot.schema.get("description") or slot.schema.get("title") or "").strip()
    text = slot.describe() if slot.is_required else f"{slot.describe()}, optional"
    return f"{text}: {note}" if note else text


def _find_slot(name: str, schema: Mapping[str, Any]) -> "_Slot":
    properties = schema.get("properties", {})
    return _Slot(name, _resolve(properties.get(name), schema), name in schema.get("required", ()))


def find_values(question: str) -> list[Span]:
    """Return the values in a question, in order. They do not overlap."""
    spans = []
    for match in _VALUES.finditer(question):
        kind = match.lastgroup or ""
        text = match[kind]
        spans.append(
            Span("text" if kind in _QUOTES else kind, match.start(), match.end(), text.strip())
        )
    return spans


@dataclass(frozen=True, slots=True)
class _Slot:
    """An argument, as its schema describes it."""

    name: str
    schema: Mapping[str, Any]
    is_required: bool

    @property
    def kind(self) -> str:
        """The kind of value that it takes; "" for values that a question can't say."""
        if isinstance(self.schema.get("enum"), list):
            return "enum"
        kind = self.schema.get("type")
        if kind == "string":
            return _FORMATS.get(str(self.schema.get("format")), "") or self._guess_text_kind()
        return {"integer": "number", "number": "number", "boolean": "boolean"}.get(str(kind), "")

    def _guess_text_kind(self) -> str:
        last = self.words[-1] if self.words else ""
        return {"url": "url", "uri": "url", "email": "email", "date": "date"}.get(last, "text")

    @property
    def words(self) -> list[str]:
        return split_name(self.name)

    def parse(self, text: str) -> Any:  # noqa: ANN401  a JSON value
        """Return a value of the argument's type.

        Raises:
            ValueError: the text is no such value.
        """
        match self.kind:
            case "number":
                return self._parse_number(text)
            case "boolean":
                word = text.casefold()
                if word not in _YES | _NO:
                    raise ValueError(text)
                return word in _YES
            case "enum":
                return self._parse_enum(text)
            case "text":
                return text
            case kind if any(span.kind == kind for span in find_values(text)):
                return text
        raise ValueError(text)

    def _parse_number(self, text: str) -> float:
        number: object = json.loads(text.replace(",", "").removeprefix("+"))
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise ValueError(text)
        if not math.isfinite(number):
            raise ValueError(text)
        if self.schema.get("type") == "integer":
            if number != int(number):
                raise ValueError(text)
            number = int(number)
        for key, is_outside in _BOUNDS.items():
            limit = self.schema.get(key)
            if isinstance(limit, int | float) and is_outside(number, limit):
                raise ValueError(text)
        return number

    def _parse_enum(self, text: str) -> Any:  # noqa: ANN401  a JSON value
        for value in self.schema["enum"][:_ENUM_LIMIT]:
            if _spell(value) == _spell(text):
                return value
        raise ValueError(text)

    def describe(self) -> str:
        """Return the argument's name and the values that it takes, for people."""
        if self.kind == "enum":
            values = [str(value) for value in self.schema["enum"] if value is not None]
            shown = ", ".join(values[:_SHOWN_VALUES])
            return f"{self.name} (one of {shown}{', …' if len(values) > _SHOWN_VALUES else ''})"
        about = {
            "text": "a text in quotation marks",
            "number": "a number",
            "boolean": "yes or no",
            "url": "a URL",
            "email": "an e-mail address",
            "date": "a date like 2026-07-28",
            "datetime": "a time like 2026-07-28T09:30:00Z",
            "time": "a time like 09:30",
        }.get(self.kind, "JSON, by `trunkline tools call`")
        return f"{self.name} ({about})"


def _spell(value: object) -> str:
    return re.sub(r"[\s_-]+", " ", str(value)).strip().casefold()


class _Taking:
    """Assigns the values of one question to the arguments of one tool."""

    def __init__(self, question: str, schema: Mapping[str, Any]) -> None:
        self._question = question
        self._values = find_values(question)
        self._taken = TakenArguments()
        required = schema.get("required", ())
        properties = schema.get("properties", {})
        items = properties.items() if isinstance(properties, Mapping) else ()
        self._slots = [
            _Slot(name, _resolve(about, schema), name in required)
            for name, about in list(items)[:_PROPERTIES_LIMIT]
        ]
        # The question with its values replaced by spaces: only words remain.
        text = list(question)
        for value in self._values:
            text[value.start : value.end] = " " * (value.end - value.start)
        self._words = "".join(text)

    def take(self) -> TakenArguments:
        for slot in self._slots:
            if slot.kind:
                self._take_named(slot)
        for slot in self._open_slots():
            self._take_first(slot, is_cued=True)
        for slot in self._open_slots():
            # Nothing says that a value belongs to an optional argument, except an enum's word.
            if slot.is_required or slot.kind == "enum":
                self._take_first(slot, is_cued=False)
        taken = self._taken
        for slot in self._slots:
            if "const" in slot.schema and slot.is_required:
                taken.arguments[slot.name] = slot.schema["const"]
            elif slot.is_required and slot.name not in taken.arguments:
                taken.missing.append(slot.describe())
        taken.unused = [value for value in self._values if not self._is_spent(value)]
        return taken

    def _open_slots(self) -> Iterator[_Slot]:
        for slot in self._slots:
            if slot.kind and slot.name not in self._taken.arguments:
                yield slot

    def _take_named(self, slot: _Slot) -> None:
        """Take a value that follows the argument's name and a colon, "=" or "is"."""
        name = r"[\s_-]?".join(map(re.escape, slot.words))
        pattern = rf"(?<!\w){name}\s*(?:=|:|\bis\b)\s*"
        found = re.search(pattern, self._question, re.IGNORECASE) if name else None
        if found is None:
            return
        rest = self._question[found.end() :]
        quoted = next((value for value in self._values if value.start == found.end()), None)
        plain = re.match(r"[^,;\n]*", rest)
        end = quoted.end if quoted else found.end() + (plain.end() if plain else 0)
        text = quoted.text if quoted else self._question[found.end() : end].strip(" .?!")
        if text and self._set(slot, text, found.start(), end):
            return

    def _take_first(self, slot: _Slot, *, is_cued: bool) -> None:
        """Take the first free value of the argument's kind; `is_cued`: beside its name."""
        if slot.kind == "boolean":
            if is_cued:
                self._take_boolean(slot)
            return
        spans = self._find_enum(slot) if slot.kind == "enum" else self._values
        for span in spans:
            if span.kind != slot.kind or self._is_spent(span):
                continue
            if is_cued and not self._is_beside(slot.words, span):
                continue
            if self._set(slot, span.text, span.start, span.end):
                return

    def _take_boolean(self, slot: _Slot) -> None:
        name = r"[\s_-]?".join(map(re.escape, slot.words))
        found = name and re.search(
            rf"(?<!\w)(?:(?P<with>with|without|no)\s+(?:an?\s+|the\s+)?)?{name}"
            r"(?:\s+(?P<word>yes|no|true|false|on|off))?(?!\w)",
            self._question,
            re.IGNORECASE,
        )
        if not found or not (found["with"] or found["word"]):
            return
        said = found["word"] or ("yes" if found["with"].casefold() == "with" else "no")
        self._set(slot, said, found.start(), found.end())

    def _find_enum(self, slot: _Slot) -> Sequence[Span]:
        """Return the words of an enum in the question, the longest first where they overlap."""
        spans = []
        for value in slot.schema["enum"][:_ENUM_LIMIT]:
            words = _WORD.findall(str(value))
            if len("".join(words)) < _SHORTEST_WORD or str(value).casefold() in _YES | _NO:
                continue
            pattern = r"(?<!\w)" + r"[\s_-]+".join(map(re.escape, words)) + r"(?!\w)"
            spans += [
                Span("enum", match.start(), match.end(), str(value))
                for match in re.finditer(pattern, self._question, re.IGNORECASE)
            ]
        spans.sort(key=lambda span: (span.start, -span.end))
        return spans

    def _is_beside(self, words: Sequence[str], span: Span) -> bool:
        before = _WORD.findall(self._words[: span.start].casefold())[-1:]
        after = _WORD.findall(self._words[span.end :].casefold())[:1]
        # After a number, its unit: "4 seats". After a word, the next argument begins.
        return any(word in words for word in (before + after if span.kind == "number" else before))

    def _is_spent(self, span: Span) -> bool:
        return any(span.start < end and start < span.end for start, end in self._taken.spent)

    def _set(self, slot: _Slot, text: str, start: int, end: int) -> bool:
        try:
            self._taken.arguments[slot.name] = slot.parse(text)
        except (ValueError, OverflowError, RecursionError):
            return False
        self._taken.spent.append((start, end))
        return True


def _resolve(schema: object, root: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schema of an argument without local references, null and single alternatives."""
    for _ in range(_REFERENCES_LIMIT):
        if not isinstance(schema, Mapping):
            return {}
        others = next(
            (
                schema[key]
                for key in ("anyOf", "oneOf", "allOf")
                if isinstance(schema.get(key), list)
            ),
            None,
        )
        if isinstance(reference := schema.get("$ref"), str):
            _, _, name = reference.rpartition("/")
            definitions = root.get("$defs") or root.get("definitions") or {}
            schema = definitions.get(name) if isinstance(definitions, Mapping) else None
        elif others is not None and "type" not in schema:
            kinds = [kind for kind in others if kind != {"type": "null"}]
            schema = kinds[0] if len(kinds) == 1 else {}
        elif isinstance(types := schema.get("type"), list):
            plain = [kind for kind in types if kind != "null"]
            schema = {**schema, "type": plain[0] if len(plain) == 1 else ""}
        else:
            return schema
    return {}
