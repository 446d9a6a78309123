"""The questions that the tools for times of day answer: "what time is it 3 hours after 10:45".

Between the times and time spans, any words without a digit may stand: what is asked shows in a few
words that `require` names.
"""

from typing import Any

from trunkline_agents.math.wording import NUMBER_WORDS
from trunkline_agents.mcp_server import MatchRuleJson

_HALF = r"(?:\s?[ap]\.?m\b\.?)"
_PART = r"(?:\sin\sthe\s(?:morning|afternoon|evening)|\sat\snight)"
_CLOCK = (
    rf"(?:\b\d{{1,2}}:\d{{2}}\b{_HALF}?{_PART}?|\b\d{{1,2}}[.h]\d{{2}}{_HALF}|\b\d{{1,2}}{_HALF}"
    rf"|\b\d{{1,2}}\so'?clock\b{_PART}?|\b\d{{1,2}}{_PART}|\b(?:noon|midday|midnight)\b"
    r"|(?:half|(?:a\s)?quarter|\(1/[24]\)|\b\d{1,2}(?:\sminutes)?)\s(?:past|to)\s\d{1,2}"
    rf"{_HALF}?)"
)
# A number alone is a time beside one that is written as such: "from 9 to 5:30 pm".
_LOOSE = rf"(?:{_CLOCK}|\b\d{{1,2}}\b)"
_HOURS = r"(?:hours?|hrs?|h)\b"
_MINUTES = r"(?:minutes?|mins?)\b"
_SIZE = r"(?:\b\d+(?:\.\d+)?|\(?\b\d/\d\)?|\ban?)"
SPAN = (
    rf"(?:{_SIZE}[\s-]?{_HOURS},?\s?(?:and\s)?(?:{_SIZE}[\s-]?(?:{_MINUTES}|m\b))|{_SIZE}[\s-]?"
    rf"{_HOURS}"
    rf"|{_SIZE}[\s-]?{_MINUTES}|\b\d{{1,2}}h\d{{2}}\b"
    r"|\b(?:half|(?:a\s)?quarter\sof|\(?[13]/[24]\)?(?:\sof)?)\san\shour\b)"
)
"""A time span: 2 hours 30 minutes, 2h30, half an hour."""
_WORDS = r"[^\d(?]*?"
_END = r"\s*[?.!]*$"
_BREAK = r"(?:break|pause|lunch|off|rest)"
# The cheapest pattern that any text with a time of day has.
_HAS_CLOCK = (
    r"\d[:.h]\d|\d\s?[ap]\.?m\b|noon|midday|midnight|o'clock|(?:half|quarter)\b.*\b(?:past|to)\b"
    r"|\b(?:past|to)\s\d|\sin\sthe\s(?:morning|afternoon|evening)|at\snight"
)
_ASKED_TIME = r"\b(?:when|what(?:'s|\sis|\swas)|(?:what|which)\stime|until\swhen|till\swhen|time)\b"
# Questions for the time before one that is stated: "when do I have to leave".
_ASKED_START = (
    r"\b(?:when|what\stime)\s(?:(?:do|does|did|will)\s[a-z]+\s(?:have|need)\sto|(?:must|should)\s[a-z]+(?:"
    r"\s(?:have|need)\sto)?)\s(?:be\s)?(?:leave|start|begin|set\soff|depart|go|get\sup|put|head\soff"
    r"|set\sout|switch|turn)\b|\bwhen\sdid\sit\s(?:start|begin)\b"
)
_BEFORE = r"(?:before|earlier\sthan|prior\sto|ahead\sof)"
_AFTER = r"(?:after|from|past|later\sthan|since)"
_FOUND: dict[str, Any] = {"start": "{start}", "duration": "{duration}", "more": "{more}"}
_EARLIER = {**_FOUND, "direction": "before"}
_MORE = rf"(?:{_WORDS}(?P<more>{SPAN}))?"

_FIND_TIME: list[MatchRuleJson] = [
    {
        "contains": _HAS_CLOCK,
        "pattern": rf"^{_WORDS}(?P<start>{_CLOCK})\s(?:in|as|to|into|on)\s(?:the\s|a\s)?(?:24[\s-]?"
        rf"(?:hours?|h)|military)(?:\s(?:time|format|clock|notation))?{_END}",
        "arguments": {"start": "{start}", "form": "24 hours"},
    },
    {
        "contains": _HAS_CLOCK,
        "pattern": rf"^{_WORDS}(?P<start>{_CLOCK})\s(?:in|as|to|into|on)\s(?:the\s|a\s)?(?:12[\s-]?"
        rf"(?:hours?|h)(?:\s(?:time|format|clock|notation))?|am(?:/|\sor\s|\sand\s)pm){_END}",
        "arguments": {"start": "{start}", "form": "am and pm"},
    },
    {
        # Of a time before another: "45 minutes before 10am"
        "contains": _HAS_CLOCK,
        "pattern": rf"^{_WORDS}(?P<duration>{SPAN})\s{_BEFORE}\s(?P<start>{_CLOCK}){_WORDS}{_END}",
        "arguments": _EARLIER,
    },
    {
        "contains": _HAS_CLOCK,
        "pattern": rf"^(?:{_WORDS}(?:subtract|take|deduct)\s(?P<duration>{SPAN})\s(?:away\s|off"
        rf"\s)?"
        rf"from\s(?P<start>{_CLOCK})){_END}",
        "arguments": _EARLIER,
    },
    {
        "contains": _HAS_CLOCK,
        "pattern": rf"^{_WORDS}(?P<start>{_CLOCK})\s?(?:minus|less|-)\s?(?P<duration>{SPAN})"
        rf"{_END}",
        "arguments": _EARLIER,
    },
    {
        # Of a time after another: "what time is it 3 hours after 10:45"
        "contains": _HAS_CLOCK,
        "pattern": rf"^{_WORDS}(?P<duration>{SPAN})\s{_AFTER}\s(?P<start>{_CLOCK}){_WORDS}"
        rf"{_END}",
        "exclude": {"0": r"^how\s(?:many|long|much)"},
        "arguments": _FOUND,
    },
    {
        "contains": _HAS_CLOCK,
        "pattern": rf"^{_WORDS}(?:add(?:ing)?\s)(?P<duration>{SPAN})\sto\s(?P<start>{_CLOCK})"
        rf"{_END}",
        "arguments": _FOUND,
    },
    {
        "contains": _HAS_CLOCK,
        "pattern": rf"^{_WORDS}(?P<start>{_CLOCK})\s?(?:plus|\+)\s?(?P<duration>{SPAN}){_END}",
        "arguments": _FOUND,
    },
    # Of a plan: "I must be there at 9:00 and it takes 40 minutes, when do I have to leave"
    *(
        {
            "contains": _HAS_CLOCK,
            "pattern": f"^{_WORDS}{order}{_WORDS}{_END}",
            "require": {"0": asked},
            "exclude": {"0": excluded},
            "arguments": arguments,
        }
        for asked, excluded, arguments in (
            (rf"{_ASKED_START}.*$", r"\b(?:starts?|begins?|began|started)\b.*\bat\b", _EARLIER),
            (_ASKED_TIME, r"\b(?:how\s(?:long|many|much)|before|ago|earlier)\b", _FOUND),
        )
        for order in (
            rf"(?P<start>{_CLOCK}){_WORDS}(?P<duration>{SPAN}){_MORE}",
            rf"(?P<duration>{SPAN}){_WORDS}(?P<start>{_CLOCK})",
        )
    ),
    {
        # Of now: "what time will it be in 45 minutes"
        "contains": "time",
        "pattern": rf"^what\stime\s(?:will|would)\sit\sbe\sin\s(?P<duration>{SPAN}){_END}",
        "arguments": {**_FOUND, "start": "now"},
    },
    {
        "contains": "ago",
        "pattern": rf"^what\stime\swas\sit\s(?P<duration>{SPAN})\sago{_END}",
        "arguments": {**_EARLIER, "start": "now"},
    },
]

_HOW_LONG = (
    r"how\s(?:long|many|much)|\b(?:hours|minutes|time)\b.*\b(?:between|from)\b|difference"
    r"|what\sis\sthe\stime"
)
_UNIT = {"from": "{unit}", "map": {"hour": "hours", "minute": "minutes"}}
_MEASURE_TIME: list[MatchRuleJson] = [
    {
        # Of two times: how many minutes are there between 13:10 and 14:55
        "contains": _HAS_CLOCK,
        "pattern": rf"^{head}(?P<start>{first}){_WORDS}(?P<end>{last})"
        rf"(?:{_WORDS}(?P<pause>{SPAN})\s?(?:[a-z]+\s){{0,4}}{_BREAK})?{tail}{_END}",
        "require": {"0": _HOW_LONG},
        "arguments": {"start": "{start}", "end": "{end}", "pause": "{pause}", **unit},
    }
    for first, last in ((_CLOCK, _CLOCK), (_LOOSE, _CLOCK), (_CLOCK, _LOOSE))
    for head, tail, unit in (
        (rf"{_WORDS}how\smany\s(?P<unit>hours?|minutes?){_WORDS}", _WORDS, {"unit": _UNIT}),
        (_WORDS, rf"{_WORDS}how\smany\s(?P<unit>hours?|minutes?){_WORDS}", {"unit": _UNIT}),
        (_WORDS, _WORDS, {}),
    )
]


def _read_in_digits(rules: list[MatchRuleJson]) -> list[MatchRuleJson]:
    """Return rules that leave a sentence with numbers in words for when they are in digits."""
    return [
        {**rule, "exclude": {"0": "|".join([*rule.get("exclude", {}).values(), NUMBER_WORDS])}}
        for rule in rules
    ]


FIND_TIME = _read_in_digits(_FIND_TIME)
MEASURE_TIME = _read_in_digits(_MEASURE_TIME)
