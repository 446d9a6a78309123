"""The questions that the tools for units answer: "how many minutes are in 3.5 hours"."""

from trunkline_agents.math.units import UNITS
from trunkline_agents.mcp_server import MatchRuleJson

# Longer names first. A letter alone is a unit only behind a number: "5 m".
_NAMES = sorted({name for name in UNITS if len(name) > 1}, key=len, reverse=True)
_UNIT = (
    r"(?:(?:degrees?\s)?(?:"
    + "|".join(_NAMES).replace(" ", r"\s").replace("/", "/")
    + r")s?|°\s?[cf])"
)
_LETTER = r"[mglcf]"
_NUMBER = r"-?\d[\d.,]*(?:(?:\s\d+)?/\d+)?"
# "3/4 of an hour", which is (3/4) if it was in words
_AMOUNT = rf"\(?(?P<amount>{_NUMBER})\)?(?:\s(?:of\s)?an?)?"
# Gallons, pints and cups are those of the United States.
_FROM = rf"(?:(?:u\.?s\.?|american)\s)?(?P<from>{_UNIT}|{_LETTER})"
_TO = rf"(?P<to>{_UNIT}|{_LETTER})"
# The smaller part of a measure, and the units that have one: "5 feet 11 inches", "6 foot 2".
_LARGER = (
    r"(?:feet|foot|ft|pounds?|lbs?|stones?|hours?|hrs?|minutes?|days?|weeks?|years?|h|met"
    r"(?:er|re)s?|m|kg|kilos?)"
)
_SMALLER = (
    r"(?:inch(?:es)?|in|ounces?|oz|pounds?|lbs?|minutes?|mins?|seconds?|secs?|hours?"
    r"|days?|weeks?|months?|centimet(?:er|re)s?|cm|grams?|g)"
)
_MEASURE = (
    rf"\(?(?P<amount>\d[\d.,]*)\)?[\s-]?(?P<from>{_LARGER}),?[\s-](?:and\s)?"
    rf"(?P<more>\d[\d.,]*)(?:[\s-]?(?P<more_unit>{_SMALLER}))?"
)
_FEET_AND_INCHES = (
    r"(?P<amount>\d{1,3})\s?['\x{2032}\x{2019}]\s?(?P<more>\d{1,2}(?:\.\d+)?)"
    r"\s?(?:\"|\x{2033}|''|\x{201d})?"
)
# What is measured: "a 10 km run", "a 250 g packet of butter".
_THING = r"(?:\s[a-z]{3,}(?:\sof\s[a-z]{3,})?)?"
_VERB = (
    r"(?:(?:what(?:'s|\sis|\sare)|how\s(?:much|long|far|heavy|tall|warm|hot|cold|big)\s(?:is|are)"
    r"|convert(?:ing)?|change|turn|express|give\sme|show\sme)\s)?"
)
_INTO = r"\s(?:is\s)?(?:(?:expressed|measured)\s)?(?:in|to|into|as)\s(?:how\smany\s)?"
_FILL = (
    r"\s(?:(?:are|is|fit|go|make(?:\sup)?|does|do|equals?)\s)?"
    r"(?:there\s|they\s|it\s)?(?:(?:in|into|to)\s)?(?:an?\s|the\s)?"
)
_DURATION = r"(?:\s(?:have|has|last|make|equal))?"
_END = r"\s*[?.!]?$"

_AMOUNTS = {"amount": "{amount}", "from_unit": "{from}", "to_unit": "{to}"}
_MEASURED = {**_AMOUNTS, "more_amount": "{more}", "more_unit": "{more_unit}"}
# Two units for one amount: "135 minutes in hours and minutes".
_TWO = (
    r"(?P<to>hours?|minutes?|days?|weeks?|years?|feet|foot|pounds?|stones?|met(?:er|re)s?)"
    r"(?:\sand|,)\s(?P<rest>minutes?|seconds?|hours?|days?|weeks?|months?|inch(?:es)?|ounces?"
    r"|pounds?"
    r"|centimet(?:er|re)s?)"
)
CONVERT_UNITS: list[MatchRuleJson] = [
    *(
        {
            "contains": condition,
            "pattern": pattern,
            "arguments": {**_AMOUNTS, "rest_unit": "{rest}"},
        }
        for condition, pattern in (
            (
                rf"\d.*\s(?:in|to|into|as)\s{_TWO}",
                rf"^{_VERB}{_AMOUNT}\s?{_FROM}{_INTO}{_TWO}{_END}",
            ),
            (
                rf"^how\smany\s{_TWO}",
                rf"^how\smany\s{_TWO}{_FILL}{_AMOUNT}[\s-]?{_FROM}{_DURATION}{_END}",
            ),
        )
    ),
    {
        "contains": r"\d.*\s(?:in|to|into|as)\s",
        # "5 km in miles", "convert 5 km to meters"
        "pattern": rf"^{_VERB}{_AMOUNT}\s?{_FROM}{_INTO}{_TO}{_END}",
        "arguments": _AMOUNTS,
    },
    {
        "contains": r"^how\smany.*\d",
        # "how many minutes are in 3.5 hours", "how many miles is a 10 km run"
        "pattern": rf"^how\smany\s{_TO}{_FILL}{_AMOUNT}[\s-]?{_FROM}{_DURATION}{_THING}{_END}",
        "arguments": _AMOUNTS,
    },
    {
        "contains": r"^how\smany.*\s(?:an?|one|each|the)\s",
        # "how many seconds in a day"
        "pattern": rf"^how\smany\s{_TO}\s(?:(?:are|is|fit|go|make(?:\sup)?|does|do|equals?)\s)?"
        rf"(?:there\s)?(?:(?:in|into|to)\s)?(?:an?|one|each|the)\s{_FROM}{_DURATION}{_END}",
        "arguments": {**_AMOUNTS, "amount": "1"},
    },
    *(
        {
            # "5 feet 11 inches to cm", "how many seconds are in 2 hours and 15 minutes"
            "contains": begin + condition,
            "pattern": pattern,
            "arguments": arguments,
        }
        for condition, measure, arguments in (
            (rf"\d\s?{_LARGER},?[\s-](?:and\s)?\d", _MEASURE, _MEASURED),
            (
                r"\d\s?['\x{2032}\x{2019}]\s?\d",
                _FEET_AND_INCHES,
                {
                    "from_unit": "foot",
                    "to_unit": "{to}",
                    "amount": "{amount}",
                    "more_amount": "{more}",
                },
            ),
        )
        for begin, pattern in (
            ("", rf"^{_VERB}{measure}{_INTO}{_TO}{_END}"),
            (r"^how\smany.*", rf"^how\smany\s{_TO}{_FILL}{measure}{_DURATION}{_THING}{_END}"),
        )
    ),
]

_OTHER = rf"(?:(?P<other>{_NUMBER})\s?|an?\s|one\s)(?P<other_unit>{_UNIT}|{_LETTER})"
_FIRST = rf"(?:\(?(?P<amount>{_NUMBER})\)?\s?|an?\s|one\s)(?P<unit>{_UNIT}|{_LETTER})"
_MORE = (
    r"(?:more|longer|heavier|bigger|larger|greater|farther|further|higher|taller|faster|warmer"
    r"|hotter|older|wider)"
)
_LESS = (
    r"(?:less|shorter|lighter|smaller|nearer|closer|lower|slower|colder|cooler|younger|narrower)"
)
_COMPARED = {
    "amount": {"from": "{amount}", "default": "1"},
    "unit": "{unit}",
    "other_amount": {"from": "{other}", "default": "1"},
    "other_unit": "{other_unit}",
}
COMPARE_UNITS: list[MatchRuleJson] = [
    *(
        {
            # "is 5 km more than 3 miles", "is a kilo heavier than 2 pounds"
            "contains": condition,
            "pattern": rf"^(?:is|are)\s{_FIRST}\s{words}\s{_OTHER}{_END}",
            "arguments": {**_COMPARED, "relation": relation},
        }
        for condition, words, relation in (
            (rf"^(?:is|are)\s.*\s{_MORE}\sthan\s", rf"{_MORE}\sthan", "more"),
            (rf"^(?:is|are)\s.*\s{_LESS}\sthan\s", rf"{_LESS}\sthan", "less"),
            (
                r"^(?:is|are)\s.*\s(?:same|equal|as)\s",
                r"(?:the\ssame\sas|equal\sto|as\s[a-z]+"
                r"\sas)",
                "equal",
            ),
        )
    ),
    {
        # "is 5 km between 3 and 10 miles"
        "contains": r"^(?:is|are)\s.*\d.*\sbetween\s",
        "pattern": rf"^(?:is|are)\s{_FIRST}\sbetween\s(?P<other>{_NUMBER})(?:\s?[a-z]+)?\s(?:and"
        rf"|to)\s"
        rf"(?P<end>{_NUMBER})\s?(?P<other_unit>{_UNIT}|{_LETTER}){_END}",
        "arguments": {**_COMPARED, "end_amount": "{end}", "relation": "between"},
    },
    *(
        {
            # "which is longer, 5 km or 3 miles"
            "contains": rf"^(?:which|what).*{words}.*\d.*\sor\s",
            "pattern": rf"^(?:which|what)(?:\sone)?(?:'s|\sis|\sare)\s{words}[,:]?\s{_FIRST}\sor"
            rf"\s{_OTHER}{_END}",
            "arguments": {**_COMPARED, "relation": relation},
        }
        for words, relation in ((_MORE, "which is more"), (_LESS, "which is less"))
    ),
]
