"""The questions that each math tool answers: patterns that the `rules` model reads from `_meta`.

They are in RE2's syntax, for whole questions.
"""

from typing import Final

from trunkline_agents.math.parser import CONSTANTS, FUNCTIONS
from trunkline_agents.mcp_server import MatchRuleJson

_WORDS: Final = sorted(
    {
        *(name for name in (*FUNCTIONS, *CONSTANTS) if len(name) > 1),
        *("arcsin", "arccos", "arctan", "ceiling"),
        *("of", "percent"),
    }
    # Their digits match as numbers, so that a text matches in one way only.
    - {"log10", "log2"},
    key=len,
    reverse=True,
)
_WORD: Final = rf"(?:{'|'.join(_WORDS)}|[a-z])"
_SYMBOL: Final = r"[\d.\s+\-\x{2212}\x{2013}*/^%!(),\x{d7}·÷√∛π²³]"
# Known words and single letters with symbols between them.
_FORMULA: Final = rf"(?:{_WORD}?(?:{_SYMBOL}+{_WORD})*{_SYMBOL}*)"
_CALL: Final = rf"\d|[√π]|\b(?:{'|'.join(FUNCTIONS)})\s?\("
_ASK: Final = r"(?:please\s)?(?:(?:what(?:'s|\sis|\sare)|how\smuch\sis|find)\s)?(?:the\s)?"
_LEAD: Final = rf"{_ASK}(?:(?:calculate|compute|evaluate|simplify)\s)?"
_BY: Final = r"(?:\s(?:with\srespect\sto|by|for)\s(?P<variable>[a-z]))?"
_LIMIT: Final = r"[^\s]{1,40}"

CALCULATE: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"{_LEAD}(?P<expression>{_FORMULA})(?:\s(?:to|with)\s(?P<digits>\d{{1,4}})"
        r"\sdigits)?(?:\s*=)?",
        "require": {"expression": _CALL},
        "arguments": {
            "expression": "{expression}",
            "digits": {"from": "{digits}", "type": "integer"},
        },
    }
]
FACTOR: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"(?:please\s)?factor(?:i[sz]e)?\s(?P<expression>{_FORMULA})",
        "arguments": {"expression": "{expression}"},
    }
]
EXPAND: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"(?:please\s)?(?:expand|multiply\sout)\s(?P<expression>{_FORMULA})",
        "arguments": {"expression": "{expression}"},
    }
]
SOLVE: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"(?:please\s)?solve\s(?P<equation>{_FORMULA}(?:=\s?{_FORMULA})?){_BY}",
        "arguments": {"equation": "{equation}", "variable": "{variable}"},
    },
    {
        "pattern": rf"(?P<equation>{_FORMULA}=\s?{_FORMULA})",
        "require": {"equation": r"(?:^|[^a-z])[a-z](?:[^a-z]|$)", "0": r"=\s?\S"},
        "arguments": {"equation": "{equation}"},
    },
]
DIFFERENTIATE: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"(?:{_ASK}derivative\sof|differentiate|derive)\s"
        rf"(?P<expression>{_FORMULA}){_BY}",
        "arguments": {"expression": "{expression}", "variable": "{variable}"},
    }
]
INTEGRATE: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"(?:{_ASK}integral\sof|integrate)\s(?P<expression>{_FORMULA}?){_BY}"
        rf"(?:\sfrom\s(?P<lower>{_LIMIT})\sto\s(?P<upper>{_LIMIT}))?",
        "arguments": {
            "expression": "{expression}",
            "variable": "{variable}",
            "lower": "{lower}",
            "upper": "{upper}",
        },
    }
]
