"""The questions that the tools for dates answer: "how many days from 2026-01-01 to 2026-03-12".

Dates in words are digits by then: "the first of March 2026" is 2026-03-01, and "1 March" --03-01.
"""

from typing import Any

from trunkline_agents.mcp_server import MatchRuleJson

_ISO_DAY = r"(?:\d{4}-\d{1,2}-\d{1,2}|--\d{2}-\d{2})"
_DAY = rf"(?:{_ISO_DAY}|today|tomorrow|yesterday|now)"
_HAS_DAY = r"\d-\d|today|tomorrow|yesterday"
_MONTH = (
    r"(?:january|february|march|april|may|june|july|august|september|october|november|december)"
)
_WEEKDAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_END = r"\s*[?.!]?$"
# Words of questions for a date: "on which day of the week does … fall".
_WORDS = (
    r"(?:(?:on|what(?:'s)?|which|when|is|was|were|will|would|did|does|do|it|be|been|the|a|of|week"
    r"|weekday|date|day|calendar|exactly|that|give|show|find|tell|calculate|me|fall|falls|fell"
    r"|land|comes|lies|we|have|to|i)\s)"
)
_ASK = rf"^{_WORDS}{{0,10}}"
_AFTER_IT = r"(?:,?\s(?:be|is|was|fall|falls|fell|land|on|in|it|date|day|of|the|week)){0,5}"
_UNIT = r"(?P<unit>days?|weeks?|months?|years?)"
_AMOUNT = r"(?P<amount>\d[\d,]{0,8})"
_COUNT = (
    r"^(?:(?:what(?:'s|\sis)|give\sme|tell\sme|find|calculate|count|work\sout)\s)?"
    r"(?:how\smany\s|(?:the\s)?(?:number|count|difference)\s(?:of|in)\s|the\s)?(?P<unit>days?"
    r"|weeks?)\s"
    r"(?:(?:are|is|were|was|lie|pass|passed|do\si\shave|do\swe\shave|have|has|left|remain|there|it"
    r"|did|will|elapsed|go\sby)\s){0,4}"
)
_HOW_LONG = r"^how\s(?:long|far)\s(?:(?:is|was|are|will)\s(?:it\s|there\s|the\stime\s)?)?"
_SPAN: dict[str, Any] = {"start": "{start}", "end": "{end}"}
_IN_UNIT = {"unit": "{unit}"}
_MOVED: dict[str, Any] = {
    "start": "{start}",
    "amount": {"from": "{amount}", "type": "integer"},
    "unit": "{unit}",
}
_LATER = {**_MOVED, "direction": "after"}
_EARLIER = {**_MOVED, "direction": "before"}
_BETWEEN = (
    rf"(?:between|from)\s(?P<start>{_DAY})\s(?:and|to|until|till|up\sto|through)\s(?P<end>{_DAY})"
)

COUNT_DAYS: list[MatchRuleJson] = [
    *(
        {
            "contains": _HAS_DAY,
            "pattern": f"{lead}{body}{_END}",
            "arguments": {**_SPAN, **span, **unit},
        }
        for lead, unit in ((_COUNT, _IN_UNIT), (_HOW_LONG, {}))
        for body, span in (
            (_BETWEEN, {}),
            (
                rf"(?:until|till|to|before)\s(?P<end>{_ISO_DAY})",
                {"start": "today"},
            ),
            (
                rf"(?:since|ago\s(?:is|was))\s(?P<start>{_ISO_DAY})",
                {"end": "today"},
            ),
        )
    ),
    {
        "contains": "left|remain",
        "pattern": rf"{_COUNT}(?:(?:in|of)\s)?(?:this|the|the\scurrent)\syear(?:\s(?:left"
        rf"|remain))?{_END}",
        "require": {"0": "left|remain"},
        "arguments": {"start": "today", "end": "--12-31", "unit": "{unit}"},
    },
    {
        # "how long is it until my birthday on --02-05"
        "contains": r"until|till",
        "pattern": r"^how\s(?:long|many\s(?P<unit>days|weeks))\s(?:(?:is|are|it|there|left|to"
        r"|go)\s)*"
        rf"(?:until|till|to)\s(?:[a-z']+\s){{1,5}}?(?:on|of)\s(?P<end>{_ISO_DAY}){_END}",
        "arguments": {
            "start": "today",
            "end": "{end}",
            "unit": {"from": "{unit}", "default": "days"},
        },
    },
    {
        # "how many days does February have in 2028", "days in February 2028"
        "contains": "days",
        "pattern": r"^(?:how\smany\s|(?:what(?:'s|\sis)\s)?(?:the\s)?number\sof\s)?days"
        r"\s(?:(?:does|do|did|has|have|had|will"
        rf"|are|is|were|there|in|of|the|month)\s){{0,4}}(?P<month>{_MONTH})"
        rf"(?:\s(?:have|has|had))?(?:,?\s(?:in|of))?\s(?P<year>\d{{4}})(?:\s(?:have|has|had))?"
        rf"{_END}",
        "arguments": {"start": "{month} {year}"},
    },
    {
        # Of this year: "how many days does March have"
        "contains": "days",
        "pattern": r"^(?:how\smany\s|(?:what(?:'s|\sis)\s)?(?:the\s)?number\sof\s)days"
        rf"\s(?:(?:does|do|has|have|will|are|is|there|in|of|the|month)\s){{1,4}}(?P<month>{_MONTH})"
        rf"(?:\s(?:have|has))?{_END}",
        "arguments": {"start": "{month}"},
    },
]

MOVE_DATE: list[MatchRuleJson] = [
    *(
        {
            # "what date is 90 days after 2025-01-01"
            "contains": "day|week|month|year",
            "pattern": rf"{_ASK}{_AMOUNT}\s{_UNIT}\s{word}\s(?P<start>{_DAY}){_AFTER_IT}{_END}",
            "arguments": arguments,
        }
        for word, arguments in (("(?:after|from|past|since)", _LATER), ("(?:before)", _EARLIER))
    ),
    *(
        {
            # "2025-01-01 plus 90 days", "add 90 days to 2025-01-01"
            "contains": _HAS_DAY,
            "pattern": pattern + _END,
            "arguments": arguments,
        }
        for pattern, arguments in (
            (rf"{_ASK}(?P<start>{_DAY})\s?(?:plus|\+)\s?{_AMOUNT}\s{_UNIT}", _LATER),
            (rf"{_ASK}(?P<start>{_DAY})\s?(?:minus|-)\s?{_AMOUNT}\s{_UNIT}", _EARLIER),
            (rf"^add(?:ing)?\s{_AMOUNT}\s{_UNIT}\sto\s(?P<start>{_DAY})", _LATER),
            (
                rf"^(?:subtract|take|deduct)(?:ing)?\s{_AMOUNT}\s{_UNIT}\s(?:away\s)?from"
                rf"\s(?P<start>{_DAY})",
                _EARLIER,
            ),
        )
    ),
    {
        # "an invoice from 2026-01-20 is due in 45 days, which date is that"
        "contains": r"\d-\d.*\sin\s",
        "pattern": rf"^(?:[a-z']+\s){{1,8}}(?P<start>{_ISO_DAY})(?:\s[a-z]+){{1,4}}"
        r"\s(?:in|within|after)\s"
        rf"{_AMOUNT}\s{_UNIT}[,;.:]?\s(?:what|which|when|on\swhich)(?:\s(?:date|day))?\s(?:is"
        rf"|will|would)"
        rf"\s(?:that|it|this)(?:\sbe)?{_END}",
        "arguments": _LATER,
    },
    {
        # "what date will it be in 30 days"
        "contains": "date|day",
        "pattern": rf"{_ASK}in\s{_AMOUNT}\s{_UNIT}(?:'\stime)?{_END}",
        "require": {"0": r"^(?:on\s)?(?:what|which|tell|give|the\sdate)"},
        "arguments": {**_LATER, "start": "today"},
    },
    {
        # "what date was it 30 days ago"
        "contains": "ago",
        "pattern": rf"{_ASK}{_AMOUNT}\s{_UNIT}\sago{_AFTER_IT}{_END}",
        "arguments": {**_EARLIER, "start": "today"},
    },
]

_CHECKED = {"date": "{date}"}
CHECK_DATE: list[MatchRuleJson] = [
    {
        # "is 2027-02-29 a real date"
        "contains": r"\d-\d",
        "pattern": rf"^(?:is|was|will)\s(?:the\s)?(?P<date>{_ISO_DAY})\s(?:be\s)?(?:an?\s)?"
        rf"(?:real|valid|existing|possible|actual|correct)(?:\s(?:calendar\s)?(?:date|day))?{_END}",
        "arguments": _CHECKED,
    },
    {
        "contains": r"\d-\d",
        "pattern": rf"^(?:does|did|will)\s(?:the\s)?(?P<date>{_ISO_DAY})\s(?:(?:really|actually"
        rf"|even)\s)?exists?{_END}",
        "arguments": _CHECKED,
    },
    {
        "contains": r"\d-\d",
        "pattern": rf"^(?:is|was|will)\sthere\s(?:be\s)?(?:(?:an?|the)\s)?(?P<date>{_ISO_DAY})"
        rf"{_END}",
        "arguments": _CHECKED,
    },
]

FIND_WEEKDAY: list[MatchRuleJson] = [
    {
        # "what day of the week was 1976-07-04", "on which day does 2026-12-24 fall"
        "contains": r"day|date",
        "pattern": rf"{_ASK}(?P<date>{_DAY}){_AFTER_IT}{_END}",
        "require": {"0": r"\b(?:day|weekday|date)\b"},
        "arguments": {"date": "{date}"},
    },
    {
        "contains": r"day|date",
        "pattern": r"^(?:what(?:'s|\sis)?|which|tell\sme)\s(?:the\s)?(?:current\s|today's\s)?"
        rf"(?:date|day|weekday)(?:\s(?:of\sthe\sweek|is|it|today|do|we|have|now|right|s))*{_END}",
        "arguments": {"date": "today"},
    },
    {
        # "is 2026-12-24 a Thursday"
        "contains": "day",
        "pattern": rf"^(?:is|was|will|does|did)\s(?P<date>{_DAY})\s(?:(?:be|fall|on|a)\s){{0,3}}"
        rf"(?P<expected>{_WEEKDAY}){_END}",
        "arguments": {"date": "{date}", "expected": "{expected}"},
    },
]
