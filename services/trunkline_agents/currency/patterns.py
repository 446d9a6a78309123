"""The questions that each currency tool answers: patterns that the `rules` model reads.

They are in RE2's syntax, for whole questions.
"""

from typing import Final

from trunkline_agents.mcp_server import MatchRuleJson

_SIGN: Final = r"[$€£¥₹₩₪]"
# A code, or a name of one or two words: the tool knows them.
_CURRENCY: Final = rf"(?:[a-z]{{3,15}}(?:\s[a-z]{{3,15}})?|{_SIGN})"
_AMOUNT: Final = r"(?P<amount>\d[\d,]*(?:\.\d+)?)"
_LEAD: Final = (
    r"(?:please\s)?(?:(?:what(?:'s|\sis|\sare)|how\smuch\s(?:is|are)|convert|exchange)\s)?"
)
_INTO: Final = rf"\s(?:in|to|into)\s(?P<to>{_CURRENCY})"
_DATE: Final = r"(?:\son\s(?P<date>\d{4}-\d{1,2}-\d{1,2}))?"
_PAIR: Final = {"from_currency": "{from}", "to_currency": "{to}", "date": "{date}"}

CONVERT: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"{_LEAD}{_AMOUNT}\s?(?P<from>{_CURRENCY}){_INTO}{_DATE}",
        "arguments": {"amount": "{amount}", **_PAIR},
    },
    {
        "pattern": rf"{_LEAD}(?P<from>{_SIGN})\s?{_AMOUNT}{_INTO}{_DATE}",
        "arguments": {"amount": "{amount}", **_PAIR},
    },
    {
        # "how many euros are 100 dollars"
        "pattern": rf"how\s(?:many|much)\s(?P<to>{_CURRENCY})\s(?:is|are)\s{_AMOUNT}\s?"
        rf"(?P<from>{_CURRENCY}){_DATE}",
        "arguments": {"amount": "{amount}", **_PAIR},
    },
    {
        # "dollar to euro rate", "the exchange rate from GBP to JPY"
        "pattern": rf"(?:what(?:'s|\sis)\s)?(?:the\s)?(?:(?P<from>{_CURRENCY}){_INTO}"
        rf"\s(?:exchange\s)?rate){_DATE}",
        "arguments": {"amount": "1", **_PAIR},
    },
    {
        "pattern": rf"(?:what(?:'s|\sis)\s)?(?:the\s)?(?:exchange\s)?rate\s(?:of|from)\s"
        rf"(?P<from>{_CURRENCY}){_INTO}{_DATE}",
        "arguments": {"amount": "1", **_PAIR},
    },
]
LIST: Final[list[MatchRuleJson]] = [
    {
        "pattern": r"(?:which|what|list|show)(?:\sme)?(?:\s(?:the|all))*\scurrencies"
        r"(?:\s(?:are\sthere|do\syou\sknow|can\syou\sconvert))?",
        "arguments": {},
    }
]
