"""The questions that the tools for totals, prices, travel and lists of numbers answer.

Between the numbers of a sentence, any words without a digit may stand. What is asked shows in a few
words that `require` names, and words of other questions are in `exclude`.
"""

from typing import Any

from trunkline_agents.math.clock_patterns import SPAN
from trunkline_agents.math.wording import NUMBER_WORDS
from trunkline_agents.mcp_server import MatchRuleJson

_MONEY = r"(?:\s?(?:dollars?|euros?|pounds?|usd|eur|gbp|bucks|quid|cents?|€|£|\$)\b)?"
_PRICE = rf"[$€£]?\s?\d[\d,]*(?:\.\d+)?{_MONEY}"
_WORDS = r"[^\d%]*?"
_END = r"\s*[?.!]*$"
_EACH = r"(?:\s(?:each|apiece|a\spiece|(?:per|an?)\s[a-z]+))?"
_SEPARATOR = r"(?:,\s(?:and\s|plus\s)?|;\s?|\s(?:and|plus|&)\s|\s?\+\s?)"
_NAME = r"(?:[a-z'-]+\s)*?"
_PRICED = (
    rf"(?:(?:\d{{1,4}}|an?|one|the|some|another)\s)?{_NAME}(?:at|for|@|costing|costs?|cost|was"
    rf"|is|were)"
    rf"\s{_PRICE}{_EACH}"
)
_BUT_TOTALS = (
    rf"{NUMBER_WORDS}|"
    r"%|\b(?:average|mean|median|left|remains?|change|back|difference|split|shared?|divided?"
    r"|product|multiply|multiplied|times|more|less|cheaper|per\sperson|people|persons|friends|tip"
    r"|discount|off|percent|percentage|minus|odd|even|prime|half|double|largest|biggest|smallest"
    r"|maximum|minimum|convert|older|younger|old|sort|order|next|sequence)\b"
    r"|\d\s?(?:km|kg|miles|cm|metres|meters|hours|minutes|days|weeks|litres|liters|grams)\b"
)
_TOTAL = (
    r"altogether|\btotal\b|\bin\sall\b|\ball\stogether\b|\bcome\s(?:up\s)?to\b|\badd\sup\sto\b"
    r"|how\smuch\s(?:is|was|were|do|did|does|have|must|will|are)|what\s(?:do|did|does|must|will)"
    r"\s(?:i|we|it|that|this)|\bsum\b"
)
_LISTED = r"\d[\d,]*(?:\.\d+)?"
ADD_ITEMS: list[MatchRuleJson] = [
    {
        # Things with prices: 3 coffees at 2.80 and a cake at 4.50
        "contains": r"\bat\b|\bfor\b|@|cost|\bis\b|\bwas\b",
        "pattern": rf"^(?:[a-z']+\s)*?(?P<items>{_PRICED}(?:{_SEPARATOR}{_PRICED})+)(?:[,;.?!:]?"
        rf"\s[^\d%]*)?"
        rf"(?:\s[-\x{{2013}}\x{{2014}}]\s[^\d%]*)?$",
        "exclude": {"0": rf"{_BUT_TOTALS}|^(?:is|are|does|do|can|may)\b"},
        "arguments": {"items": "{items}"},
    },
    {
        # A price may lack its "at": "a coffee at 2.80, a tea 2.50"
        "contains": _TOTAL,
        "pattern": rf"^(?P<items>(?:{_PRICED}|{_NAME}{_PRICE})(?:{_SEPARATOR}(?:{_PRICED}|"
        rf"{_NAME}{_PRICE}))"
        rf"+){_WORDS}{_END}",
        "exclude": {"0": _BUT_TOTALS},
        "arguments": {"items": "{items}"},
    },
    {
        "contains": _TOTAL,
        "pattern": rf"^{_WORDS}(?P<items>{_LISTED}{_MONEY}(?:{_SEPARATOR}[$€£]?{_LISTED}{_MONEY})+)"
        rf"{_WORDS}{_END}",
        "exclude": {"0": _BUT_TOTALS},
        "arguments": {"items": "{items}"},
    },
]

_COST = r"(?:for|costs?|cost\sme|are|is|at|cost\sus|come\sto|i\spay|we\spay)"
_THING = r"\s?(?P<unit>[a-z]+)"
_MEASURED = (
    r"(?:kilos?|kilograms?|kg|g|grams?|litres?|liters?|l|ml|pounds?|lbs?|met(?:re|er)s?|m|ounces?)"
)
_FOR_ONE: dict[str, Any] = {
    "amount": "{amount}",
    "unit": "{unit}",
    "price": "{price}",
    "other_unit": "{other}",
}
SCALE_PRICE: list[MatchRuleJson] = [
    *(
        {
            # "6 eggs for 2.40, how much are 10"
            "contains": r"how\smuch|what",
            "pattern": rf"^{_WORDS}(?P<amount>\d[\d.]*){_THING}{_WORDS}\s{_COST}\s(?P<price>"
            rf"{_PRICE})"
            rf"{_WORDS}\b(?:how\smuch|what){_WORDS}(?P<other_amount>\d[\d.]*)\s?{other}{_END}",
            "exclude": {
                "0": rf"{NUMBER_WORDS}|%|\b(?:left|change|back|each|discount|more|less|older"
                rf"|people|persons|tip|off"
                r"|km|miles|speed|hours?|minutes?|after|interest|years?|probability|chance)\b"
            },
            "arguments": {**_FOR_ONE, "other_amount": "{other_amount}"},
        }
        for other in (r"(?P<other>[a-z]+)(?:\s[a-z']+){0,4}", r"")
    ),
    {
        # "500 g of coffee cost 7.50, what is the price per kilo"
        "contains": r"per|\ba\b|each|one",
        "pattern": rf"^{_WORDS}(?P<amount>\d[\d.]*)\s?(?P<unit>{_MEASURED})\b{_WORDS}\s{_COST}\s"
        rf"(?P<price>{_PRICE})"
        rf"{_WORDS}\b(?:how\smuch|what){_WORDS}\b(?:per|an?|one|1|for\san?|for\sone|each)\s"
        rf"(?P<other>{_MEASURED}){_END}",
        "exclude": {"0": rf"{NUMBER_WORDS}|%|discount"},
        "arguments": _FOR_ONE,
    },
    {
        # "a kilo of cherries costs 6.80, what do 350 grams cost"
        "contains": r"\b(?:an?|one)\s",
        "pattern": rf"^(?:if\s)?(?:an?|one)\s(?P<unit>{_MEASURED})\b{_WORDS}\s{_COST}\s"
        rf"(?P<price>{_PRICE})"
        rf"{_WORDS}\b(?:how\smuch|what){_WORDS}(?P<other_amount>\d[\d.]*)\s?(?P<other>"
        rf"{_MEASURED})\b[^\d%]*$",
        "exclude": {"0": rf"{NUMBER_WORDS}|%|discount|change|left"},
        "arguments": {**_FOR_ONE, "amount": "1", "other_amount": "{other_amount}"},
    },
    {
        # The price per kilo of 500 g that cost 7.50
        "contains": r"per",
        "pattern": rf"^{_WORDS}\b(?:per|a|one)\s(?P<other>{_MEASURED}){_WORDS}(?P<amount>\d["
        rf"\d.]*)\s?(?P<unit>{_MEASURED})\b"
        rf"{_WORDS}\s{_COST}\s(?P<price>{_PRICE}){_WORDS}{_END}",
        "require": {"0": r"price|cost|how\smuch"},
        "exclude": {"0": rf"{NUMBER_WORDS}|discount"},
        "arguments": _FOR_ONE,
    },
]

_AFTER_UNIT = r"(?:[\s,.;?!]|$)"
_DISTANCE = (
    r"(?P<distance>\b\d[\d,]*(?:\.\d+)?\s?(?:km|kilomet(?:re|er)s?|miles?|m|met(?:re|er)s))"
    rf"{_AFTER_UNIT}"
)
_SPEED = (
    r"(?P<speed>\b\d[\d,]*(?:\.\d+)?\s?(?:km/h|kmh|kph|mph|(?:km|kilomet(?:re|er)s?|miles?)\s"
    r"(?:per|an)\shour))"
)
_TIME = rf"(?P<duration>{SPAN})"
TRAVEL: list[MatchRuleJson] = [
    {
        "contains": r"km|kilom|mile|mph|met(?:re|er)|\dm",
        "pattern": rf"^{_WORDS}{first}{_WORDS}{second}{_WORDS}{_END}",
        "require": {"0": asked},
        "exclude": {
            "0": rf"{NUMBER_WORDS}|\bpace\b|litre|liter|gallon|per\s100|more\sthan|less\sthan"
        },
        "arguments": arguments,
    }
    for asked, pair, arguments in (
        (
            r"speed|how\sfast|km/h|mph|velocity|per\shour",
            (_DISTANCE, _TIME),
            {"distance": "{distance}", "duration": "{duration}"},
        ),
        (
            r"how\slong|how\smany\s(?:hours|minutes)|\bwhen\b|what\stime|how\smuch\stime",
            (_DISTANCE, _SPEED),
            {"distance": "{distance}", "speed": "{speed}"},
        ),
        (
            r"how\sfar|distance|how\smany\s(?:km|kilom|miles)|get\b",
            (_SPEED, _TIME),
            {"speed": "{speed}", "duration": "{duration}"},
        ),
    )
    for first, second in (pair, pair[::-1])
]

_NUMBER = r"-?\d+(?:\.\d+)?(?:/\d+)?"
_NUMBERS = rf"(?P<numbers>{_NUMBER}(?:,\s?(?:and\s)?{_NUMBER}|\s(?:and|or)\s{_NUMBER})+)"
_SORT = (
    r"^(?:please\s)?(?:sort|order|arrange|rank|put)\s"
    r"(?:(?:the|these|following|numbers)\s){0,3}:?\s?"
)
_LARGEST_FIRST = (
    r"descending|(?:largest|biggest|highest|greatest|big|large|high|largest\snumber)\s(?:to|first)"
    r"|decreasing|going\sdown"
)
SORT_NUMBERS: list[MatchRuleJson] = [
    {
        "contains": r"sort|order|arrange|rank|put",
        "pattern": rf"{_SORT}{_NUMBERS}{words}{_END}",
        "arguments": {"numbers": "{numbers}", "order": order},
        **({"require": {"0": required}} if required else {}),
    }
    for words, required, order in (
        (r"[,:]?\s[^\d]*", _LARGEST_FIRST, "descending"),
        (
            r"[,:]?\s[^\d]*",
            r"ascending|order|(?:smallest|lowest|least|small|low)\s(?:to|first)|size|increasing",
            "ascending",
        ),
        ("", "", "ascending"),
    )
]
_DOTS = r"(?:,?\s?(?:\.\.\.?|\x{2026}|and\sso\son|\?|_+))?"
CONTINUE_SEQUENCE: list[MatchRuleJson] = [
    {
        # The number behind others: what comes next, 2, 5, 8, 11
        "contains": r"next|sequence|series|continue|follows",
        "pattern": pattern + _END,
        "exclude": {"0": r"%|\b(?:day|week|month|year|date)\b"},
        "arguments": {"numbers": "{numbers}"},
    }
    for pattern in (
        rf"^[^\d]*?(?:next|continue|continues|follows|series|sequence)[^\d]*?{_NUMBERS}{_DOTS}",
        rf"^[^\d]*?{_NUMBERS}{_DOTS}[,;:.]?\s[^\d]*?(?:next|continues?|follows|series)[^\d]*",
    )
] + [
    {
        # The tenth number of 4, 7, 10
        "contains": r"term|number|element",
        "pattern": rf"^[^\d]*?(?P<position>\d{{1,4}})(?:st|nd|rd|th)\s(?:term|number|element"
        rf"|member)[^\d]*?"
        rf"{_NUMBERS}{_DOTS}{_END}",
        "arguments": {
            "numbers": "{numbers}",
            "position": {"from": "{position}", "type": "integer"},
        },
    }
]
READ_ROMAN: list[MatchRuleJson] = [
    {
        # "what number is MCMXC", "XIV in normal numbers"
        "contains": r"\b[MDCLXVI]+\b",
        "pattern": pattern + _END,
        "require": {"numeral": r"^[MDCLXVI]{2,}$|^[VXLCDM]$"},
        "arguments": {"numeral": "{numeral}"},
    }
    for pattern in (
        r"^(?:what|which)\s(?:number|year)\s(?:is|does|are)\s(?:the\s)?(?:roman\s)?(?:numeral\s"
        r"|number\s)?"
        r"(?P<numeral>[MDCLXVI]+)(?:\s(?:in\s[a-z\s]+|stand\sfor|mean|represent))?",
        r"^(?:(?:what(?:'s|\sis)|convert|write|turn|change|read|translate)\s)?(?:the\s)?(?:roman"
        r"\s)?(?:numerals?\s|number\s)?"
        r"(?P<numeral>[MDCLXVI]+)\s(?:in|as|to|into)\s(?:an?\s)?(?:[a-z]+\s)?(?:numbers?|digits"
        r"|figures|decimals?|numerals|integer)",
        r"^(?:what(?:'s|\sis)|read|convert|what\sdoes)\s(?:the\s)?roman\s(?:numeral|number)\s"
        r"(?P<numeral>[MDCLXVI]+)(?:\s(?:mean|stand\sfor))?",
        r"^what\sdoes\s(?:the\s)?(?P<numeral>[MDCLXVI]{3,})\s(?:mean|stand\sfor)(?:\sin\s[a-z"
        r"\s]+)?",
    )
]
