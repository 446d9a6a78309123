"""Parses the text of an expression or an equation into a tree of `syntax`; evaluates nothing.

    equation := sum ["=" sum]
    sum      := product (("+" | "-") product)*
    product  := signed (("*" | "/" | "of" | nothing) signed)*
    signed   := ("+" | "-")* power
    power    := postfix ["^" signed]
    postfix  := atom ("!" | "%" | "°")*
    atom     := number | constant | letter | "(" sum ")" | "√" postfix
              | function "(" sum ("," sum)* ")"

`nothing` is multiplication: 5x, 2(3+4), x sin(x). It binds like `*`, from the left: 1/2x is x/2.
`%` is a percentage. `of` may only follow a percentage, a fraction or a parenthesis. `log` is the
natural logarithm.
"""

import re
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction
from typing import NoReturn

from trunkline.errors import InvalidArgumentError
from trunkline_agents.math.symbols import replace_symbols
from trunkline_agents.math.syntax import (
    Constant,
    Equation,
    FunctionCall,
    Negation,
    Node,
    Number,
    Power,
    Product,
    Reciprocal,
    Sum,
    Variable,
)

MAX_TEXT_CHARS = 2_000
MAX_TOKENS = 1_000
MAX_EXPONENT_DIGITS = 4

SYNTAX_HINT = (
    "Allowed are numbers, + - * / ^ %, !, parentheses, single-letter variables, "
    "pi, e, i, and functions such as sqrt(x), sin(x), ln(x) and factorial(n)."
)

_TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>log10|log2|[A-Za-z]+)"
    r"|(?P<symbol>\*\*|[-+*/^%!(),=√∛°])"
)
# Each level takes six Python frames in the parser, and a few more in SymPy.
MAX_DEPTH = 40
CONSTANTS = {"pi": "pi", "e": "e", "i": "i", "I": "i", "oo": "oo", "infinity": "oo"}
_MAX_ARGUMENTS = 20
# By canonical name, the fewest and the most arguments.
FUNCTIONS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("sqrt", "cbrt", "abs", "exp", "ln", "log10", "log2"), (1, 1)),
    **dict.fromkeys(("sin", "cos", "tan", "cot", "sec", "csc"), (1, 1)),
    **dict.fromkeys(("asin", "acos", "atan", "sinh", "cosh", "tanh"), (1, 1)),
    **dict.fromkeys(("asinh", "acosh", "atanh"), (1, 1)),
    **dict.fromkeys(("factorial", "floor", "ceil"), (1, 1)),
    **dict.fromkeys(("gcd", "lcm", "min", "max"), (2, _MAX_ARGUMENTS)),
    **dict.fromkeys(("mean", "median", "sum", "product"), (1, _MAX_ARGUMENTS)),
    **dict.fromkeys(("root", "mod"), (2, 2)),
    **dict.fromkeys(("log", "round"), (1, 2)),
}
_ALIASES = {
    "ceiling": "ceil",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
}
_ATOM_STARTS = ("(", "√", "∛")


class TokenKind(Enum):
    """The kind of a token."""

    NUMBER = auto()
    NAME = auto()
    SYMBOL = auto()
    END = auto()


@dataclass(frozen=True, slots=True)
class Token:
    """A token; `**` is already converted to `^`."""

    kind: TokenKind
    text: str


def reject(problem: str) -> NoReturn:
    """Reject the expression with a text for its author.

    Raises:
        InvalidArgumentError: always.
    """
    raise InvalidArgumentError(field="expression", problem=problem)


def tokenize(text: str) -> list[Token]:
    """Split the text into tokens; the last one is of kind END.

    Raises:
        InvalidArgumentError: the text is empty, too long, or has an invalid character.
    """
    if len(text) > MAX_TEXT_CHARS:
        reject(
            f"The expression is too long: {len(text):,} characters, and at most "
            f"{MAX_TEXT_CHARS:,} are allowed."
        )
    plain = replace_symbols(text)
    tokens: list[Token] = []
    position = 0
    while position < len(plain):
        position, token = _next_token(plain, position)
        if token is not None:
            tokens.append(token)
    if not tokens:
        reject("The expression is empty. Write for example (2+3)*4.")
    if len(tokens) > MAX_TOKENS:
        reject(f"The expression has too many parts: {len(tokens):,}; {MAX_TOKENS:,} are allowed.")
    return [*tokens, Token(TokenKind.END, "the end")]


def _next_token(text: str, position: int) -> tuple[int, Token | None]:
    match = _TOKEN.match(text, position)
    if match is None:
        reject(f"{_quote(text[position])} can't be part of an expression. {SYNTAX_HINT}")
    match match.lastgroup:
        case "number":
            _check_exponent(match[0])
            return match.end(), Token(TokenKind.NUMBER, match[0])
        case "name":
            return match.end(), Token(TokenKind.NAME, match[0])
        case "symbol":
            return match.end(), Token(TokenKind.SYMBOL, "^" if match[0] == "**" else match[0])
        case _:
            return match.end(), None


def _check_exponent(number: str) -> None:
    _, _, exponent = number.lower().partition("e")
    if len(exponent.lstrip("+-0")) > MAX_EXPONENT_DIGITS:
        reject(f"The number {number[:40]} is too large or too small to work with.")


def _quote(character: str) -> str:
    # A character that is not printable is shown by its code point.
    return f"'{character}'" if character.isprintable() else f"U+{ord(character):04X}"


def parse_expression(text: str) -> Node:
    """Parse an expression.

    Raises:
        InvalidArgumentError: it is not valid; the text says what is wrong and what is allowed.
    """
    tokens = tokenize(text)
    if any(token.text == "=" for token in tokens):
        reject("An '=' makes it an equation, and only solving takes one.")
    return _Parser(tokens).parse()


def parse_equation(text: str) -> Equation:
    """Parse an equation; an expression alone is taken as equal to zero.

    Raises:
        InvalidArgumentError: it is not valid; the text says what is wrong and what is allowed.
    """
    tokens = tokenize(text)
    signs = [position for position, token in enumerate(tokens) if token.text == "="]
    if not signs:
        return Equation(_Parser(tokens).parse(), Number(Fraction(0)))
    if len(signs) > 1:
        reject("An equation has one '='; this has more.")
    left = [*tokens[: signs[0]], Token(TokenKind.END, "'='")]
    return Equation(_Parser(left).parse(), _Parser(tokens[signs[0] + 1 :]).parse())


def parse_variable(text: str) -> str:
    """Parse the name of a variable.

    Raises:
        InvalidArgumentError: it is not a single letter, or the letter is a constant.
    """
    name = text.strip()
    if len(name) != 1 or not (name.isascii() and name.isalpha()) or name in CONSTANTS:
        raise InvalidArgumentError(
            field="variable",
            problem=f"{name[:20]!r} can't be a variable: take one letter other than e, i and I.",
        )
    return name


class _Parser:
    """A recursive-descent parser. Every recursion passes `_signed`, which counts the depth."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._position = 0
        self._depth = 0

    def parse(self) -> Node:
        node = self._sum()
        if self._token.text == ",":
            reject("',' only separates the arguments of a function. Write 1000 for 1,000.")
        if self._token.kind is not TokenKind.END:
            reject(f"{self._describe_token()} is one too many, or something before it is missing.")
        return node

    @property
    def _token(self) -> Token:
        return self._tokens[self._position]

    def _describe_token(self) -> str:
        token = self._token
        return token.text if token.kind is TokenKind.END else f"'{token.text[:40]}'"

    def _take(self) -> Token:
        token = self._token
        self._position += 1
        return token

    def _accept(self, *symbols: str) -> str | None:
        """Consume and return the next token if it is one of these symbols, else return None."""
        token = self._token
        if token.kind is not TokenKind.END and token.text in symbols:
            self._position += 1
            return token.text
        return None

    def _sum(self) -> Node:
        terms = [self._product()]
        while sign := self._accept("+", "-"):
            term = self._product()
            terms.append(Negation(term) if sign == "-" else term)
        return terms[0] if len(terms) == 1 else Sum(tuple(terms))

    def _product(self) -> Node:
        factors = [self._signed()]
        while True:
            if self._accept("*"):
                factors.append(self._signed())
            elif self._accept("/"):
                factors.append(Reciprocal(self._signed()))
            elif self._accept_of():
                factors.append(self._signed())
            elif self._is_at_an_atom():
                factors.append(self._implicit_factor())
            else:
                return factors[0] if len(factors) == 1 else Product(tuple(factors))

    def _is_at_of(self) -> bool:
        return self._token.kind is TokenKind.NAME and self._token.text.lower() == "of"

    def _accept_of(self) -> bool:
        if not self._is_at_of():
            return False
        before = self._tokens[max(0, self._position - 2) : self._position]
        self._position += 1
        if before[-1].text not in ("%", ")") and before[0].text != "/":
            reject("'of' needs a percentage or a fraction before it, as in 15% of 240.")
        return True

    def _implicit_factor(self) -> Node:
        before = self._tokens[self._position - 1]
        if before.text == "%":
            reject(
                "'%' means percent, as in 15% of 240. For the remainder of a division "
                "write mod(5, 3)."
            )
        if self._token.kind is TokenKind.NUMBER and before.kind is TokenKind.NUMBER:
            reject(
                f"An operator is missing between '{before.text[:40]}' and {self._describe_token()}."
            )
        return self._power()

    def _is_at_an_atom(self) -> bool:
        token = self._token
        if token.kind is TokenKind.NAME:
            return not self._is_at_of()
        return token.kind is TokenKind.NUMBER or token.text in _ATOM_STARTS

    def _signed(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            reject(f"The expression is nested too deeply: at most {MAX_DEPTH} levels are allowed.")
        is_negative = False
        while sign := self._accept("+", "-"):
            is_negative ^= sign == "-"
        node = self._power()
        self._depth -= 1
        return Negation(node) if is_negative else node

    def _power(self) -> Node:
        base = self._postfix()
        return Power(base, self._signed()) if self._accept("^") else base

    def _postfix(self) -> Node:
        node = self._atom()
        while mark := self._accept("!", "%", "°"):
            if self._tokens[self._position - 2].text == mark:
                reject(f"'{mark}{mark}' is ambiguous: put parentheses around the inner part.")
            if mark == "!":
                node = FunctionCall("factorial", (node,))
            elif mark == "°":
                node = Product((node, Constant("pi"), Number(Fraction(1, 180))))
            else:
                node = Product((node, Number(Fraction(1, 100), is_decimal=True)))
        return node

    def _atom(self) -> Node:
        token = self._token
        if token.kind is TokenKind.NUMBER:
            self._position += 1
            is_decimal = not token.text.isdigit()
            return Number(Fraction(token.text), is_decimal=is_decimal)
        if token.kind is TokenKind.NAME:
            return self._parse_name(self._take().text)
        if self._accept("("):
            return self._expect_closing(self._sum())
        if sign := self._accept("√", "∛"):
            return FunctionCall("sqrt" if sign == "√" else "cbrt", (self._radicand(),))
        return reject(f"A number or a name was expected at {self._describe_token()}.")

    def _radicand(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            reject(f"The expression is nested too deeply: at most {MAX_DEPTH} levels are allowed.")
        node = self._postfix()
        self._depth -= 1
        return node

    def _parse_name(self, name: str) -> Node:
        if name in CONSTANTS:
            return Constant(CONSTANTS[name])
        if len(name) == 1:
            return Variable(name)
        lowered = name.lower()
        if lowered in CONSTANTS:
            return Constant(CONSTANTS[lowered])
        function = _ALIASES.get(lowered, lowered)
        if function not in FUNCTIONS:
            reject(f"'{name[:40]}' is not known here. {SYNTAX_HINT}")
        return self._call(function)

    def _call(self, function: str) -> FunctionCall:
        if not self._accept("("):
            reject(f"{function} needs something to work on, in parentheses: {function}(x).")
        arguments = [self._sum()]
        while self._accept(","):
            arguments.append(self._sum())
        self._expect_closing(arguments[-1])
        fewest, most = FUNCTIONS[function]
        if not fewest <= len(arguments) <= most:
            expected = str(fewest) if fewest == most else f"{fewest} to {most}"
            reject(f"{function} takes {expected} arguments, not {len(arguments)}.")
        return FunctionCall(function, tuple(arguments))

    def _expect_closing(self, node: Node) -> Node:
        if not self._accept(")"):
            reject(f"A ')' was expected at {self._describe_token()}.")
        return node
