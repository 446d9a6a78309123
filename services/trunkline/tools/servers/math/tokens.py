"""Cuts the text of an expression into tokens, and refuses what no expression contains."""

import re
from dataclasses import dataclass
from enum import Enum, auto
from typing import NoReturn

from trunkline.errors import InvalidArgumentError

MAX_TEXT_CHARS = 2_000
MAX_TOKENS = 1_000
MAX_EXPONENT_DIGITS = 4

ALLOWED = (
    "Allowed are numbers, + - * / ^ %, !, parentheses, single-letter variables, "
    "pi, e, i, and functions such as sqrt(x), sin(x), ln(x) and factorial(n)."
)

# How people write or say it -> how the grammar knows it. Longer phrases come first.
_SPELLINGS = {
    "square root of": "√",
    "cube root of": "∛",
    "multiplied by": "*",
    "divided by": "/",
    "to the power of": "^",
    "plus": "+",
    "minus": "-",
    "times": "*",
    "squared": "^2",
    "cubed": "^3",
}
_PHRASE = re.compile(r"\b(?:" + "|".join(_SPELLINGS) + r")\b", re.IGNORECASE)
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

_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>log10|log2|[A-Za-z]+)"
    r"|(?P<symbol>\*\*|[-+*/^%!(),=√∛])"
)


class Kind(Enum):
    """What a token is."""

    NUMBER = auto()
    NAME = auto()
    SYMBOL = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of the text; `**` is already `^`."""

    kind: Kind
    text: str


def refuse(problem: str) -> NoReturn:
    """Refuse the expression with a text for whoever wrote it.

    Raises:
        InvalidArgumentError: always.
    """
    raise InvalidArgumentError(field="expression", problem=problem)


def tokenize(text: str) -> list[Token]:
    """Cut the text into tokens, the last of which is of kind END.

    Raises:
        InvalidArgumentError: the text is empty, too long, or holds what no expression contains.
    """
    if len(text) > MAX_TEXT_CHARS:
        refuse(
            f"The expression is too long: {len(text):,} characters, and at most "
            f"{MAX_TEXT_CHARS:,} are allowed."
        )
    plain = _PHRASE.sub(lambda phrase: f" {_SPELLINGS[phrase[0].lower()]} ", text)
    plain = plain.translate(_SYMBOLS)
    tokens: list[Token] = []
    position = 0
    while position < len(plain):
        position, token = _next_token(plain, position)
        if token is not None:
            tokens.append(token)
    if not tokens:
        refuse("The expression is empty. Write for example (2+3)*4.")
    if len(tokens) > MAX_TOKENS:
        refuse(f"The expression has too many parts: {len(tokens):,}; {MAX_TOKENS:,} are allowed.")
    return [*tokens, Token(Kind.END, "the end")]


def _next_token(text: str, position: int) -> tuple[int, Token | None]:
    found = _TOKEN.match(text, position)
    if found is None:
        refuse(f"{_shown(text[position])} can't be part of an expression. {ALLOWED}")
    match found.lastgroup:
        case "number":
            _check_exponent(found[0])
            return found.end(), Token(Kind.NUMBER, found[0])
        case "name":
            return found.end(), Token(Kind.NAME, found[0])
        case "symbol":
            return found.end(), Token(Kind.SYMBOL, "^" if found[0] == "**" else found[0])
        case _:
            return found.end(), None


def _check_exponent(number: str) -> None:
    _, _, exponent = number.lower().partition("e")
    if len(exponent.lstrip("+-0")) > MAX_EXPONENT_DIGITS:
        refuse(f"The number {number[:40]} is too large or too small to work with.")


def _shown(character: str) -> str:
    # What can't be seen on a line is named by its code point.
    return f"'{character}'" if character.isprintable() else f"U+{ord(character):04X}"
