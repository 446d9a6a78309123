"""The arguments of a tool as people write them, by the tool's JSON Schema. Pure.

A text gives an argument by its name and its value: "city: Rome, days: 3". A value that its argument
can't have is reported, so that no default silently replaces it.
"""

import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trunkline.core.json_types import JsonValue

_PROPERTIES_LIMIT: Final = 32
_ENUM_LIMIT: Final = 500
_REFERENCES_LIMIT: Final = 8
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
_LIMIT_WORDS: Final = {
    "minimum": "from",
    "exclusiveMinimum": "above",
    "maximum": "up to",
    "exclusiveMaximum": "below",
}
_SHOWN_VALUES: Final = 12
_QUOTES: Final = frozenset({'""', "''", "``", "\u201c\u201d", "\u00ab\u00bb"})
_QUOTED: Final = re.compile(r'"[^"]*"|`[^`]*`|\u201c[^\u201d]*\u201d|\u00ab[^\u00bb]*\u00bb')
_PART: Final = re.compile(
    r'(?:"[^"]*"|`[^`]*`|\u201c[^\u201d]*\u201d|\u00ab[^\u00bb]*\u00bb|[^,;\n])+'
)
_PATTERNS: Final = {
    "url": r"https?://\S+",
    "email": r"[\w.+-]{1,64}@\w[\w-]*(?:\.[\w-]+)+",
    "datetime": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)?",
    "date": r"\d{4}-\d\d-\d\d",
    "time": r"\d{1,2}:\d\d(?::\d\d)?",
}


@dataclass(slots=True)
class TakenArguments:
    """The arguments that a text has for a tool."""

    arguments: dict[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    """Required arguments that the text lacks, each with the values that it may have."""
    rejected: dict[str, str] = field(default_factory=dict)
    """Arguments that the text names with a value that they can't have: that value, by name."""


def split_name(name: str) -> list[str]:
    """Return the words of an identifier in lower case: of `fromUnit`, "from" and "unit"."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return [word.casefold() for word in re.findall(r"[^\W_]+", spaced)]


def take_arguments(text: str, schema: Mapping[str, Any]) -> TakenArguments:
    """Return the arguments that a text names: `city: Rome, days: 3`. The last of a name counts.

    A number or a choice needs no name: it goes to the first open argument that it fits.
    """
    slots = _list_slots(schema)
    taken = TakenArguments()
    for slot, said in _assign_parts(text, slots).items():
        if (value := _read_value(said, slot)) is None:
            taken.rejected[slot.name] = said.strip()
        else:
            taken.arguments[slot.name] = value
    for slot in slots:
        if "const" in slot.schema and slot.is_required:
            taken.arguments[slot.name] = slot.schema["const"]
        elif slot.name in taken.rejected or (slot.is_required and slot.name not in taken.arguments):
            taken.missing.append(slot.describe())
    return taken


def _assign_parts(text: str, slots: Sequence["_Slot"]) -> dict["_Slot", str]:
    """Return the parts of a text by the arguments whose values they are."""
    said: dict[_Slot, str] = {}
    last: _Slot | None = None
    for part in filter(None, _split_parts(text, slots)):
        if named := _find_name(part, slots):
            last, said[named[0]] = named
            continue
        fitting = [
            slot
            for slot in slots
            if slot.kind not in ("", "text") and _read_value(part, slot) is not None
        ]
        # Also in place of a value that was not allowed.
        free = [
            slot for slot in fitting if slot not in said or _read_value(said[slot], slot) is None
        ]
        if free:
            last = free[0]
            said[last] = part
        elif last is not None and last.kind in ("text", "enums"):
            # A comma inside a value.
            said[last] = f"{said[last]}, {part}"
    return said


def _list_slots(schema: Mapping[str, Any]) -> list["_Slot"]:
    properties = schema.get("properties", {})
    names = list(properties)[:_PROPERTIES_LIMIT] if isinstance(properties, Mapping) else []
    return [_find_slot(name, schema) for name in names]


def take_one(text: str, name: str, schema: Mapping[str, Any]) -> JsonValue:
    """Return a whole text as the value of one argument, or None if it is no such value."""
    return _read_value(text, _find_slot(name, schema))


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


@dataclass(frozen=True, slots=True, eq=False)
class _Slot:
    """An argument, as its schema describes it."""

    name: str
    schema: Mapping[str, Any]
    is_required: bool

    @property
    def kind(self) -> str:
        """The kind of value that it takes, or "" for values that are written as JSON."""
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

    def parse(self, text: str) -> JsonValue:
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
            case kind if kind in _PATTERNS and re.fullmatch(_PATTERNS[kind], text):
                return text
            case "":
                return json.loads(text)
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

    def _parse_enum(self, text: str) -> JsonValue:
        spelled = _spell(text)
        for value, title in self.choices:
            if spelled in {_spell(value), _spell(title)}:
                return value
        raise ValueError(text)

    def outline(self) -> str:
        """Return the name of the argument, and its choices, if it has choices."""
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
            "number": self._describe_number(),
            "boolean": "yes or no",
            "url": "a URL",
            "email": "an e-mail address",
            "date": "a date like 2026-07-28",
            "datetime": "a time like 2026-07-28T09:30:00Z",
            "time": "a time like 09:30",
        }.get(self.kind, "JSON, by `trunkline tools call`")
        return f"{self.name} ({about})"

    def _describe_number(self) -> str:
        number = "a whole number" if self.schema.get("type") == "integer" else "a number"
        limits = [
            f"{words} {_make_whole(limit)}"
            for key, words in _LIMIT_WORDS.items()
            if isinstance(limit := self.schema.get(key), int | float)
        ]
        # "from 1 to 5", but "up to 5"
        return " ".join([number, *limits]).replace(" up to ", " to " if limits[1:] else " up to ")


def _list_choices(schema: object) -> Sequence[tuple[Any, str]]:
    """Return the values that a schema lists, if it lists values, each with its title."""
    if not isinstance(schema, Mapping):
        return ()
    if isinstance(values := schema.get("enum"), list):
        values = [_make_whole(value) for value in values]
        titles = schema.get("enumNames")
        titles = titles if isinstance(titles, list) and len(titles) == len(values) else values
        return [(value, str(title)) for value, title in zip(values, titles, strict=True)]
    for key in ("oneOf", "anyOf"):
        kinds = schema.get(key)
        if isinstance(kinds, list) and all(
            isinstance(kind, Mapping) and "const" in kind for kind in kinds
        ):
            constants = [(_make_whole(kind["const"]), kind.get("title")) for kind in kinds]
            return [(value, str(value if title is None else title)) for value, title in constants]
    return ()


def _make_whole(value: object) -> object:
    """Return a whole number without its decimals: in JSON Schema, 5.0 is the integer 5."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _spell(value: object) -> str:
    return re.sub(r"[\s_-]+", " ", str(value)).strip().casefold()


def _split_parts(text: str, slots: Sequence[_Slot]) -> Iterator[str]:
    """Yield the parts of a text: between commas, semicolons and lines, and before names.

    A name begins a part if "and" is before it, or a colon or an equals sign behind it.
    """
    # `unit` in "from unit: m" is a part of the longer name.
    longest_first = sorted((slot for slot in slots if slot.words), key=lambda slot: -len(slot.name))
    names = "|".join(map(_write_name, longest_first)) or r"(?!)"
    joint = re.compile(
        rf"(?:^|\s+)(?:and\s+)?(?:an?\s+|the\s+)?(?P<stated>{names})\s*[=:]"
        rf"|\s+and\s+(?:an?\s+|the\s+)?(?P<named>{names})\b",
        re.IGNORECASE,
    )
    for part in _PART.findall(text):
        begin = 0
        for match in joint.finditer(_mask_quotes(part)):
            yield part[begin : match.start()].strip()
            begin = match.start(match.lastgroup or 0)
        yield part[begin:].strip()


def _mask_quotes(text: str) -> str:
    """Return a text whose quotations have no names: such names belong to the quoted texts."""
    return _QUOTED.sub(lambda quoted: "\0" * len(quoted[0]), text)


def _find_name(part: str, slots: Sequence[_Slot]) -> tuple[_Slot, str] | None:
    """Return the argument that a part names, if it names one, and the text of its value.

    `NAME: VALUE`, `NAME = VALUE`, `NAME VALUE`, `NAME is VALUE` or `VALUE NAME`.
    """
    bare = _mask_quotes(part)
    # `unit` in "from unit: m" is a part of the longer name.
    for slot in sorted(slots, key=lambda slot: -len(slot.name)):
        if not (name := _write_name(slot)):
            continue
        if found := re.search(rf"(?<!\w){name}\s*[=:]\s*", bare, re.IGNORECASE):
            return slot, part[found.end() :]
        if found := re.match(rf"{name}\s+(?:is\s+)?", bare, re.IGNORECASE):
            return slot, part[found.end() :]
        if found := re.search(rf"\s{name}$", bare, re.IGNORECASE):
            return slot, part[: found.start()]
    return None


def _write_name(slot: _Slot) -> str:
    """Return the pattern of an argument's name: `from_unit` may be "from unit"."""
    return r"[\s_-]?".join(map(re.escape, slot.words))


def _read_value(text: str, slot: _Slot) -> JsonValue:
    """Return a text as the value of an argument, or None if it is no such value."""
    text = text.strip()
    if len(text) > 1 and text[0] + text[-1] in _QUOTES:
        text = text[1:-1]
    elif slot.kind != "text":
        text = text.rstrip(" .!")
    try:
        return slot.parse(text) if text else None
    except (ValueError, OverflowError, RecursionError):
        return None


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
    """Return the alternatives of a schema, if it has alternatives, without null."""
    if isinstance(types := schema.get("type"), list):
        return [{**schema, "type": kind} for kind in types if kind != "null"]
    for key in ("anyOf", "oneOf", "allOf"):
        kinds = schema.get(key)
        if isinstance(kinds, list) and "type" not in schema and not _list_choices(schema):
            return [kind for kind in kinds if kind != {"type": "null"}]
    return ()
