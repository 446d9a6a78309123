"""The questions that each currency tool answers: patterns that the `rules` model reads.

They are in RE2's syntax. No letter can follow the name of a currency, because a space, the end or
punctuation does.
"""

from trunkline_agents.currency.names import COUNTRIES, COUNTRY_NAMES, NAMES
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
# An exact fraction may be the result of the question before.
_AMOUNT = r"\(?(?P<amount>\d[\d,]*(?:\.\d+|/\d+)?)\)?"
# A verb before an amount, and the one behind it: "what would 5 dollars be in yen".
_VERB = (
    r"(?:what(?:'s|\sis|\sare|\swas|\swere|\swould|\swill|\sdoes|\sdo|\sdid)"
    r"|how\smuch\s(?:is|are|was|were|would|will|does|do|did|for)"
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
_COMPARED_WITH = (
    r"\s(?:to|against|vs\.?|versus|for|in|with|(?:compared|relative|in\s(?:relation|comparison))"
    r"\s(?:to|with))\s(?:the\s)?"
)
_HAS = (
    r"(?:has|have|had|gets?|trades?(?:\sat)?|stands?(?:\sat)?|trading(?:\sat)?|standing(?:\sat)?"
    r"|exchanged|traded|at)"
)
# Questions for a rate, before "against the euro".
_ASKED_RATES = (
    # "what rate does the zloty have", "at what rate does the krone trade"
    rf"^(?:at\s)?(?:what|which)\s{_RATE}\s(?:does|do|did|is|are|was|were|has|have|had)"
    rf"\s{_FROM}(?:\s{_HAS})?",
    # "what is the rate that the zloty has"
    rf"^{_THE_RATE}{_RATE}\s(?:(?:that|which)\s)?{_FROM}\s{_HAS}",
    # "what is the zloty's rate"
    rf"^{_THE_RATE}{_FROM}['\x{{2019}}]s?\s(?:(?:current|latest|present)\s)?{_RATE}",
)

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
        # "I need 400 zloty, how many euros must I pay"
        "pattern": rf"^(?:i|we)(?:'ve|'m|\swill|'ll|\sam)?\s(?:have|has|had|got|own|earn|need"
        rf"|pay|paid"
        rf"|spent|spend|want|changing|exchanging|get|receive)(?:\sto\s[a-z]+)?\s+{_AMOUNT}\s*{_FROM_ANY}"
        rf"\s*[,.;:-]?\s+(?:and\s|so\s)?how\s(?:many|much)\s(?:is\sthat\s)?(?:in\s)?{_TO_ANY}"
        r"(?:\s(?:must|do|does|will|would|can|should|could|is|are|have)\s(?:i|we|that|it|this|they|to)"
        rf"(?:\s(?:pay|get|need|cost|have|be|spend|make|to|receive|buy|change|exchange))*)?{_DATE}{_END}",
        "arguments": _AMOUNTS,
    },
    {
        # "if I change 150 pounds into kroner, what will I get"
        "pattern": r"^(?:if|when|suppose|assuming)?\s*(?:i|we|you|one)\s(?:want\sto\s|were\sto\s"
        r"|would\s)?"
        rf"(?:change|exchange|convert|swap|turn|changed|exchanged|converted)\s+{_AMOUNT}\s*{_FROM_ANY}{_INTO}"
        rf"{_TO_ANY}{_DATE}\s*[,.;:-]?\s+(?:(?:how\s(?:much|many|much\smoney)|what)[a-z\s']{{0,60}}){_END}",
        "arguments": _AMOUNTS,
    },
    {
        # "dollars to rupees, 75"
        "pattern": rf"^{_FROM}{_INTO}{_TO}\s*[,:]\s*{_AMOUNT}{_END}",
        "arguments": _AMOUNTS,
    },
    {
        "pattern": rf"{_LEAD}{_FROM}{_INTO}{_TO}{_DATE}{_END}",
        "arguments": _ONE,
    },
    {
        # "yen per dollar", "how many yen to the dollar"
        "pattern": rf"^(?:{_THE_RATE}|how\s(?:many|much)\s){_TO}\s(?:per|(?:for|to)\s(?:each|every"
        rf"|the|one|1|an?))\s(?:one\s|1\s)?(?P<from>{_KNOWN}){_DATE}{_END}",
        "arguments": _ONE,
    },
    {
        # "exchange rate from GBP to JPY", "the rate of the krone against the euro"
        "pattern": rf"^{_THE_RATE}{_RATE}\s*(?:(?:of|from|for|between)\s)?"
        rf"\s*{_FROM}{_AGAINST}{_TO}{_DATE}{_END}",
        "arguments": _ONE,
    },
    *(
        {
            "pattern": rf"{asked}{_COMPARED_WITH}{_TO}{_DATE}{_END}",
            "arguments": _ONE,
        }
        for asked in _ASKED_RATES
    ),
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

# Without a second currency, the rate is that to the euro, and the euro's is that to the dollar.
_EURO = r"(?i)^(?:euros?|eur|€)$"
_STANDING = (
    r"(?:\s(?:at|worth|doing|standing|valued|trading(?:\sat)?"
    r"|(?:exchange\s)?(?:rate|course|price)))"
)
_ALONE = [
    rf"^{_THE_RATE}{_FROM}{_STANDING}{{0,2}}{_END}",
    rf"^{_THE_RATE}{_RATE}\s(?:of|for|from)\s{_FROM}{_END}",
    *(rf"{asked}{_END}" for asked in _ASKED_RATES),
]
_SAID = r"\b(?:rates?|course|price|worth|doing|at|standing|valued|now|today|how)\b"
# "what's the pound"
_NAMED_ALONE = rf"^what(?:'s|\sis|\sabout)\s(?:the|an?|one)\s(?P<from>{_KNOWN}){_END}"
CONVERT += [
    {
        "pattern": pattern,
        "require": {"0": said, **euro},
        "exclude": {**other, **excluded},
        "arguments": {"amount": "1", "from_currency": "{from}", "to_currency": code},
    }
    for pattern, said, excluded in (
        *((pattern, _SAID, {}) for pattern in _ALONE),
        # "what is the currency of trust" asks for no rate.
        (_NAMED_ALONE, ".", {"0": "currency|money"}),
    )
    for code, euro, other in (("USD", {"from": _EURO}, {}), ("EUR", {}, {"from": _EURO}))
]

LIST: list[MatchRuleJson] = [
    {
        "pattern": r"^(?:(?:which|what|list|show|tell|name|how\smany)\s+)(?:me\s)?"
        r"(?:which\s|what\s)?(?:are\s)?(?:(?:the|all|your|available|supported|known)"
        r"\s)*currencies\b[^?]*" + _END,
        "arguments": {},
    }
]

_COUNTRY = rf"(?:the\s)?(?P<country>{'|'.join(COUNTRIES)})"
_MONEY_OF = r"(?:currency|money|currencies)"
COUNTRY: list[MatchRuleJson] = [
    {
        # "what currency do they use in Hungary", "which money does Japan have"
        "pattern": rf"^(?:what|which)(?:\skind\sof)?\s{_MONEY_OF}\s(?:(?:do|does|is|are|can"
        rf"|should|will)\s)"
        r"(?:(?:they|people|we|i|you|one)\s)?(?:(?:use|used|have|pay|need|spend|accepted|with)\s){0,2}"
        rf"(?:in|for|at)\s{_COUNTRY}{_END}",
        "arguments": {"country": "{country}"},
    },
    {
        "pattern": rf"^(?:what|which)\s{_MONEY_OF}\s(?:does|do)\s{_COUNTRY}\s(?:use|have){_END}",
        "arguments": {"country": "{country}"},
    },
    {
        "pattern": rf"^(?:what(?:'s|\sis)|name|tell\sme)\s(?:the\s)?(?:official\s|local"
        rf"\s)?{_MONEY_OF}\s"
        rf"(?:of|in|used\sin)\s{_COUNTRY}{_END}",
        "arguments": {"country": "{country}"},
    },
    {
        "pattern": rf"^(?:the\s)?{_MONEY_OF}\s(?:of|in|used\sin)\s{_COUNTRY}{_END}",
        "arguments": {"country": "{country}"},
    },
    {
        "pattern": rf"^what\s(?:do|can)\s(?:they|people|i|you|we)\spay\s(?:with\s)?in"
        rf"\s{_COUNTRY}{_END}",
        "arguments": {"country": "{country}"},
    },
]

_AMOUNT_OR_ONE = r"(?:(?P<amount>\d[\d,]*(?:\.\d+)?)\s*|(?:an?|one|the)\s)?"
_OTHER_OR_ONE = _AMOUNT_OR_ONE.replace("amount", "other")
COMPARE: list[MatchRuleJson] = [
    {
        # "is 100 euros more than 100 dollars", "is a pound worth more than a euro"
        "pattern": rf"^(?:is|are)\s{_AMOUNT_OR_ONE}(?P<from>{_KNOWN})\s(?:worth\s)?"
        r"(?P<relation>more|less|bigger|smaller|higher|lower|stronger|weaker|cheaper)"
        rf"(?:\sexpensive|\svaluable|\smoney)?\sthan\s{_OTHER_OR_ONE}(?P<to>{_KNOWN}){_END}",
        "arguments": {
            "amount": {"from": "{amount}", "default": "1"},
            "currency": "{from}",
            "relation": {
                "from": "{relation}",
                "map": {
                    **dict.fromkeys(("bigger", "higher", "stronger"), "more"),
                    **dict.fromkeys(("smaller", "lower", "weaker", "cheaper"), "less"),
                },
            },
            "other_amount": {"from": "{other}", "default": "1"},
            "other_currency": "{to}",
        },
    }
]
