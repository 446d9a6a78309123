"""Writes numbers in English words and in Roman numerals."""

from trunkline_agents.math.parser import reject

_ONE_NAMES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen "
    "sixteen seventeen eighteen nineteen"
)
_ONES = _ONE_NAMES.split()
_TEN_NAMES = "- - twenty thirty forty fifty sixty seventy eighty ninety"
_TENS = _TEN_NAMES.split()
_SCALE_NAMES = (
    "- thousand million billion trillion quadrillion quintillion sextillion septillion octillion "
    "nonillion decillion"
)
_SCALES = _SCALE_NAMES.split()
_LARGEST = 1000 ** len(_SCALES)
_ROMAN = (
    *((1000, "M"), (900, "CM"), (500, "D"), (400, "CD"), (100, "C"), (90, "XC"), (50, "L")),
    *((40, "XL"), (10, "X"), (9, "IX"), (5, "V"), (4, "IV"), (1, "I")),
)
_LARGEST_ROMAN = 3999


def name_number(number: int, decimals: str = "") -> str:
    """Return a whole number in words, and after "point" the digits of its decimals.

    Raises:
        InvalidArgumentError: it is too large to have a name.
    """
    if abs(number) >= _LARGEST:
        reject("This number is too large to be written in words.")
    groups = []
    rest = abs(number)
    for scale in _SCALES:
        rest, group = divmod(rest, 1000)
        if group:
            groups.append(_name_group(group) + (f" {scale}" if scale != "-" else ""))
    words = " ".join(reversed(groups)) or _ONES[0]
    if decimals:
        words += " point " + " ".join(_ONES[int(digit)] for digit in decimals)
    return words


def write_roman(number: int) -> str:
    """Return a whole number in Roman numerals.

    Raises:
        InvalidArgumentError: there are none for it.
    """
    if not 1 <= number <= _LARGEST_ROMAN:
        reject(f"Roman numerals are for whole numbers from 1 to {_LARGEST_ROMAN}.")
    numerals = ""
    for value, sign in _ROMAN:
        count, number = divmod(number, value)
        numerals += sign * count
    return numerals


def _name_group(number: int) -> str:
    """Name a number from 1 to 999."""
    hundreds, below = divmod(number, 100)
    words = [f"{_ONES[hundreds]} hundred"] if hundreds else []
    if below < len(_ONES):
        words += [_ONES[below]] if below else []
    else:
        tens, ones = divmod(below, 10)
        words.append(f"{_TENS[tens]}-{_ONES[ones]}" if ones else _TENS[tens])
    return " ".join(words)
