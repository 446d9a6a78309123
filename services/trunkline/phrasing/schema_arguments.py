"""Takes the arguments of a tool from a question by the tool's JSON Schema. Pure and deterministic.

Only what a question says plainly is taken: numbers, words or titles of an enum, quoted text, dates,
times, booleans, URLs, e-mail addresses, and any value that follows its argument's name
("city: Rome"; a number or a time without the colon, too).
"""

import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
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


def outline_arguments(schema: Mapping[str, Any]) -> str:
    """Return the names of the arguments, each with the values that it may have: "unit (m, ft)"."""
    properties = schema.get("properties", {})
    names = list(properties)[:_PROPERTIES_LIMIT] if isinstance(properties, Mapping) else []
    return ", ".join(_find_slot(name, schema).outline() for name in names)


def describe_argument(name: str, schema: Mapping[str, Any]) -> str:
    """Return an argument's name, the values that it takes, and its description, for people."""
    slot = _find_slot(name, schema)
    note = str(slot.schema.get("description") or slot.schema.get("title") or "").strip()
    text = slot.describe() if slot.is_required else f"{slot.describe()}, optional"
    return f"{text}: {note}" if note else text


def describe_type(schema: object, root: Mapping[str, Any], *, levels: int = 3) -> str:
    """Return the values that a schema within `root` allows, as a short type: "red | green".

    Schemas may contain themselves; "any" is all that is said below so many levels.
    """
    plain = _resolve(schema, root)
    if not levels:
        return "any"
    if choices := _list_choices(plain):
        return " | ".join(str(value) for value, _ in choices if value is not None)
    if kinds := _list_types(plain):
        names = [describe_type(kind, root, levels=levels - 1) for kind in kinds[:_SHOWN_VALUES]]
        return " or ".join(dict.fromkeys(names))
    kind = plain.get("type") or "any"
    if kind != "array":
        return str(kind)
    items = describe_type(plain.get("items"), root, levels=levels - 1)
    return "array" if items == "any" else f"array of {items}"


def accepts_value(name: str, value: object, schema: Mapping[str, Any]) -> bool:
    """Return whether a JSON value fits an argument, by the schemas that MCP's forms may have."""
    return _find_slot(name, schema).accepts(value)


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
        if self.choices:
            return "enums" if self.schema.get("type") == "array" else "enum"
        kind = self.schema.get("type")
        if kind == "string":
            return _FORMATS.get(str(self.schema.get("format")), "") or self._guess_text_kind()
        return {"integer": "number", "number": "number", "boolean": "boolean"}.get(str(kind), "")

    def _guess_text_kind(self) -> str:
        last = self.words[-1] if self.words else ""
        return {"url": "url", "uri": "url", "email": "email", "date": "date"}.get(last, "text")

    @property
    def choices(self) -> Sequence[tuple[Any, str]]:
        """The values that it may have, or its items may, each with its title."""
        is_list = self.schema.get("type") == "array"
        return _list_choices(self.schema.get("items") if is_list else self.schema)[:_ENUM_LIMIT]

    @property
    def words(self) -> list[str]:
        return split_name(self.name)

    def accepts(self, value: object) -> bool:
        """Return whether the schema allows a JSON value. Only what MCP's forms may say is checked.

        Those are types, choices, limits and formats.
        """
        values = [choice for choice, _ in self.choices]
        match self.kind:
            case "enum":
                return value in values
            case "enums":
                return (
                    isinstance(value, list)
                    and all(item in values for item in value)
                    and self._allows_size("Items", len(value))
                )
            case "number":
                is_number = isinstance(value, int | float) and not isinstance(value, bool)
                return is_number and self._allows(lambda: self._parse_number(json.dumps(value)))
            case "boolean":
                return isinstance(value, bool)
            case "":
                return True
        if not isinstance(value, str) or not self._allows_size("Length", len(value)):
            return False
        return "format" not in self.schema or self._allows(lambda: self.parse(value))

    def _allows_size(self, of: str, size: int) -> bool:
        least, most = self.schema.get(f"min{of}"), self.schema.get(f"max{of}")
        return not (
            (isinstance(least, int | float) and size < least)
            or (isinstance(most, int | float) and size > most)
        )

    @staticmethod
    def _allows(parse: Callable[[], object]) -> bool:
        try:
            parse()
        except (ValueError, OverflowError):
            return False
        return True

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
            case "enums":
                return self.parse_items(re.split(r"\s*(?:,|;|\band\b)\s*", text.strip(" ,;")))
            case "text" if self._allows_size("Length", len(text)):
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

    def parse_items(self, texts: Iterable[str]) -> list[Any]:
        """Return a list of choices, each once.

        Raises:
            ValueError: a text is no choice, or there are too many or too few.
        """
        items: list[Any] = []
        for text in texts:
            item = self._parse_enum(text)
            if item not in items:
                items.append(item)
        if not self._allows_size("Items", len(items)):
            raise ValueError(len(items))
        return items

    def _parse_enum(self, text: str) -> Any:  # noqa: ANN401  a JSON value
        spelled = _spell(text)
        for value, title in self.choices:
            if spelled in {_spell(value), _spell(title)}:
                return value
        raise ValueError(text)

    def outline(self) -> str:
        """Return the argument's name and its choices, if it has some."""
        return f"{self.name} ({self._show_choices()})" if self.choices else self.name

    def _show_choices(self) -> str:
        titles = [title for value, title in self.choices if value is not None]
        more = ", …" if len(titles) > _SHOWN_VALUES else ""
        return ", ".join(titles[:_SHOWN_VALUES]) + more

    def describe(self) -> str:
        """Return the argument's name and the values that it takes, for people."""
        if self.choices:
            count = "one or more" if self.kind == "enums" else "one"
            return f"{self.name} ({count} of {self._show_choices()})"
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


def _list_choices(schema: object) -> Sequence[tuple[Any, str]]:
    """Return the values that a schema lists, each with its title; empty: it lists none."""
    if not isinstance(schema, Mapping):
        return ()
    if isinstance(values := schema.get("enum"), list):
        titles = schema.get("enumNames")
        titles = titles if isinstance(titles, list) and len(titles) == len(values) else values
        return [(value, str(title)) for value, title in zip(values, titles, strict=True)]
    for key in ("oneOf", "anyOf"):
        kinds = schema.get(key)
        if isinstance(kinds, list) and all(
            isinstance(kind, Mapping) and "const" in kind for kind in kinds
        ):
            return [(kind["const"], str(kind.get("title", kind["const"]))) for kind in kinds]
    return ()


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
        self._take_values()
        taken = self._taken
        for slot in self._slots:
            if "const" in slot.schema and slot.is_required:
                taken.arguments[slot.name] = slot.schema["const"]
            elif slot.is_required and slot.name not in taken.arguments:
                taken.missing.append(slot.describe())
        taken.unused = [value for value in self._values if not self._is_spent(value)]
        return taken

    def _take_values(self) -> None:
        for slot in self._slots:
            if slot.kind:
                self._take_named(slot)
        for slot in self._open_slots():
            self._take_first(slot, is_cued=True)
        for slot in self._open_slots():
            if slot.kind == "text":
                self._take_word_behind(slot)
        for slot in self._open_slots():
            # Nothing says that a value belongs to an optional argument, except an enum's word.
            if slot.kind == "enums":
                self._take_all(slot)
            elif slot.is_required or slot.kind == "enum":
                self._take_first(slot, is_cued=False)

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

    def _take_word_behind(self, slot: _Slot) -> None:
        """Take a value of another kind as a text, behind the argument's name: "time 16:30"."""
        for span in self._values:
            word = _WORD.findall(self._words[: span.start].casefold())[-1:]
            if not self._is_spent(span) and word and word[0] in slot.words:
                self._set(slot, self._question[span.start : span.end], span.start, span.end)
                return

    def _take_all(self, slot: _Slot) -> None:
        """Take all words of a list's choices."""
        spans: list[Span] = []
        for span in self._find_enum(slot):
            is_inside = spans and span.start < spans[-1].end
            if not is_inside and not self._is_spent(span):
                spans.append(span)
        if not spans:
            return
        with suppress(ValueError):
            self._taken.arguments[slot.name] = slot.parse_items(span.text for span in spans)
            self._taken.spent += [(span.start, span.end) for span in spans]

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
        spellings = dict.fromkeys(
            spelling for value, title in slot.choices for spelling in (str(value), title)
        )
        for text in spellings:
            words = _WORD.findall(text)
            if len("".join(words)) < _SHORTEST_WORD or text.casefold() in _YES | _NO:
                continue
            pattern = r"(?<!\w)" + r"[\s_-]+".join(map(re.escape, words)) + r"(?!\w)"
            spans += [
                Span("enum", match.start(), match.end(), text)
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
        kinds = _list_types(schema)
        if isinstance(reference := schema.get("$ref"), str):
            _, _, name = reference.rpartition("/")
            definitions = root.get("$defs") or root.get("definitions") or {}
            schema = definitions.get(name) if isinstance(definitions, Mapping) else None
        elif len(kinds) == 1:
            (schema,) = kinds
        else:
            return schema
    return {}


def _list_types(schema: Mapping[str, Any]) -> Sequence[object]:
    """Return the alternatives of a schema without null; empty: it has none."""
    if isinstance(types := schema.get("type"), list):
        return [{**schema, "type": kind} for kind in types if kind != "null"]
    for key in ("anyOf", "oneOf", "allOf"):
        kinds = schema.get(key)
        if isinstance(kinds, list) and "type" not in schema and not _list_choices(schema):
            return [kind for kind in kinds if kind != {"type": "null"}]
    return ()
