"""Symbols in which people write formulas, and the symbols of the grammar for them."""

import re

# A comma between groups of three digits, as in 1,200, and no comma between arguments.
_GROUPED = re.compile(r"(?<![\d.,(])(?<!,\s)\d{1,3}(?:,\d{3})+(?![\d,])(?!\s{0,4}[,)])")
# A whole number and a fraction, as in 1 1/2.
_MIXED = re.compile(
    r"(?<![\w./)])(?P<whole>\d{1,9})\s{1,3}(?P<over>\d{1,9})/(?P<under>\d{1,9})(?![\d/])"
)
# An x between numbers. In 0x10 it is no sign.
_CROSS = re.compile(r"(?<=\d)(?<!\b0)\s{0,2}x\s{0,2}(?=\d)", re.IGNORECASE)
_PERCENT = re.compile(r"(?<![a-z])per\s?cent(?![a-z])", re.IGNORECASE)
_SYMBOLS = str.maketrans(
    {
        "\N{MULTIPLICATION SIGN}": "*",
        "·": "*",
        "⋅": "*",
        "\N{ASTERISK OPERATOR}": "*",
        "÷": "/",
        "\N{DIVISION SLASH}": "/",
        "\N{MINUS SIGN}": "-",
        "\N{EN DASH}": "-",
        "π": " pi ",
        "∞": " oo ",
        "²": "^2",
        "³": "^3",
        "\N{NO-BREAK SPACE}": " ",
    }
)


def replace_symbols(text: str) -> str:
    """Replace unusual symbols and forms of numbers by the forms of the grammar.

    The text may be of any length: each replacement takes time linear in it.
    """
    plain = _GROUPED.sub(lambda number: number[0].replace(",", ""), text)
    plain = _CROSS.sub("*", plain)
    plain = _MIXED.sub(
        lambda number: f"({number['whole']}+{number['over']}/{number['under']})", plain
    )
    return _PERCENT.sub("%", plain).translate(_SYMBOLS)
