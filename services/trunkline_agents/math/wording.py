"""Words and symbols in which people write formulas, and those of the grammar for them."""

import re

SPELLINGS = {
    "square root of": "√",
    "square root": "√",
    "cube root of": "∛",
    "cube root": "∛",
    "multiplied by": "*",
    "times": "*",
    "divided by": "/",
    "over": "/",
    "plus": "+",
    "minus": "-",
    "raised to the power of": "^",
    "raised to the power": "^",
    "raised to": "^",
    "to the power of": "^",
    "to the power": "^",
    "squared": "^2",
    "cubed": "^3",
    "twice": "2*",
    "double": "2*",
    "triple": "3*",
    "percent": "%",
    "per cent": "%",
    "degrees": "°",
    "degree": "°",
    "sine": "sin",
    "cosine": "cos",
    "tangent": "tan",
    "natural logarithm": "ln",
    "natural log": "ln",
    "logarithm": "log",
    "absolute value": "abs",
    "modulo": "mod",
    "negative": "-",
    "is equal to": "=",
    "equal to": "=",
    "equals": "=",
    "equal": "=",
    "greatest common divisor": "gcd",
    "greatest common factor": "gcd",
    "highest common factor": "gcd",
    "least common multiple": "lcm",
    "lowest common multiple": "lcm",
    "average": "mean",
    "total": "sum",
    **dict.fromkeys(("largest", "biggest", "greatest", "highest", "maximum"), "max"),
    **dict.fromkeys(("smallest", "lowest", "least", "minimum"), "min"),
}
"""Phrases, and their symbols or names in the grammar."""
_LONGEST_FIRST = sorted(SPELLINGS, key=len, reverse=True)
# Digits may touch them: 30degrees, 4times.
_PHRASE = re.compile(
    r"(?<![a-z])(?:" + "|".join(_LONGEST_FIRST).replace(" ", r"\s{1,4}") + r")(?![a-z])",
    re.IGNORECASE,
)
_TO_THE = re.compile(
    r"\bto\s{1,4}the\s{1,4}(\d{1,6})(?:st|nd|rd|th)\b(?:\s{1,4}power\b)?", re.IGNORECASE
)
# A comma between groups of three digits, as in 1,200: not the one between arguments.
_GROUPED = re.compile(r"(?<![\d.,(])(?<!,\s)\d{1,3}(?:,\d{3})+(?![\d,])(?!\s{0,4}[,)])")
# The same in a list without parentheses, as in 1,850, 420 and 2,300.
_GROUPED_IN_LIST = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!\d|,\d)")
# The same in parentheses of no call, as in (1,200).
_GROUPED_ALONE = re.compile(r"(?<![\w√∛])\(\s?(\d{1,3}(?:,\d{3})+)\s?\)")
# A whole number and a fraction, as in 1 1/2; at the beginning also 1 and 1/2.
_MIXED = re.compile(
    r"(?<![\w./)])(?P<whole>\d{1,9})\s{1,3}(?P<over>\d{1,9})/(?P<under>\d{1,9})(?![\d/])"
)
_MIXED_FIRST = re.compile(r"^(\s*\d{1,9})\s{1,3}and\s{1,3}(?=\d{1,9}/\d)", re.IGNORECASE)
# An x between numbers. In 0x10 it is no sign.
_CROSS = re.compile(r"(?<=\d)(?<!\b0)\s{0,2}x\s{0,2}(?=\d)", re.IGNORECASE)
_ARTICLE = re.compile(r"\bthe\b(?:\s{1,4}same\b)?", re.IGNORECASE)
# Thousands, as in 2.5k: where words or a percentage show that k is no variable.
_THOUSANDS = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)k\b", re.IGNORECASE)
_SPOKEN = re.compile(
    r"\b(?:plus|minus|times|divided|multiplied|percent|per\scent|of|off)\b|%|\d\.\d+k|[$€£¥]",
    re.IGNORECASE,
)
MONEY_WORDS = ("dollars?", "euros?", "pounds?", "yen", "usd", "eur", "gbp")
"""Patterns of words for money. Shares of money are computed as those of numbers."""
NUMBER_WORDS = (
    r"\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|dozen|hundred|thousand|million"
    r"|(?:thir|four|fif|six|seven|eigh|nine)teen|(?:twen|thir|for|fif|six|seven|eigh|nine)ty"
    r"|half\sa|(?:and\sa|two|three)\s(?:half|third|quarter)s?)\b"
)
"""A pattern of numbers in words. A sentence that has them is read when they are in digits."""
_LOG_TO_BASE = re.compile(
    r"\blog(?:arithm)?\s{1,4}(?:to\s{1,4}(?:the\s{1,4})?base\s{1,4})?(?=\d{1,6}\s{1,4}of\b)",
    re.IGNORECASE,
)
# A fraction is the whole operand of these words: "2/3 divided by 4/9".
_BY_A_FRACTION = re.compile(
    r"\b(divided\s{1,4}by|to\s{1,4}the\s{1,4}power(?:\s{1,4}of)?|raised\s{1,4}to)\s{1,4}"
    r"(-?\d{1,9}/\d{1,9})(?![\d/.])",
    re.IGNORECASE,
)
# So it is of those before it: "the square root of 1/4", and of those behind it: "2/3 squared".
_OF_A_FRACTION = re.compile(
    r"\b(root|sine|cosine|tangent|sin|cos|tan|log(?:arithm)?|value)\s{1,4}of\s{1,4}"
    r"(-?\d{1,9}/\d{1,9})(?![\d/.])",
    re.IGNORECASE,
)
_FRACTION_RAISED = re.compile(
    r"(?<![\d/.*^])(\d{1,9}/\d{1,9})\s{1,4}(squared|cubed)\b", re.IGNORECASE
)
_OF_A_PERCENT = re.compile(r"\bof\s{1,4}(?:an?|one|1)\s{1,4}(?=per\s?cent\b|%)", re.IGNORECASE)
_MONEY = re.compile(
    r"[$€£¥](?=\s?\d)|(?<=\d)\s?(?:[$€£¥]|(?:" + "|".join(MONEY_WORDS) + r")\b)", re.IGNORECASE
)
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


def replace_words(text: str) -> str:
    """Replace words and unusual symbols by those of the grammar, and drop signs of money.

    The text may be of any length: each replacement takes time linear in it.
    """
    if "=" not in text and _SPOKEN.search(text):
        text = _THOUSANDS.sub(r"(\1*1000)", text)
    text = _MONEY.sub(" ", text)
    plain = _TO_THE.sub(lambda power: f"^{power[1]} ", text)
    plain = _BY_A_FRACTION.sub(r"\1 (\2)", plain)
    plain = _OF_A_FRACTION.sub(r"\1 of (\2)", plain)
    plain = _FRACTION_RAISED.sub(r"(\1) \2", plain)
    plain = _OF_A_PERCENT.sub("", plain)
    plain = _LOG_TO_BASE.sub("log base ", plain)
    if "(" not in plain:
        plain = _GROUPED_IN_LIST.sub(lambda number: number[0].replace(",", ""), plain)
    plain = _GROUPED.sub(lambda number: number[0].replace(",", ""), plain)
    plain = _GROUPED_ALONE.sub(lambda number: number[0].replace(",", ""), plain)
    plain = _CROSS.sub("*", plain)
    plain = _MIXED_FIRST.sub(r"\1 ", plain)
    plain = _MIXED.sub(
        lambda number: f"({number['whole']}+{number['over']}/{number['under']})", plain
    )
    plain = _PHRASE.sub(lambda phrase: f" {SPELLINGS[' '.join(phrase[0].lower().split())]} ", plain)
    return _ARTICLE.sub(" ", plain).translate(_SYMBOLS)
