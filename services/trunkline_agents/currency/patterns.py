"""The questions that each currency tool answers: patterns that the `rules` model reads.

They are in RE2's syntax. No letter can follow the name of a currency, because a space, the end or
punctuation does.
"""

from trunkline_agents.currency.names import NAMES
from trunkline_agents.mcp_server import MatchRuleJson

# Without an amount, only these codes make a question one about money, not any three letters.
_CODES = (
    "AUD BGN BRL CAD CHF CNY CZK DKK EUR GBP HKD HUF IDR ILS INR ISK JPY KRW MXN MYR NOK NZD PHP "
    "PLN RON RUB SEK SGD THB TRY USD ZAR"
)
_NAMES = "|".join(sorted((f"{name}s?" for name in NAMES), key=len, reverse=True)).replace(
    " ", r"\s"
)
_SIGN = r"[$€£¥₹₩₪]"
_ANY = rf"(?:(?:{_NAMES}|[a-z]{{3}})|{_SIGN})"
_KNOWN = rf"(?:(?:{_NAMES}|{_CODES.replace(' ', '|')})|{_SIGN})"
_AMOUNT = r"(?P<amount>\d[\d,]*(?:\.\d+)?)"
_VERB = r"(?:what(?:'s|\sis|\sare)|how\smuch\s(?:is|are)|convert|exchange|change)"
_LEAD = rf"^(?:please\s)?(?:{_VERB}\s+)?"
_INTO = r"\s+(?:in|to|into|as)\s+"
_DATE = r"(?:\s+(?:on|at|of|for)\s(?P<date>\d{4}-\d{1,2}-\d{1,2}))?"
_END = r"\s*[?.]?$"
_PAIR = {"from_currency": "{from}", "to_currency": "{to}", "date": "{date}"}

CONVERT: list[MatchRuleJson] = [
    {
        "pattern": rf"{_LEAD}{_AMOUNT}\s*(?P<from>{_ANY}){_INTO}(?P<to>{_ANY}){_DATE}{_END}",
        "arguments": {"amount": "{amount}", **_PAIR},
    },
    {
        "pattern": rf"{_LEAD}(?P<from>{_SIGN})\s?{_AMOUNT}{_INTO}(?P<to>{_ANY}){_DATE}{_END}",
        "arguments": {"amount": "{amount}", **_PAIR},
    },
    {
        "pattern": rf"^how\smany\s+(?P<to>{_ANY})\s+(?:is|are|for|in)\s+{_AMOUNT}\s*"
        rf"(?P<from>{_ANY}){_DATE}{_END}",
        "arguments": {"amount": "{amount}", **_PAIR},
    },
    {
        "pattern": rf"{_LEAD}(?:the\s)?(?:exchange\srate\s(?:of|from|for)\s+)?(?:an?\s|one\s)?"
        rf"(?P<from>{_KNOWN}){_INTO}(?P<to>{_KNOWN}){_DATE}{_END}",
        "arguments": {"amount": {"from": "{amount}", "default": "1"}, **_PAIR},
    },
]

LIST: list[MatchRuleJson] = [
    {
        "pattern": r"^(?:(?:which|what|list|show)\s+)(?:me\s)?(?:the\s|all\s)*currencies\b[^?]*"
        + _END,
        "arguments": {},
    }
]
