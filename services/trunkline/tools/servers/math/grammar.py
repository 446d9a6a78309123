"""Reads the text of an expression or an equation into the tree of `syntax`; evaluates nothing.

    equation := sum ["=" sum]
    sum      := product (("+" | "-") product)*
    product  := signed (("*" | "/" | "of" | nothing) signed)*
    signed   := ("+" | "-")* power
    power    := postfix ["^" signed]
    postfix  := atom ("!" | "%")*
    atom     := number | constant | letter | "(" sum ")" | "√" postfix
              | function "(" sum ("," sum)* ")"

`nothing` is multiplication: 5x, 2(3+4), x sin(x). It binds like `*`, from the left: 1/2x is x/2.
`%` is a percentage, and `of` may only follow one. `log` is the natural logarithm.
"""

from fractions import Fraction

from trunkline.errors import InvalidArgumentError
from trunkline.tools.servers.math.syntax import (
    Call,
    Constant,
    Equation,
    Negation,
    Node,
    Number,
    Power,
    Product,
    Reciprocal,
    Sum,
    Variable,
)
from trunkline.tools.servers.math.tokens import ALLOWED, Kind, Token, refuse, tokenize

# Each level costs the parser six Python frames and SymPy a few more.
MAX_DEPTH = 40

CONSTANTS = {"pi": "pi", "e": "e", "i": "i", "I": "i", "oo": "oo", "infinity": "oo"}

_ANY = 20
# Canonical name -> fewest and most arguments.
FUNCTIONS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("sqrt", "cbrt", "abs", "exp", "ln", "log10", "log2"), (1, 1)),
    **dict.fromkeys(("sin", "cos", "tan", "cot", "sec", "csc"), (1, 1)),
    **dict.fromkeys(("asin", "acos", "atan", "sinh", "cosh", "tanh"), (1, 1)),
    **dict.fromkeys(("asinh", "acosh", "atanh"), (1, 1)),
    **dict.fromkeys(("factorial", "floor", "ceil"), (1, 1)),
    **dict.fromkeys(("gcd", "lcm", "min", "max"), (2, _ANY)),
    **dict.fromkeys(("root", "mod"), (2, 2)),
    "log": (1, 2),
}
_ALIASES = {
    "ceiling": "ceil",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
}
_ATOM_STARTS = ("(", "√", "∛")


def parse_expression(text: str) -> Node:
    """Read an expression.

    Raises:
        InvalidArgumentError: it is not one; the text says what is wrong and what is allowed.
    """
    tokens = tokenize(text)
    if any(token.text == "=" for token in tokens):
        refuse("An '=' makes it an equation, and only solving takes one.")
    return _Parser(tokens).whole()


def parse_equation(text: str) -> Equation:
    """Read an equation; an expression alone is read as equal to zero.

    Raises:
        InvalidArgumentError: it is neither; the text says what is wrong and what is allowed.
    """
    tokens = tokenize(text)
    signs = [place for place, token in enumerate(tokens) if token.text == "="]
    if not signs:
        return Equation(_Parser(tokens).whole(), Number(Fraction(0)))
    if len(signs) > 1:
        refuse("An equation has one '='; this has more.")
    left = [*tokens[: signs[0]], Token(Kind.END, "'='")]
    return Equation(_Parser(left).whole(), _Parser(tokens[signs[0] + 1 :]).whole())


def parse_variable(text: str) -> str:
    """Read the name of a variable.

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
    """A recursive descent over tokens; every way down passes `_signed`, which counts the depth."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._place = 0
        self._depth = 0

    def whole(self) -> Node:
        node = self._sum()
        if self._token.text == ",":
            refuse("',' only separates the arguments of a function. Write 1000 for 1,000.")
        if self._token.kind is not Kind.END:
            refuse(f"{self._seen()} is one too many, or something before it is missing.")
        return node

    @property
    def _token(self) -> Token:
        return self._tokens[self._place]

    def _seen(self) -> str:
        token = self._token
        return token.text if token.kind is Kind.END else f"'{token.text[:40]}'"

    def _take(self) -> Token:
        token = self._token
        self._place += 1
        return token

    def _takes(self, *symbols: str) -> str | None:
        """Take the next token when it is one of these, else leave it."""
        token = self._token
        if token.kind is not Kind.END and token.text in symbols:
            self._place += 1
            return token.text
        return None

    def _sum(self) -> Node:
        terms = [self._product()]
        while sign := self._takes("+", "-"):
            term = self._product()
            terms.append(Negation(term) if sign == "-" else term)
        return terms[0] if len(terms) == 1 else Sum(tuple(terms))

    def _product(self) -> Node:
        factors = [self._signed()]
        while True:
            if self._takes("*"):
                factors.append(self._signed())
            elif self._takes("/"):
                factors.append(Reciprocal(self._signed()))
            elif self._takes_of():
                factors.append(self._signed())
            elif self._is_at_an_atom():
                factors.append(self._implicit_factor())
            else:
                return factors[0] if len(factors) == 1 else Product(tuple(factors))

    def _takes_of(self) -> bool:
        if self._token.kind is not Kind.NAME or self._token.text.lower() != "of":
            return False
        if self._tokens[self._place - 1].text != "%":
            refuse("'of' needs a percentage before it, as in 15% of 240.")
        self._place += 1
        return True

    def _implicit_factor(self) -> Node:
        before = self._tokens[self._place - 1]
        if before.text == "%":
            refuse(
                "'%' means percent, as in 15% of 240. For the remainder of a division "
                "write mod(5, 3)."
            )
        if self._token.kind is Kind.NUMBER and before.kind is Kind.NUMBER:
            refuse(f"An operator is missing between '{before.text[:40]}' and {self._seen()}.")
        return self._power()

    def _is_at_an_atom(self) -> bool:
        token = self._token
        return token.kind in (Kind.NUMBER, Kind.NAME) or token.text in _ATOM_STARTS

    def _signed(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            refuse(f"The expression is nested too deeply: at most {MAX_DEPTH} levels are allowed.")
        is_negative = False
        while sign := self._takes("+", "-"):
            is_negative ^= sign == "-"
        node = self._power()
        self._depth -= 1
        return Negation(node) if is_negative else node

    def _power(self) -> Node:
        base = self._postfix()
        return Power(base, self._signed()) if self._takes("^") else base

    def _postfix(self) -> Node:
        node = self._atom()
        while mark := self._takes("!", "%"):
            if self._tokens[self._place - 2].text == mark:
                refuse(f"'{mark}{mark}' is ambiguous: put parentheses around the inner part.")
            if mark == "!":
                node = Call("factorial", (node,))
            else:
                node = Product((node, Number(Fraction(1, 100), is_decimal=True)))
        return node

    def _atom(self) -> Node:
        token = self._token
        if token.kind is Kind.NUMBER:
            self._place += 1
            is_decimal = not token.text.isdigit()
            return Number(Fraction(token.text), is_decimal=is_decimal)
        if token.kind is Kind.NAME:
            return self._named(self._take().text)
        if self._takes("("):
            return self._closed(self._sum())
        if sign := self._takes("√", "∛"):
            return Call("sqrt" if sign == "√" else "cbrt", (self._rooted(),))
        return refuse(f"A number or a name was expected at {self._seen()}.")

    def _rooted(self) -> Node:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            refuse(f"The expression is nested too deeply: at most {MAX_DEPTH} levels are allowed.")
        node = self._postfix()
        self._depth -= 1
        return node

    def _named(self, name: str) -> Node:
        if name in CONSTANTS:
            return Constant(CONSTANTS[name])
        if len(name) == 1:
            return Variable(name)
        lowered = name.lower()
        if lowered in CONSTANTS:
            return Constant(CONSTANTS[lowered])
        function = _ALIASES.get(lowered, lowered)
        if function not in FUNCTIONS:
            refuse(f"'{name[:40]}' is not known here. {ALLOWED}")
        return self._call(function)

    def _call(self, function: str) -> Call:
        if not self._takes("("):
            refuse(f"{function} needs parentheses: {function}(x).")
        arguments = [self._sum()]
        while self._takes(","):
            arguments.append(self._sum())
        self._closed(arguments[-1])
        fewest, most = FUNCTIONS[function]
        if not fewest <= len(arguments) <= most:
            wanted = str(fewest) if fewest == most else f"{fewest} to {most}"
            refuse(f"{function} takes {wanted} arguments, not {len(arguments)}.")
        return Call(function, tuple(arguments))

    def _closed(self, node: Node) -> Node:
        if not self._takes(")"):
            refuse(f"A ')' was expected at {self._seen()}.")
        return node
