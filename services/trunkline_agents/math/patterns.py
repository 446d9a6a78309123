"""The questions that each math tool answers: patterns that the `rules` model reads from `_meta`.

They are in RE2's syntax, which has no lookahead: `require` says what else a text has to contain.
"""

from typing import Any

from trunkline_agents.math.parser import CONSTANTS, FUNCTIONS
from trunkline_agents.mcp_server import MatchRuleJson

_WORDS = sorted(
    {
        *FUNCTIONS,
        *(name for name in CONSTANTS if len(name) > 1),
        *("arcsin", "arccos", "arctan", "ceiling"),
        *("of", "plus", "minus", "times", "divided", "multiplied", "by", "squared", "cubed"),
        *("square", "cube", "root", "to the power"),
    }
    # Their digits match as numbers, so that a text matches in one way only.
    - {"log10", "log2"},
    key=len,
    reverse=True,
)
_CALLS = "|".join(sorted(FUNCTIONS, key=len, reverse=True))
_WORD = rf"(?:{'|'.join(_WORDS)}|[a-z])"
_SYMBOL = r"[\d.\s+\-\x{2212}\x{2013}*/^%!(),\x{d7}·÷√∛π²³]"
# Known words and single letters with symbols between them. It may be empty.
_FORMULA = rf"{_WORD}?(?:{_SYMBOL}+{_WORD})*{_SYMBOL}*"
_VERB = (
    r"(?:what(?:'s|\sis|\sare|\sabout)|how\s(?:much\sis|about)|calculate|compute|evaluate|simplify)"
)
_LEAD = rf"^(?:please\s)?(?:{_VERB}\s+)?(?:the\s)?"
_A_DIGIT_OR_A_CALL = rf"\d|[√π²³]|\b(?:{_CALLS})\s?\(|\broot\sof\b"
# Texts that look like a formula match even if the grammar rejects them: the rejection says why.
_A_FORMULA = r"[\d(^*/=+]"
_A_FORMULA_OR_A_LETTER = rf"{_A_FORMULA}|^[a-z]\s?$"
_END = r"\s*\??$"
_ASK = r"^(?:please\s)?(?:(?:what(?:'s|\sis|\sare)|find|calculate|compute|give\sme)\s+)?(?:the\s)?"
_BY = r"\s(?:with\srespect\sto|wrt|by)\s(?P<variable>[a-z])"

_OPERAND = r"[\d.\s+\-*/^()]+"
# A verb, the word between its operands, and the formula of the phrase.
_SPOKEN = (
    ("multiply", "by", "({left})*({right})"),
    ("divide", "by", "({left})/({right})"),
    ("add", "(?:and|to)", "({left})+({right})"),
    ("subtract", "from", "({right})-({left})"),
)

# References to earlier answers: the last one, or every number and term.
_IT = r"(?:it|that|this|the\s(?:result|answer))"
_THEM = r"(?:them|those|these|both|all\sof\sthem)(?:\s(?:numbers|results|answers))?"
_TERM = r"[^=\x{2248}]+"
_COMBINED = (
    (rf"(?:add|sum)\s(?:up\s)?{_THEM}(?:\s(?:up|together))?", "(?:sum|total)", ")+("),
    (rf"multiply\s{_THEM}(?:\s(?:up|together))?", "product", ")*("),
)
_LATEST: dict[str, Any] = {"only": _TERM}


def _earlier_answer_rules() -> list[MatchRuleJson]:
    """Return the patterns that combine earlier answers or continue from the last one."""
    declared: list[MatchRuleJson] = [
        {
            "pattern": rf"^(?:(?:please|now|and|then)\s){{0,3}}(?:{spoken}"
            rf"|(?:what(?:'s|\sis)\s)?(?:their|the)\s{noun}(?:\sof\s{_THEM})?)\s*[?.!]?$",
            "arguments": {
                "expression": {"from": "({answers})", "join": join, "least": 2, "only": _TERM}
            },
        }
        for spoken, noun, join in _COMBINED
    ]
    for verb, word, formula in _SPOKEN:
        for left, right in ((_IT, rf"(?P<right>{_OPERAND})"), (rf"(?P<left>{_OPERAND})", _IT)):
            taken = formula.replace("{left}" if left is _IT else "{right}", "{answer}")
            declared.append(
                {
                    "pattern": rf"^(?:(?:please|now|and|then)\s){{0,3}}{verb}\s+{left}\s*"
                    rf"{word}\s+{right}{_END}",
                    "arguments": {"expression": {"from": taken, **_LATEST}},
                }
            )
    return declared


CALCULATE: list[MatchRuleJson] = [
    *_earlier_answer_rules(),
    *(
        {
            "pattern": rf"^(?:please\s)?{verb}\s+"
            rf"(?P<left>{_OPERAND}){word}\s+(?P<right>{_OPERAND}){_END}",
            "arguments": {"expression": formula},
        }
        for verb, word, formula in _SPOKEN
    ),
    {
        "pattern": rf"{_LEAD}(?P<expression>{_FORMULA})"
        r"(?:to|with)\s(?P<digits>\d{1,6})\s(?:significant\s)?(?:digits|figures)" + _END,
        "require": {"expression": r"\S"},
        "arguments": {
            "expression": "{expression}",
            "digits": {"from": "{digits}", "type": "integer"},
        },
    },
    {
        "pattern": rf"{_LEAD}(?P<expression>{_FORMULA})=?{_END}",
        "require": {"expression": _A_DIGIT_OR_A_CALL},
        "arguments": {"expression": "{expression}"},
    },
    {
        # After `calculate`, text that looks like code matches: the rejection says what is valid.
        "pattern": r"^(?:calculate|compute|evaluate)\s+"
        r"(?P<expression>[^\s()_'\"\[\]{}=\\:+*/^%!]*[()_'\"\[\]{}=\\:+*/^%!][^?]*)" + _END,
        "arguments": {"expression": "{expression}"},
    },
    {
        "pattern": r"^(?:what(?:'s|\sis)\s)?(?P<expression>[^\s(]*\([^\s?]*)" + _END,
        "arguments": {"expression": "{expression}"},
    },
]

SOLVE: list[MatchRuleJson] = [
    {
        "pattern": r"^(?:please\s)?solve\s+(?P<equation>[^?]+?)\sfor\s(?P<variable>[a-z])" + _END,
        "require": {"equation": _A_FORMULA},
        "arguments": {"equation": "{equation}", "variable": "{variable}"},
    },
    {
        "pattern": r"^(?:please\s)?solve\s+(?:for\s(?P<variable>[a-z])\s?[:,]?\s)?"
        r"(?P<equation>[^?]+)" + _END,
        "require": {"equation": _A_FORMULA_OR_A_LETTER},
        "arguments": {"equation": "{equation}", "variable": "{variable}"},
    },
    {
        "pattern": _ASK + r"(?:roots|zeros|solutions?)\sof\s+(?P<equation>[^?]+)" + _END,
        "require": {"equation": _A_FORMULA_OR_A_LETTER},
        "arguments": {"equation": "{equation}"},
    },
    {
        "pattern": rf"^(?:find\s[a-z]\s(?:if|when|where)\s)?(?P<equation>{_FORMULA}={_FORMULA})"
        + _END,
        "require": {"equation": ".=."},
        "arguments": {"equation": "{equation}"},
    },
]

_ORDER = {
    "from": "{order}",
    "map": {"first": 1, "second": 2, "third": 3, "fourth": 4},
    "type": "integer",
    "default": 1,
}
_DERIVED = {"expression": "{expression}", "variable": "{variable}"}
_DERIVATIVE_OF = _ASK + r"(?:(?P<order>first|second|third|fourth)\s)?derivative\sof\s+"
_VERB_D = r"^(?:please\s)?(?:differentiate|derive)\s+"

DIFFERENTIATE: list[MatchRuleJson] = [
    {
        "pattern": f"{lead}{body}{_END}",
        "require": {"expression": formula},
        "arguments": {**_DERIVED, **more},
    }
    for lead, more in ((_DERIVATIVE_OF, {"order": _ORDER}), (_VERB_D, {}))
    for body, formula in (
        (rf"(?P<expression>[^?]+?){_BY}", _A_FORMULA),
        (r"(?P<expression>[^?]+)", _A_FORMULA_OR_A_LETTER),
    )
] + [
    {
        "pattern": r"^(?:what\sis\s)?d/d(?P<variable>[a-z])\s?(?P<expression>[^?\s][^?]*)" + _END,
        "arguments": _DERIVED,
    }
]

_INTEGRAL = (
    r"^(?:please\s)?(?:(?:what(?:'s|\sis)|find|calculate|compute|give\sme)\s+)?(?:the\s)?"
    r"(?:(?:definite\s|indefinite\s)?integral\sof|antiderivative\sof|integrate)\s+"
)

INTEGRATE: list[MatchRuleJson] = [
    {
        "pattern": _INTEGRAL + r"(?P<expression>[^?]+?)(?:\sd(?P<variable>[a-z]))?"
        r"\sfrom\s(?P<lower>[^?]+?)\sto\s(?P<upper>[^?]+)" + _END,
        "require": {"0": _A_FORMULA},
        "arguments": {**_DERIVED, "lower": "{lower}", "upper": "{upper}"},
    },
    {
        "pattern": _INTEGRAL
        + r"(?P<expression>[^?]+?)\s(?:(?:with\srespect\sto|wrt|by)\s|d)(?P<variable>[a-z])"
        + _END,
        "require": {"expression": _A_FORMULA},
        "arguments": _DERIVED,
    },
    {
        "pattern": _INTEGRAL + r"(?P<expression>[^?]+)" + _END,
        "require": {"expression": _A_FORMULA_OR_A_LETTER},
        "arguments": {"expression": "{expression}"},
    },
]
