"""Takes the arguments of a tool from a question by the tool's JSON Schema. Pure and deterministic.

Only what a question says plainly is taken: numbers, words or titles of an enum, quoted text, dates,
times, booleans, URLs, e-mail addresses, and any value that follows its argument's name
("city: Rome"; a number or a time without the colon, too). A value that its argument can't have is
reported, so that no default silently replaces it.
"""

import json
import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from trunkline.phrasing.content_words import stem_words
from trunkline.phrasing.named_values import NamedValue, NamedValues, join_name
from trunkline.phrasing.plain_values import (
    Span,
    find_values,
    find_values_and_words,
    read_number,
)

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
# Shorter words of an enum are taken only behind the argument's name.
_SHORTEST_WORD: Final = 2
_WORD: Final = re.compile(r"\w+")
_PLAIN_TEXT: Final = re.compile(r"[^,;\n]*")
# The words beside a value are not further away.
_NEAR_CHARS: Final = 100
# Behind these, a number in words counts what is known: "the two", "which one".
_DETERMINER: Final = re.compile(
    r"\b(?:all|another|any|both|each|every|no|other|some|that|the|these|this|those|which)\s+$",
    re.IGNORECASE,
)


@dataclass(slots=True)
class TakenArguments:
    """The arguments that a question has for a tool."""

    arguments: dict[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    """Required arguments that the question lacks, each with the values that it may have."""
    rejected: dict[str, str] = field(default_factory=dict)
    """Arguments that the question names with a value that they can't have: that value, by name."""
    spent: list[tuple[int, int]] = field(default_factory=list)
    """Positions of the arguments in the question."""
    unused: list[Span] = field(default_factory=list)
    """Values in the question that are no argument."""


def split_name(name: str) -> list[str]:
    """Return the words of an identifier in lower case: of `fromUnit`, "from" and "unit"."""
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", name)
    return [word.casefold() for word in re.findall(r"[^\W_]+", spaced)]


def take_arguments(
    question: str, schema: Mapping[str, Any], tool_words: frozenset[str] = frozenset()
) -> TakenArguments:
    """Return the arguments that a question has for a tool with this schema.

    `tool_words` are the stems of the words of the tool's name: they are no values.
    """
    return _Taking(question, schema, tool_words).take()


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
            case "date" if (values := find_values_and_words(text)[0]) and len(values) == 1:
                if values[0].kind == "date":
                    return values[0].text
        raise ValueError(text)

    def _parse_number(self, text: str) -> float:
        number: object = json.loads(read_number(text).replace(",", "").removeprefix("+"))
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
        for spelled in (_spell(text), _spell(read_number(text))):
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
    """Return the values that a schema lists, each with its title; empty: it lists none."""
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


class _Taking:
    """Assigns the values of one question to the arguments of one tool."""

    def __init__(
        self, question: str, schema: Mapping[str, Any], tool_words: frozenset[str]
    ) -> None:
        self._question = question
        self._values, words = find_values_and_words(question)
        self._taken = TakenArguments()
        self._places: dict[str, tuple[int, int]] = {}
        """The positions of arguments in the question."""
        self._rejected: dict[str, NamedValue] = {}
        required = schema.get("required", ())
        properties = schema.get("properties", {})
        items = properties.items() if isinstance(properties, Mapping) else ()
        self._slots = [
            _Slot(name, _resolve(about, schema), name in required)
            for name, about in list(items)[:_PROPERTIES_LIMIT]
        ]
        # A choice may be called "one" or "two".
        choices = [span for slot in self._slots for span in self._find_enum(slot)]
        self._number_words = [
            word for word in words if not any(word.overlaps(c.start, c.end) for c in choices)
        ]
        names = stem_words(word for slot in self._slots for word in slot.words)
        self._named = NamedValues(question, self._values, names, tool_words)
        labels = [join_name(slot.words) for slot in self._slots if slot.words]
        # Without arguments, the pattern matches nothing.
        names_pattern = "|".join(labels) or r"(?!)"
        self._label = re.compile(rf"(?<!\w)(?:{names_pattern})\s*[=:]", re.IGNORECASE)
        # The question with its values replaced by spaces: only words remain.
        text = list(question)
        for value in self._values:
            text[value.start : value.end] = " " * (value.end - value.start)
        self._words = "".join(text)

    def take(self) -> TakenArguments:
        self._take_values()
        self._reject_values()
        taken = self._taken
        for slot in self._slots:
            if "const" in slot.schema and slot.is_required:
                taken.arguments[slot.name] = slot.schema["const"]
            elif slot.name in taken.rejected or (
                slot.is_required and slot.name not in taken.arguments
            ):
                taken.missing.append(slot.describe())
        values = self._values
        # "two" may also count what the other words name, unless such words are used as values.
        if any(self._is_spent(word) for word in self._number_words):
            values = sorted([*values, *self._number_words], key=lambda value: value.start)
        taken.unused = [
            value
            for value in values
            if not self._is_spent(value) and not self._is_determined(value)
        ]
        return taken

    def _take_values(self) -> None:
        for slot in self._slots:
            self._take_stated(slot)
        for slot in self._open_slots():
            self._take_first(slot, is_cued=True)
        for slot in self._open_slots():
            if slot.kind == "text":
                self._take_word_behind(slot)
            else:
                self._take_adjacent(slot)
        for slot in self._open_slots():
            # Nothing says that a value belongs to an optional argument, except an enum's word.
            if slot.kind == "enums":
                self._take_all(slot)
            elif slot.is_required or slot.kind == "enum" or slot.name in self._rejected:
                self._take_first(slot, is_cued=False)

    def _open_slots(self) -> Iterator[_Slot]:
        for slot in self._slots:
            if slot.kind and slot.name not in self._taken.arguments:
                yield slot

    def _take_stated(self, slot: _Slot) -> None:
        """Take a value that follows the argument's name and a colon, "=" or "is"."""
        stated = self._named.find_stated(slot.words)
        if stated is None:
            return
        begin = stated.begin
        quoted = next((value for value in self._values if value.start == begin), None)
        end = quoted.end if quoted else self._find_text_end(begin)
        text = quoted.text if quoted else self._question[begin:end].strip(" .?!")
        if slot.kind and text and self._set(slot, text, stated.start, end):
            return
        if stated.text and (slot.kind or stated.is_explicit):
            self._rejected[slot.name] = stated

    def _find_text_end(self, begin: int) -> int:
        """Return the end of a text without quotation marks: before the next argument's name."""
        plain = _PLAIN_TEXT.match(self._question, begin)
        end = plain.end() if plain else begin
        label = self._label.search(self._question, begin, end)
        return label.start() if label else end

    def _take_adjacent(self, slot: _Slot) -> None:
        """Take or reject the word that follows the argument's name alone: "size L"."""
        is_choice = slot.kind in {"enum", "enums"}
        value = self._named.find_adjacent(slot.words, is_choice=is_choice)
        if value is None:
            return
        if not (is_choice and self._set(slot, value.text, value.start, value.end)):
            self._rejected.setdefault(slot.name, value)

    def _reject_values(self) -> None:
        """Keep the rejected values that nothing behind them corrects."""
        taken = self._taken
        for name, said in self._rejected.items():
            place = self._places.get(name)
            if place is None and any(
                start < said.end and said.start < end for start, end in taken.spent
            ):
                # It is a part of another argument's value.
                continue
            if place is not None and not self._is_corrected(said, place):
                del taken.arguments[name]
                taken.spent.remove(place)
            if name not in taken.arguments:
                taken.rejected[name] = said.text
            if name not in taken.arguments or self._is_below(said, self._places[name]):
                taken.spent.append((said.start, said.end))

    def _is_corrected(self, said: NamedValue, place: tuple[int, int]) -> bool:
        """Return whether the value at a place is meant instead of a rejected one."""
        start, end = place
        is_inside = start < said.end and said.begin < end
        return not said.is_explicit or is_inside or self._is_below(said, place)

    def _is_below(self, said: NamedValue, place: tuple[int, int]) -> bool:
        """Return whether a place is on a later line, as the answer to the question for a value."""
        return "\n" in self._question[said.end : place[0]]

    def _take_first(self, slot: _Slot, *, is_cued: bool) -> None:
        """Take the first free value of the argument's kind; `is_cued`: beside its name."""
        if slot.kind == "boolean":
            if is_cued:
                self._take_boolean(slot)
            else:
                self._take_last_line(slot)
            return
        may_take = self._is_named if is_cued else self._is_free
        for span in self._find_spans(slot):
            if span.kind != slot.kind or self._is_spent(span) or not may_take(slot, span):
                continue
            if self._set(slot, span.text, span.start, span.end):
                return
            if is_cued:
                place = (span.start, span.start, span.end)
                self._rejected.setdefault(slot.name, NamedValue(*place, span.text, False))

    def _is_named(self, slot: _Slot, span: Span) -> bool:
        """Return whether a value is beside the argument's name."""
        words = slot.words
        before = _WORD.findall(self._text_before(span).casefold())[-1:]
        after = _WORD.findall(self._words[span.end : span.end + _NEAR_CHARS].casefold())[:1]
        if any(word in words for word in before):
            return True
        # After a number, its unit: "4 seats", "1 seat". After a word, the next argument begins.
        inside = _WORD.findall(self._question[span.start : span.end].casefold())
        return span.kind == "number" and any(
            word in words or bool(stem_words([word]) & stem_words(words)) for word in after + inside
        )

    def _is_free(self, slot: _Slot, span: Span) -> bool:
        """Return whether a value may be the argument's without its name."""
        if self._is_determined(span):
            return False
        if slot.is_required or slot.kind == "enum":
            return True
        # The optional argument was named with another value: a later line may correct that.
        return self._is_below(self._rejected[slot.name], (span.start, span.end))

    def _find_spans(self, slot: _Slot) -> Sequence[Span]:
        """Return the values that may be the argument's. Digits are more likely than words."""
        return (
            self._find_enum(slot) if slot.kind == "enum" else [*self._values, *self._number_words]
        )

    def _is_determined(self, span: Span) -> bool:
        """Return whether a number in words is no value: "the two", "which one", "one of them"."""
        if span not in self._number_words:
            return False
        if _DETERMINER.search(self._question, max(0, span.start - _NEAR_CHARS), span.start):
            return True
        if self._question[span.start : span.end].casefold() != "one":
            return False
        line = self._question[self._question.rfind("\n", 0, span.start) + 1 :]
        is_alone = line.strip(" .!").casefold() == "one"
        after = _WORD.match(self._question, span.end + 1)
        is_counting = after is None or bool(stem_words([after[0].casefold()]))
        return not (is_alone or (is_counting and self._question[span.end + 1 :].strip()))

    def _take_last_line(self, slot: _Slot) -> None:
        """Take the answer to the question for a boolean: a line that says nothing else."""
        start = self._question.rfind("\n") + 1
        text = self._question[start:].strip(" .!")
        if start and text.casefold() in _YES | _NO:
            self._set(slot, text, start, len(self._question))

    def _take_word_behind(self, slot: _Slot) -> None:
        """Take a value of another kind as a text, behind the argument's name: "time 16:30"."""
        for span in self._values:
            word = _WORD.findall(self._text_before(span).casefold())[-1:]
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
            places = [(span.start, span.end) for span in spans]
            self._taken.spent += places
            self._places[slot.name] = places[-1]

    def _take_boolean(self, slot: _Slot) -> None:
        name = join_name(slot.words)
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

    def _text_before(self, span: Span) -> str:
        return self._words[max(0, span.start - _NEAR_CHARS) : span.start]

    def _is_spent(self, span: Span) -> bool:
        return any(span.start < end and start < span.end for start, end in self._taken.spent)

    def _set(self, slot: _Slot, text: str, start: int, end: int) -> bool:
        try:
            self._taken.arguments[slot.name] = slot.parse(text)
        except (ValueError, OverflowError, RecursionError):
            return False
        self._taken.spent.append((start, end))
        self._places[slot.name] = (start, end)
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
