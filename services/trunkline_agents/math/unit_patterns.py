"""The questions that the tool for units answers: "how many minutes are in 3.5 hours"."""

from trunkline_agents.math.units import UNITS
from trunkline_agents.mcp_server import MatchRuleJson

# Longer names first. A letter alone is a unit only behind a number: "5 m".
_NAMES = sorted({name for name in UNITS if len(name) > 1}, key=len, reverse=True)
_UNIT = (
    r"(?:(?:degrees?\s)?(?:"
    + "|".join(_NAMES).replace(" ", r"\s").replace("/", "/")
    + r")s?|°\s?[cf])"
)
_LETTER = r"[mgl]"
_NUMBER = r"-?\d[\d.,]*(?:(?:\s\d+)?/\d+)?"
# "3/4 of an hour", which is (3/4) if it was in words
_AMOUNT = rf"\(?(?P<amount>{_NUMBER})\)?(?:\s(?:of\s)?an?)?"
_FROM = rf"(?P<from>{_UNIT}|{_LETTER})"
_TO = rf"(?P<to>{_UNIT}|{_LETTER})"
# What is measured: "a 10 km run", "a 250 g packet of butter".
_THING = r"(?:\s[a-z]{3,}(?:\sof\s[a-z]{3,})?)?"
_VERB = (
    r"(?:(?:what(?:'s|\sis|\sare)|how\s(?:much|long|far|heavy|tall|warm|hot|cold|big)\s(?:is|are)"
    r"|convert(?:ing)?|change|turn|express|give\sme|show\sme)\s)?"
)
_END = r"\s*[?.!]?$"

_AMOUNTS = {"amount": "{amount}", "from_unit": "{from}", "to_unit": "{to}"}
CONVERT_UNITS: list[MatchRuleJson] = [
    {
        "contains": r"\d",
        # "5 km in miles", "convert 5 km to meters"
        "pattern": rf"^{_VERB}{_AMOUNT}\s?{_FROM}"
        rf"\s(?:is\s)?(?:(?:expressed|measured)\s)?(?:in|to|into|as)\s(?:how\smany\s)?{_TO}{_END}",
        "arguments": _AMOUNTS,
    },
    {
        "contains": r"how\smany",
        # "how many minutes are in 3.5 hours", "how many miles is a 10 km run"
        "pattern": rf"^how\smany\s{_TO}\s(?:(?:are|is|fit|go|make(?:\sup)?|does|do|equals?)\s)?"
        rf"(?:there\s|they\s|it\s)?(?:(?:in|into|to)\s)?(?:an?\s|the\s)?{_AMOUNT}[\s-]?{_FROM}"
        rf"(?:\s(?:have|has|last|make|equal))?{_THING}{_END}",
        "arguments": _AMOUNTS,
    },
    {
        "contains": r"how\smany",
        # "how many seconds in a day"
        "pattern": rf"^how\smany\s{_TO}\s(?:(?:are|is|fit|go|make(?:\sup)?|does|do|equals?)\s)?"
        rf"(?:there\s)?(?:(?:in|into|to)\s)?(?:an?|one|each|the)\s{_FROM}"
        rf"(?:\s(?:have|has|last|make|equal))?{_END}",
        "arguments": {**_AMOUNTS, "amount": "1"},
    },
]
