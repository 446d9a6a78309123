"""Finds numbers and dates in words, and writes them in digits.

"twenty-five" is 25, "two thirds" is (2/3), "one and a half" is 1.5, "2 million" is 2000000, "the
first of March 2026" is 2026-03-01, and "Christmas 2026" is 2026-12-25. Of two dates such as "from
3 March to 1 June 2026", the one without a year takes that of the other. "24 August" is --08-24, as
in ISO 8601: only who knows today's date knows its year.
"""

import re
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeAlias

_TOKEN = re.compile(r"\d[\d,]*(?:\.\d+)?|[^\W\d_]+")
# A number in words is written with spaces or hyphens between its words.
_JOINT = re.compile(r"[ \t]?-?[ \t]?")
_DATE_JOINT = re.compile(r",?[ \t]{0,2}")

_UNITS = {
    word: number
    for number, word in enumerate(
        (
            *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"),
            *("ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen"),
            *("seventeen", "eighteen", "nineteen"),
        )
    )
}
_TENS = {
    word: 10 * number
    for number, word in enumerate(
        ("twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"), start=2
    )
}
_DOZEN = 12
_HUNDRED = 100
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_ARTICLES = ("a", "an")
_ORDINALS = {
    word: number
    for number, word in enumerate(
        (
            *("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"),
            *("ninth", "tenth", "eleventh", "twelfth", "thirteenth", "fourteenth", "fifteenth"),
            *("sixteenth", "seventeenth", "eighteenth", "nineteenth", "twentieth"),
        ),
        start=1,
    )
} | {"thirtieth": 30}
# After these, a half is a number: "more than half", but "the first half".
_BEFORE_HALF = frozenset(("than", "plus", "minus", "times", "equals"))
_OPERATORS = frozenset(("plus", "minus", "times", "by"))
# Units that people halve: "an hour and a half".
_MEASURES = frozenset(
    f"{unit}{ending}"
    for unit in (
        *("second", "minute", "hour", "day", "week", "month", "year", "mile", "kilometer"),
        *("kilometre", "meter", "metre", "pound", "kilo", "kilogram", "ounce", "gallon", "liter"),
        *("litre", "cup", "pint", "yard", "dollar", "euro", "gram", "tablespoon", "teaspoon"),
        *("inch", "millilitre", "milliliter", "acre", "hectare", "quart", "ton", "tonne"),
    )
    for ending in ("", "s")
)
MEASURE_PAIR = re.compile(
    rf"\b(?:(?:{'|'.join(sorted(_MEASURES))}|feet)(?=\sand\s(?:{'|'.join(sorted(_MEASURES))}"
    rf"|inches)\b)"
    r"|hours?(?=\sand\s\d{1,2}\sminutes?\b))(?P<joint>\sand\s)",
    re.IGNORECASE,
)
"""Two units of one amount: "hours and minutes"."""
_AFTER_OPERAND = frozenset(
    ("squared", "cubed", "plus", "minus", "times", "divided", "multiplied", "percent")
)
# A second is a time, so nobody means a half by it.
_DENOMINATORS = {
    "half": 2,
    "halves": 2,
    "quarter": 4,
    "quarters": 4,
    **{word: number for word, number in _ORDINALS.items() if number > 2},
    **{f"{word}s": number for word, number in _ORDINALS.items() if number > 2},
    "hundredth": 100,
    "hundredths": 100,
}
_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            ("january", "jan"),
            ("february", "feb"),
            ("march", "mar"),
            ("april", "apr"),
            ("may",),
            ("june", "jun"),
            ("july", "jul"),
            ("august", "aug"),
            ("september", "sep", "sept"),
            ("october", "oct"),
            ("november", "nov"),
            ("december", "dec"),
        ),
        start=1,
    )
    for name in names
}
# They are months only behind a day, or with a capital: "how many days may 10 people take".
_WORDS_LIKE_MONTHS = frozenset(("may", "march", "mar"))
# Days that have a name, by month and day.
_NAMED_DAYS = {
    tuple(name.split()): day
    for day, names in (
        ((1, 1), ("new years day", "new year s day", "new year day", "new year")),
        ((2, 14), ("valentines day", "valentine s day", "valentine day")),
        ((10, 31), ("halloween",)),
        ((12, 24), ("christmas eve",)),
        ((12, 25), ("christmas", "christmas day", "xmas")),
        ((12, 26), ("boxing day",)),
        ((12, 31), ("new years eve", "new year s eve", "new year eve")),
    )
    for name in names
}
_LONGEST_NAME = max(map(len, _NAMED_DAYS))
# Words between the two dates of a span.
_SPAN_WORDS = frozenset(("and", "to", "until", "till", "through"))
_ORDINAL_ENDINGS = ("st", "nd", "rd", "th")
_LAST_DAY = 31
_FIRST_YEAR = 1000
_LAST_YEAR = 9999
# Longer ones are left as they are. Python refuses to read some thousand digits.
_LONGEST_NUMBER_CHARS = 100

# A value, and the index after its last token.
_Parsed: TypeAlias = tuple[Fraction, int] | None


@dataclass(frozen=True, slots=True)
class NumberPhrase:
    """A number or a date in words: its place in the text, and its digits."""

    start: int
    end: int
    digits: str


def find_numbers(text: str) -> list[NumberPhrase]:
    """Return the numbers and dates that the text has in words, in their order."""
    reader = _Reader(text)
    found = []
    index = 0
    while index < len(reader.words):
        dates = reader.read_dates(index)
        for day in dates:
            start, end = reader.starts[day.begin], reader.ends[day.end - 1]
            found.append(NumberPhrase(start, end, day.format()))
        if dates:
            index = dates[-1].end
            continue
        parsed = reader.read_number(index)
        if parsed is None:
            index += 1
            continue
        digits, number_end = parsed
        found.append(NumberPhrase(reader.starts[index], reader.ends[number_end - 1], digits))
        index = number_end
    return found


def write_digits(text: str) -> str:
    """Return the text with digits for the numbers and dates that it has in words."""
    pieces = []
    position = 0
    for phrase in find_numbers(text):
        pieces += [text[position : phrase.start], phrase.digits]
        position = phrase.end
    return "".join([*pieces, text[position:]])


@dataclass(frozen=True, slots=True)
class _Day:
    """A day of a month, from word `begin` to word `end`. `year` is 0 if it has none."""

    begin: int
    end: int
    month: int
    day: int
    year: int = 0

    def is_before(self, other: "_Day") -> bool:
        """Return whether it is earlier in the calendar, of whatever year."""
        return (self.month, self.day) < (other.month, other.day)

    def format(self) -> str:
        """Return the date, YYYY-MM-DD, or --MM-DD without a year."""
        year = f"{self.year:04}" if self.year else "-"
        return f"{year}-{self.month:02}-{self.day:02}"


class _Reader:
    """Reads numbers and dates from the words of a text."""

    def __init__(self, text: str) -> None:
        tokens = list(_TOKEN.finditer(text))
        self.words = [token[0].lower() for token in tokens]
        self.starts = [token.start() for token in tokens]
        self.ends = [token.end() for token in tokens]
        self._text = text

    def read_number(self, index: int) -> tuple[str, int] | None:
        """Read a number of which at least one word is no digit."""
        fraction = self._read_fraction(index)
        if fraction is not None:
            value, end = fraction
            is_whole = value.denominator == 1
            return _format(value) if is_whole else f"({value.numerator}/{value.denominator})", end
        if measured := self._read_measured(index):
            return measured
        # "the tenth power". A first and a second may be words of prose.
        if _ORDINALS.get(self.words[index], 0) > 2:
            number = _ORDINALS[self.words[index]]
            return f"{number}{'rd' if number == 3 else 'th'}", index + 1
        cardinal = self._read_cardinal(index)
        if cardinal is None:
            return None
        # In "1/2 and two thirds", the 2 is a denominator.
        is_over = (
            self._text[max(0, self.starts[index] - 2) : self.starts[index]].rstrip().endswith("/")
        )
        value, end = cardinal if is_over else self._read_mixed(*cardinal)
        if end == index + 1 and self.words[index][0].isdecimal():
            return None
        return _format(value), end

    def _read_measured(self, index: int) -> tuple[str, int] | None:
        """Read "a day and a half" or "two miles and a quarter": the number, and its unit."""
        is_article = self._word(index) in _ARTICLES
        whole = (Fraction(1), index + 1) if is_article else self._read_cardinal(index)
        if whole is None or self._word(whole[1]) not in _MEASURES or not self._is_joined(whole[1]):
            return None
        unit = whole[1]
        is_joined = self._word(unit + 1) == "and" and self._is_joined(unit + 1)
        fraction = self._read_fraction(unit + 2) if is_joined else None
        if fraction is None or fraction[0] >= 1 or self._word(fraction[1]) == "of":
            return None
        name = self._word(unit).removesuffix("s")
        return f"{_format(whole[0] + fraction[0])} {name}s", fraction[1]

    def read_dates(self, index: int) -> list[_Day]:
        """Read a date, or the two of a span that has one year; [] if there is none."""
        first = self._read_date(index)
        if first is None:
            return []
        second = self._read_second_date(first)
        if second is None or bool(first.year) == bool(second.year):
            return [first]
        # The second day is the later one: a span may lead into the next year.
        if first.year:
            year = first.year + second.is_before(first)
            return [first, replace(second, year=year)] if year <= _LAST_YEAR else [first]
        return [replace(first, year=second.year - second.is_before(first)), second]

    def _read_second_date(self, first: _Day) -> _Day | None:
        """Read the date after "and", "to" or "until" behind another date."""
        if self._word(first.end) not in _SPAN_WORDS:
            return None
        is_joined = self._is_joined(first.end, _DATE_JOINT) and self._is_joined(first.end + 1)
        return self._read_date(first.end + 1) if is_joined else None

    def _read_date(self, index: int) -> _Day | None:
        """Read a day and a month, or the name of a day, and the year if there is one."""
        found = self._read_named_day(index) or self._read_day_and_month(index)
        if found is None:
            return None
        is_named = self._word(found.end) in {"of", "in"}
        start = found.end + is_named
        if not self._is_joined(start, _DATE_JOINT):
            return found
        year = self._read_cardinal(start)
        if year is None or not _FIRST_YEAR <= year[0] <= _LAST_YEAR:
            return found
        return replace(found, year=int(year[0]), end=year[1])

    def _read_named_day(self, index: int) -> _Day | None:
        for length in range(min(_LONGEST_NAME, len(self.words) - index), 0, -1):
            if found := _NAMED_DAYS.get(tuple(self.words[index : index + length])):
                return _Day(index, index + length, *found)
        return None

    def _read_day_and_month(self, index: int) -> _Day | None:
        """Read a day and a month in either order, with or without "the"."""
        start = index + (self._word(index) == "the")
        day_first = self._read_day(start)
        if day_first:
            day, position = day_first
            position += self._word(position) == "of"
            month = _MONTHS.get(self._word(position), 0)
            return _Day(index, position + 1, month, day) if month else None
        month = _MONTHS.get(self._word(start), 0) if self._may_be_month(start) else 0
        day_last = self._read_day(start + 1 + (self._word(start + 1) == "the")) if month else None
        return _Day(index, day_last[1], month, day_last[0]) if day_last else None

    def _may_be_month(self, index: int) -> bool:
        """Return whether a word before a number may be a month, and not "may" or "march"."""
        if self._word(index) not in _WORDS_LIKE_MONTHS:
            return True
        return self._text[self.starts[index]].isupper()

    def _read_day(self, index: int) -> tuple[int, int] | None:
        word = self._word(index)
        if word in _ORDINALS:
            return _ORDINALS[word], index + 1
        if word in _TENS and self._is_joined(index + 1):
            ordinal = _ORDINALS.get(self._word(index + 1), 0)
            if 0 < ordinal < 10 and _TENS[word] + ordinal <= _LAST_DAY:
                return _TENS[word] + ordinal, index + 2
        cardinal = self._read_cardinal(index)
        if cardinal is None or not 1 <= cardinal[0] <= _LAST_DAY:
            return None
        value, end = cardinal
        has_ending = self._word(end) in _ORDINAL_ENDINGS and self.starts[end] == self.ends[end - 1]
        return int(value), end + has_ending

    def _read_fraction(self, index: int) -> _Parsed:
        """Read "two thirds", "a quarter", "half of" or the half in "half 90"."""
        # "half a million", "half a percent"
        if self._word(index) == "half" and self._word(index + 1) in _ARTICLES:
            scale = {"dozen": _DOZEN, "percent": 1, **_SCALES}.get(self._word(index + 2), 0)
            is_counted = self._word(index + 2) != "percent"
            if scale and self._is_joined(index + 2):
                return Fraction(scale, 2), index + 2 + is_counted
            # "half an hour", "half a cup"
            if self._word(index + 2) in _MEASURES:
                return Fraction(1, 2), index + 2
        is_operand = index > 0 and self.words[index - 1] in _BEFORE_HALF
        if self._word(index) == "half" and (
            is_operand
            or self._word(index + 1) == "of"
            or self._read_cardinal(index + 1) is not None
        ):
            return Fraction(1, 2), index + 1
        if self._word(index) in _ARTICLES:
            numerator: _Parsed = (Fraction(1), index + 1)
        else:
            numerator = self._read_cardinal(index)
        if numerator is None or not self._is_joined(numerator[1]):
            return None
        value, end = numerator
        denominator = _DENOMINATORS.get(self._word(end), 0)
        if not denominator or value.denominator != 1:
            return None
        return Fraction(int(value), denominator), end + 1

    def _read_mixed(self, value: Fraction, end: int) -> tuple[Fraction, int]:
        """Read what may follow a whole number: "and a half", or "point five"."""
        if self._word(end) == "and":
            fraction = self._read_fraction(end + 1)
            # In "half of 50 and a third of 90", the third is another number.
            if fraction and fraction[0] < 1 and self._word(fraction[1]) != "of":
                # "two and a half million"
                return self._read_scale(value + fraction[0], fraction[1])
        if self._word(end) == "point":
            digits = ""
            position = end + 1
            while (digit := _UNITS.get(self._word(position), 10)) < 10:
                digits += str(digit)
                position += 1
            if digits:
                return value + Fraction(int(digits), 10 ** len(digits)), position
        return value, end

    def _read_cardinal(self, index: int) -> _Parsed:
        """Read "one hundred and five", "a thousand", "1.5 million", "1.5k" or digits."""
        word = self._word(index)
        if word[:1].isdecimal():
            if len(word) > _LONGEST_NUMBER_CHARS:
                return None
            value, end = Fraction(word.replace(",", "")), index + 1
            if self._word(end) == "k" and self.starts[end] == self.ends[index]:
                return 1000 * value, end + 1
            return self._read_scale(value, end)
        total = Fraction(0)
        end = index
        while (group := self._read_group(end, is_first=end == index)) is not None:
            value, after = group
            scaled, after_scale = self._read_scale(value, after)
            total += scaled
            end = after_scale
            if after_scale == after:
                break
            end += (
                self._word(end) == "and" and self._read_group(end + 1, is_first=False) is not None
            )
            if not self._is_joined(end):
                break
        if end == index and self._is_bare_scale(index):
            return Fraction({"hundred": _HUNDRED, **_SCALES}[word]), index + 1
        return None if end == index else (total, end)

    def _is_bare_scale(self, index: int) -> bool:
        """Return whether a word such as "hundred" is an operand: "hundred squared"."""
        if self._word(index) not in {"hundred", *_SCALES}:
            return False
        before = self.words[index - 1] if index else ""
        return before in _OPERATORS or self._word(index + 1) in _AFTER_OPERAND

    def _read_group(self, index: int, *, is_first: bool) -> _Parsed:
        """Read a number below a thousand."""
        if self._word(index) in _ARTICLES:
            if not is_first or self._word(index + 1) not in {"hundred", "dozen", *_SCALES}:
                return None
            below, end = 1, index + 1
        else:
            below, end = self._read_below_hundred(index)
            if end == index:
                return None
        if self._word(end) == "dozen":
            return Fraction(_DOZEN * below), end + 1
        if self._word(end) == "hundred" and below:
            value, end = below * _HUNDRED, end + 1
            after = end + (self._word(end) == "and")
            rest, rest_end = self._read_below_hundred(after)
            return Fraction(value + rest), rest_end if rest_end > after else end
        return Fraction(below), end

    def _read_below_hundred(self, index: int) -> tuple[int, int]:
        word = self._word(index)
        if word in _TENS:
            unit = _UNITS.get(self._word(index + 1), 0)
            if 0 < unit < 10 and self._is_joined(index + 1):
                return _TENS[word] + unit, index + 2
            return _TENS[word], index + 1
        if word in _UNITS:
            return _UNITS[word], index + 1
        return 0, index

    def _read_scale(self, value: Fraction, end: int) -> tuple[Fraction, int]:
        # "3 dozen", "a dozen dozens"
        if self._word(end) in {"dozen", "dozens"} and self._is_joined(end):
            return value * _DOZEN, end + 1
        scale = _SCALES.get(self._word(end), 0)
        return (value * scale, end + 1) if scale and self._is_joined(end) else (value, end)

    def _word(self, index: int) -> str:
        return self.words[index] if index < len(self.words) else ""

    def _is_joined(self, index: int, joint: re.Pattern[str] = _JOINT) -> bool:
        """Return whether only a joint is between a word and the one before it."""
        if not 0 < index < len(self.words):
            return False
        return joint.fullmatch(self._text, self.ends[index - 1], self.starts[index]) is not None


def _format(value: Fraction) -> str:
    """Return a number's digits: decimals if they end soon, else a fraction."""
    if value.denominator == 1:
        return str(value.numerator)
    for places in range(1, 7):
        scaled = value * 10**places
        if scaled.denominator == 1:
            digits = str(scaled.numerator).rjust(places + 1, "0")
            return f"{digits[:-places]}.{digits[-places:]}"
    return f"({value.numerator}/{value.denominator})"
