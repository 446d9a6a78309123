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
_NUMBER = r"-?\d[\d.,]*(?:/\d+)?"
_FROM = rf"(?P<from>{_UNIT}|{_LETTER})"
_TO = rf"(?P<to>{_UNIT}|{_LETTER})"
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
        "pattern": rf"^{_VERB}(?P<amount>{_NUMBER})\s?{_FROM}"
        rf"\s(?:is\s)?(?:(?:expressed|measured)\s)?(?:in|to|into|as)\s(?:how\smany\s)?{_TO}{_END}",
        "arguments": _AMOUNTS,
    },
    {
        "contains": r"how\smany",
        # "how many minutes are in 3.5 hours"
        "pattern": rf"^how\smany\s{_TO}\s(?:(?:are|is|fit|go|make(?:\sup)?|does|do|equals?)\s)?"
        rf"(?:there\s)?(?:(?:in|into|to)\s)?(?P<amount>{_NUMBER})\s?{_FROM}"
        rf"(?:\s(?:have|has|last|make|equal))?{_END}",
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
