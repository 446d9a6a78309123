"""The questions that the tools for a calendar answer: "when is the second Monday of March 2027".

Dates in words are digits by then, as in `date_patterns`.
"""

from typing import Any

from trunkline_agents.mcp_server import MatchRuleJson

_ISO_DAY = r"(?:\d{4}-\d{1,2}-\d{1,2}|--\d{2}-\d{2})"
_DAY = rf"(?:{_ISO_DAY}|today|tomorrow|yesterday|now)"
_MONTH = (
    r"(?:january|february|march|april|may|june|july|august|september|october|november|december)"
)
_PERIOD = rf"(?:{_MONTH},?(?:\sof)?(?:\s\d{{4}})?|(?:the\syear\s)?\d{{4}})"
_WEEKDAY = r"(?:(?:mon|tues|wednes|thurs|fri|satur|sun)day)"
_END = r"\s*[?.!]*$"
_TAIL = r"(?:,?\s(?:is|was|be|fall|falls|on|date|it|that|exactly|have|what|which))*"
_ASK = (
    r"^(?:(?:on|what(?:'s)?|which|when(?:'s)?|is|was|will|would|does|do|did|be|it|the|date|day|give"
    r"|me|tell|find|of|for|falls?|have|we|are|for)\s)*"
)
_ORDER = r"(?P<order>first|second|third|fourth|fifth|last|1st|2nd|3rd|4th|5th)"
_KIND = rf"(?P<kind>weekdays|work(?:ing)?\s?days|business\sdays|weekend\sdays|{_WEEKDAY}s)"
_COUNT = r"^(?:[a-z']+\s)*?(?:how\smany|number\sof|count(?:\sthe)?)\s"
_LIE = (
    r"\s(?:(?:are|is|were|there|lie|do|does|we|i|have|has|will|be|it|left|remain|fall|falls|to)\s)*"
)
_COUNTED: dict[str, Any] = {"kind": "{kind}", "start": "{start}"}

FIND_NAMED_DAY: list[MatchRuleJson] = [
    {
        # "what date is the second Monday of March 2027"
        "contains": _WEEKDAY,
        "pattern": rf"{_ASK}{_ORDER}\s(?P<weekday>{_WEEKDAY})\s(?:of|in)\s(?P<month>{_MONTH})"
        rf"(?:,?\s(?:of\s|in\s)?(?P<year>\d{{4}}))?{_TAIL}{_END}",
        "require": {"year": r"\d"},
        "arguments": {
            "weekday": "{weekday}",
            "order": "{order}",
            "month": "{month} {year}",
        },
    },
    {
        "contains": _WEEKDAY,
        "pattern": rf"{_ASK}{_ORDER}\s(?P<weekday>{_WEEKDAY})\s(?:of|in)\s(?P<month>{_MONTH})"
        rf"{_TAIL}{_END}",
        "arguments": {"weekday": "{weekday}", "order": "{order}", "month": "{month}"},
    },
    {
        # "what date is next Friday"
        "contains": _WEEKDAY,
        "pattern": rf"{_ASK}(?P<order>next|last|this|coming|this\scoming|following|past)\s"
        rf"(?P<weekday>{_WEEKDAY}){_TAIL}{_END}",
        "require": {"0": r"^(?:on\s)?(?:what|which|when|give|tell|find|the\sdate|date)"},
        "arguments": {
            "weekday": "{weekday}",
            "order": {
                "from": "{order}",
                "map": {"past": "last", "this coming": "coming", "following": "coming"},
            },
        },
    },
    {
        # "when is Friday"
        "contains": _WEEKDAY,
        "pattern": rf"{_ASK}(?:on\s|the\s)?(?P<weekday>{_WEEKDAY})(?:\sin\s(?P<weeks>\d{{1,3}})"
        rf"\sweeks?(?:'?\s"
        rf"time)?)?{_TAIL}{_END}",
        "require": {"0": r"^(?:on\s)?(?:what(?:'s)?\s(?:is\s)?(?:the\s)?date|which\sdate|when)"},
        "exclude": {"weeks": r"\d"},
        "arguments": {"weekday": "{weekday}"},
    },
    {
        "contains": r"weeks?\b",
        "pattern": rf"{_ASK}(?:on\s|the\s)?(?P<weekday>{_WEEKDAY})\sin\s(?P<weeks>\d{{1,3}}|a)"
        rf"\sweeks?"
        rf"(?:'?\stime)?{_TAIL}{_END}",
        "arguments": {
            "weekday": "{weekday}",
            "order": "this",
            "weeks": {"from": "{weeks}", "map": {"a": 1}, "type": "integer"},
        },
    },
    {
        "contains": r"week",
        "pattern": rf"{_ASK}(?:a|1)\sweek\s(?:from|after)\s(?:next\s)?(?P<weekday>{_WEEKDAY})"
        rf"{_TAIL}{_END}",
        "exclude": {"0": "next"},
        "arguments": {"weekday": "{weekday}", "weeks": 1},
    },
]

COUNT_NAMED_DAYS: list[MatchRuleJson] = [
    *(
        {
            "contains": "days",
            "pattern": f"{_COUNT}{_KIND}{_LIE}{body}{_TAIL}{_END}",
            "arguments": {**_COUNTED, **more},
        }
        for body, more in (
            (
                rf"(?:between|from)\s(?P<start>{_DAY})\s(?:and|to|until|till|up\sto|through)\s"
                rf"(?P<end>{_DAY})",
                {"end": "{end}"},
            ),
            (
                rf"(?:until|till|before|up\sto)\s(?P<end>{_ISO_DAY})",
                {"start": "today", "end": "{end}"},
            ),
            (rf"(?:in|of|during)\s(?:the\syear\s)?(?P<start>{_MONTH}(?:\s\d{{4}})?|\d{{4}})", {}),
        )
    ),
    {
        # "how many Fridays does May 2027 have"
        "contains": "days",
        "pattern": rf"{_COUNT}{_KIND}\s(?:does|do|did|has|will)\s(?P<start>{_MONTH}(?:\s\d{{4}})?"
        rf"|\d{{4}})(?:\shave)?{_END}",
        "arguments": _COUNTED,
    },
]

_THE_WEEK = r"(?:calendar\s|iso\s)?week(?:\snumber)?(?:\s(?:of\sthe\syear|number))?"
FIND_WEEK: list[MatchRuleJson] = [
    {
        # "what week number is 2027-06-15", "in which week is Christmas"
        "contains": "week",
        "pattern": rf"^(?:in\s)?(?:what(?:'s|\sis)?|which|tell\sme|find)\s(?:the\s)?{_THE_WEEK}"
        rf"\s(?:(?:is|of|for|does"
        rf"|was|has|will|in|on|be|fall|falls|the)\s)*(?P<date>{_DAY})(?:\s(?:in|fall|be|on))*"
        rf"{_END}",
        "exclude": {"0": r"\bday\b"},
        "arguments": {"date": "{date}"},
    },
    {
        "contains": "week",
        "pattern": rf"^(?:in\s)?(?:what(?:'s|\sis)?|which|tell\sme|find)\s(?:the\s)?(?:current"
        rf"\s)?{_THE_WEEK}"
        rf"(?:\s(?:is|it|this|are|we|in|now|do|have|right|today|currently|s))*{_END}",
        "exclude": {"0": r"\bday\b"},
        "arguments": {"date": "today"},
    },
]

_PERSON = r"(?:i|someone|somebody|he|she|you|they|we|it|my\s[a-z]+|a\sperson)"
_BORN = r"(?:was|were|is|am|are)\sborn(?:\s(?:on|in))?(?:\s(?:the\syear|the))?"
_OLD = r"(?:how\sold|what(?:'s|\sis|\sage)?(?:\s(?:my|his|her|their|the)\sage)?)"
_BIRTH = rf"(?P<start>{_ISO_DAY}|\d{{4}})"
_AT = rf"(?P<end>{_ISO_DAY}|\d{{4}})"
MEASURE_AGE: list[MatchRuleJson] = [
    *(
        {
            # "I was born on 1990-05-14, how old am I", "how old is someone born in 1958"
            "contains": r"born|birth",
            "pattern": pattern + _END,
            "arguments": arguments,
        }
        for pattern, arguments in (
            (
                rf"^(?:if\s)?{_PERSON}\s{_BORN}\s{_BIRTH}[,;.:]?\s(?:so\s|and\s)?{_OLD}\s?(?:"
                rf"[a-z']+\s?){{0,4}}?"
                rf"\s(?:on|in|by|at)\s{_AT}",
                {"start": "{start}", "end": "{end}"},
            ),
            (
                rf"^(?:if\s)?{_PERSON}\s{_BORN}\s{_BIRTH}[,;.:]?\s(?:so\s|and\s)?{_OLD}(?:\s"
                rf"[a-z']+){{0,5}}",
                {"start": "{start}"},
            ),
            (
                rf"^how\sold\s(?:[a-z']+\s){{1,6}}(?:on|in|by|at)\s{_AT},?\s(?:if\s)?(?:[a-z']+"
                rf"\s){{0,4}}?"
                rf"(?:born)\s(?:on\s|in\s)?(?:the\syear\s)?{_BIRTH}",
                {"start": "{start}", "end": "{end}"},
            ),
            (
                rf"^how\sold\s(?:[a-z']+,?\s){{1,8}}?born\s(?:on\s|in\s)?(?:the\syear\s)?"
                rf"{_BIRTH}(?:\s(?:be\s)?"
                rf"(?:on|in|by)\s{_AT})?(?:\s(?:now|today))?",
                {"start": "{start}", "end": {"from": "{end}", "default": "today"}},
            ),
            (
                rf"^(?:my|his|her)\s(?:birthday|date\sof\sbirth|birth\sdate)\sis\s(?P<start>\d"
                rf"{{4}}-\d{{1,2}}-\d{{1,2}})"
                rf"[,;.]?\s{_OLD}(?:\s[a-z']+){{0,4}}",
                {"start": "{start}"},
            ),
        )
    ),
    {
        # "how long ago was 2000-01-01"
        "contains": "ago|since",
        "pattern": r"^how\s(?:long|many\syears|many\smonths)\s(?:ago\s)?(?:is|was|has)?\s?(?:it"
        r"\s|that\s|been\s)*"
        rf"(?:since\s)?(?P<start>\d{{4}}-\d{{1,2}}-\d{{1,2}})(?:\sago)?{_END}",
        "arguments": {"start": "{start}", "kind": "time"},
    },
    {
        # Of a year alone: "how many years ago was 1969"
        "contains": "ago",
        "pattern": rf"^how\s(?:long|many\syears)\sago\s(?:is|was)\s(?:the\syear\s)?(?P<start>\d"
        rf"{{4}}){_END}",
        "arguments": {"start": "{start}", "kind": "time"},
    },
    {
        # "how many years and months are between 2019-03-01 and today"
        "contains": "years|months",
        "pattern": r"^(?:what(?:'s|\sis)\s)?(?:how\smany|the\snumber\sof)\s(?:years|months)(?:"
        r"(?:\sand|,)\s(?:months|days))*"
        rf"{_LIE}(?:between|from)\s(?P<start>{_DAY})\s(?:and|to|until|till)\s(?P<end>{_DAY}){_END}",
        "arguments": {"start": "{start}", "end": "{end}", "kind": "time"},
    },
    {
        "contains": "years|months",
        "pattern": r"^how\smany\s(?:years|months)(?:(?:\sand|,)\s(?:months|days))*"
        rf"{_LIE}(?:until|till|to)\s(?P<end>{_ISO_DAY}){_END}",
        "arguments": {"start": "today", "end": "{end}", "kind": "time"},
    },
]

FIND_LEAP_YEAR: list[MatchRuleJson] = [
    {
        "contains": "leap",
        "pattern": r"^(?:when|what|which(?:\syear)?)(?:'s|\s(?:is|was|will\sbe))?\s(?:the\s)?"
        r"(?P<order>next|last|latest|previous|first)\sleap\syear(?:\s(?:after|before|from)\s"
        rf"(?P<year>\d{{4}}))?(?:\sbe)?{_END}",
        "exclude": {"0": "(?:next|first).*before|(?:last|previous).*after"},
        "arguments": {
            "order": {
                "from": "{order}",
                "map": {"previous": "last", "latest": "last", "first": "next"},
            },
            "year": {"from": "{year}", "type": "integer"},
        },
    },
]
