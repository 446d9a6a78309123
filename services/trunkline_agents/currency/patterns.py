"""The questions that each currency tool answers: patterns that the `rules` model reads.

They are in RE2's syntax. No letter can follow the name of a currency, because a space, the end or
punctuation does.
"""

from trunkline_agents.currency.names import COUNTRY_NAMES, NAMES
from trunkline_agents.mcp_server import MatchRuleJson

# Without an amount, only these codes make a question one about money, not any three letters.
_CODES = (
    "AUD BGN BRL CAD CHF CNY CZK DKK EUR GBP HKD HUF IDR ILS INR ISK JPY KRW MXN MYR NOK NZD PHP "
    "PLN RON RUB SEK SGD THB TRY USD ZAR"
)
_PLAIN_NAMES = [name for name in NAMES if name not in COUNTRY_NAMES]
_NOUNS = "|".join(sorted({name.split()[-1] for name in _PLAIN_NAMES} - {"currency", "money"}))
_QUALIFIERS = "|".join(
    sorted({name.rpartition(" ")[0] for name in _PLAIN_NAMES if " " in name}, key=len, reverse=True)
).replace(" ", r"\s")
# "the currency of Japan", "Japanese money"
_NAMES = (
    rf"(?:(?:(?:{_QUALIFIERS})\s)?(?:(?:{_NOUNS})s?|money|currency)"
    r"|currency\s(?:of|in)\s(?:the\s)?[a-z]+(?:\s[a-z]+)??)"
)
_SIGN = r"[$€£¥₹₩₪]"
_ANY = rf"(?:(?:{_NAMES}|[a-z]{{3}})|{_SIGN})"
_KNOWN = rf"(?:(?:{_NAMES}|{_CODES.replace(' ', '|')})|{_SIGN})"
_CODE = rf"(?:{_CODES.replace(' ', '|')})\s"
_AMOUNT = r"(?P<amount>\d[\d,]*(?:\.\d+)?)"
# A verb before an amount, and the one behind it: "what would 5 dollars be in yen".
_VERB = (
    r"(?:what(?:'s|\sis|\sare|\swas|\swere|\swould|\swill|\sdoes|\sdo)"
    r"|how\smuch\s(?:is|are|was|were|would|will|does|do|for)"
    r"|(?:what|how\smuch)\s(?:would|will|do|does|can|could|did)\s(?:i|we|you|one)\s"
    r"(?:get|receive|have|pay|need|make)\s(?:for|from|with|out\sof)"
    r"|convert(?:ing)?|exchang(?:e|ing)|chang(?:e|ing)|turn|swap|transfer|give\sme|show\sme|get)"
)
_PRICE = r"(?:(?:the\s)?(?:price|value|worth|equivalent|amount|cost)\sof\s+)?"
_LEAD = rf"^(?:please\s)?(?:{_VERB}\s+)?{_PRICE}"
_BE = (
    r"(?:\s+(?:be|is|are|was|were|get\s(?:me|you)|cost|make|come\sto))?(?:\s+(?:worth|equal\sto))?"
)
_INTO = rf"{_BE}\s+(?:in|to|into|as|for|=|->)\s+"
_NOW = r"(?:\s+(?:today|now|right\snow|currently|at\sthe\smoment))?"
_DATE = (
    r"(?:,?\s+(?:(?:at|with|by|using)\s(?:the\s)?(?:exchange\s)?rates?\s)?(?:on|at|of|for|from"
    r"|in|as\sof)"
    r"\s(?:the\s)?(?P<date>\d{4}-\d{1,2}-\d{1,2}))?"
)
_END = rf"{_NOW}\s*[?.!]?$"
_PAIR = {"from_currency": "{from}", "to_currency": "{to}", "date": "{date}"}
_AMOUNTS = {"amount": "{amount}", **_PAIR}
_ONE = {"amount": "1", **_PAIR}
_A = r"(?:an?\s|one\s|1\s|the\s)?"
_FROM_ANY = rf"(?P<from>{_ANY})"
_TO_ANY = rf"(?:the\s)?(?P<to>{_ANY})"
_FROM = rf"{_A}(?P<from>{_KNOWN})"
_TO = rf"{_A}(?P<to>{_KNOWN})"
_THE_RATE = (
    r"(?:(?:what(?:'s|\sis|\sare|\swas)|how\s(?:(?:strong|weak|high|much|expensive)\s)?(?:is"
    r"|are|was)|give\sme|show\sme|tell\sme|get|find)\s+)?"
    r"(?:(?:the|today's|current|latest)\s)*"
)
_RATE = r"(?:(?:currency\s|foreign\s)?(?:exchange|conversion)\s)?(?:rates?|course|price)"
_AGAINST = r"\s*(?:to|in|into|and|against|vs\.?|versus|for|per|/|-|\s)\s*(?:the\s)?"

CONVERT: list[MatchRuleJson] = [
    {
        "pattern": rf"{_LEAD}{_AMOUNT}\s*{_FROM_ANY}{_INTO}{_TO_ANY}{_DATE}{_END}",
        "arguments": _AMOUNTS,
    },
    {
        "pattern": rf"{_LEAD}(?P<from>{_SIGN}|{_CODE})\s?{_AMOUNT}{_INTO}{_TO_ANY}{_DATE}{_END}",
        "arguments": _AMOUNTS,
    },
    {
        "pattern": rf"{_LEAD}{_AMOUNT}\s+(?:in|to|into)\s+{_TO_ANY}\s+from"
        rf"\s+{_FROM_ANY}{_DATE}{_END}",
        "arguments": _AMOUNTS,
    },
    {
        # "what was 5 dollars on 2020-03-02 in euros"
        "pattern": rf"{_LEAD}{_AMOUNT}\s*{_FROM_ANY}{_DATE}{_INTO}{_TO_ANY}{_END}",
        "arguments": _AMOUNTS,
    },
    {
        "pattern": rf"^how\s(?:many|much)\s+{_TO_ANY}\s+(?:is|are|was|were|for|in|do|does|can"
        rf"|could|will|would)"
        r"\s+(?:(?:i|you|we|it|one)\s+)?(?:(?:get|buy|have|need|pay|there|receive)\s+)?"
        rf"(?:(?:for|with|from|in|to\sget)\s+)?{_AMOUNT}\s*{_FROM_ANY}(?:\s(?:worth|make|get\sme"
        rf"|buy))?{_DATE}{_END}",
        "arguments": _AMOUNTS,
    },
    {
        "pattern": rf"^how\s(?:many|much)\s+{_TO_ANY}\s+(?:is|are|was|were|for|in|do|does|can"
        rf"|could|will|would)"
        r"\s+(?:(?:i|you|we|it|one)\s+)?(?:(?:get|buy|have|need|pay|there|receive)\s+)?"
        rf"(?:(?:for|with|from|in|to\sget)\s+)?(?P<from>{_SIGN}|{_CODE})\s?{_AMOUNT}{_DATE}{_END}",
        "arguments": _AMOUNTS,
    },
    {
        "pattern": rf"^how\s(?:many|much)\s+{_TO_ANY}\s+(?:is|are|was|for|in|do|does|can)"
        r"\s+(?:(?:i|you|we)\s+)?(?:(?:get|buy|have|need|pay|there)\s+)?(?:(?:for|with|in)\s+)?"
        rf"(?:an?|one)\s+{_FROM_ANY}(?:\s(?:worth|make|get\sme|buy))?{_DATE}{_END}",
        "arguments": _ONE,
    },
    {
        # "500 danish kroner is how many euros"
        "pattern": rf"^{_AMOUNT}\s*{_FROM_ANY}\s(?:is|are|was|were|makes?|gives?|equals?)"
        rf"\s(?:how\s(?:many|much)|what)\s(?:in\s)?{_TO_ANY}{_DATE}{_END}",
        "arguments": _AMOUNTS,
    },
    {
        # "I have 200 dollars, how much is that in euros"
        "pattern": rf"^(?:i|we)\s(?:have|has|had|got|own|earn|need|pay|paid|spent|want)"
        rf"\s+{_AMOUNT}\s*{_FROM_ANY}"
        rf"\s*[,.;:-]?\s+(?:and\s)?(?:what|how\smuch|how\smany\s{_KNOWN})\s(?:is|are|would|does)"
        rf"\s(?:that|it|this|they){_INTO}{_TO_ANY}{_DATE}{_END}",
        "arguments": _AMOUNTS,
    },
    {
        "pattern": rf"{_LEAD}{_FROM}{_INTO}{_TO}{_DATE}{_END}",
        "arguments": _ONE,
    },
    {
        # "exchange rate from GBP to JPY", "the rate of the krone against the euro"
        "pattern": rf"^{_THE_RATE}{_RATE}\s*(?:(?:of|from|for|between)\s)?"
        rf"\s*{_FROM}{_AGAINST}{_TO}{_DATE}{_END}",
        "arguments": _ONE,
    },
    {
        # "dollar to euro rate", "EUR/USD rate", "the euro dollar exchange rate"
        "pattern": rf"^{_THE_RATE}{_FROM}{_AGAINST}{_TO}\s{_RATE}(?:\sbe)?{_DATE}{_END}",
        "arguments": _ONE,
    },
    {
        # "EUR/USD", "what's the euro at against the dollar", "how is the euro against the yen"
        "pattern": rf"^{_THE_RATE}{_FROM}(?:\s(?:at|worth|doing|standing|valued|trading(?:\sat)?))?"
        rf"(?:\s*/\s*|\s|\s(?:against|vs\.?|versus|in)\s){_TO}{_DATE}{_END}",
        "arguments": _ONE,
    },
]

LIST: list[MatchRuleJson] = [
    {
        "pattern": r"^(?:(?:which|what|list|show|tell|name|how\smany)\s+)(?:me\s)?"
        r"(?:which\s|what\s)?(?:are\s)?(?:(?:the|all|your|available|supported|known)"
        r"\s)*currencies\b[^?]*" + _END,
        "arguments": {},
    }
]
