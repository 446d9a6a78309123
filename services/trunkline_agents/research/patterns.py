"""The questions that each research tool answers: patterns that the `rules` model reads.

They are in RE2's syntax. A `fallback` matches any question that no other pattern does.
"""

from trunkline_agents.mcp_server import MatchRuleJson

_PLEASE = r"^(?:(?:please|can\syou|could\syou)\s+)?"
_SEEK = r"(?:search|look|find|get|list|show|fetch|give)(?:\sme)?(?:\s(?:up|for|in|on|through))?"
_SOME = r"(?:(?:the|some|any|all|my|our|your|local)\s+)*"
_NEW = r"(?:(?P<newest>latest|recent|newest|new)\s+)?"
_ABOUT = r"\s+(?:for|about|on|regarding|concerning)\s+"
_QUERY = r"(?P<query>\S[^\n]*?)"
_END = r"\s*[?.!]?$"
_ON_ARXIV = r"\s(?:on|in|from)\sarxiv"
_PAPERS = r"(?:arxiv\s)?(?:(?:scientific|research|academic)\s)?(?:papers?|preprints?|publications?)"
_WEB = r"(?:the\s)?(?:web|internet)"
_SHELF = r"(?:documents?|docs|files?|notes|handbooks?|manuals?|knowledge\sbase|pdfs?|documentation)"
_PAPER_ARGUMENTS = {
    "query": "{query}",
    "newest_first": {
        "from": "{newest}",
        "map": dict.fromkeys(("latest", "recent", "newest", "new"), True),
        "default": False,
    },
}

ARXIV: list[MatchRuleJson] = [
    {
        "pattern": rf"{_PLEASE}(?:{_SEEK}\s+)?{_SOME}{_NEW}{_PAPERS}\s+by\s+"
        rf"(?P<author>[^\n?]*?)(?:{_ON_ARXIV}|(?:{_ON_ARXIV})?\s+(?:about|on)\s+{_QUERY}"
        rf"(?:{_ON_ARXIV})?)?{_END}",
        "arguments": {
            **_PAPER_ARGUMENTS,
            "query": {"from": "{query}", "default": ""},
            "author": "{author}",
        },
    },
    {
        "pattern": rf"{_PLEASE}(?:(?:{_SEEK}|are\sthere|what\sare|which\sare)\s+)?{_SOME}{_NEW}"
        rf"{_PAPERS}(?:{_ON_ARXIV})?{_ABOUT}{_QUERY}"
        rf"(?:{_ON_ARXIV})?{_END}",
        "arguments": _PAPER_ARGUMENTS,
    },
    {
        "pattern": rf"{_PLEASE}(?:(?:{_SEEK}|ask)\s+)?{_NEW}arxiv(?:{_ABOUT}|\s*:\s*|\s+)"
        rf"{_QUERY}{_END}",
        "arguments": _PAPER_ARGUMENTS,
    },
    {
        "pattern": rf"{_PLEASE}(?:{_SEEK}\s+)?{_QUERY}{_ON_ARXIV}{_END}",
        "arguments": {"query": "{query}"},
    },
]

WEB: list[MatchRuleJson] = [
    {
        "pattern": rf"{_PLEASE}(?:{_SEEK}|ask)\s+{_WEB}(?:{_ABOUT}|\s+){_QUERY}{_END}",
        "arguments": {"query": "{query}"},
    },
    {
        "pattern": rf"{_PLEASE}(?:web\ssearch|google)(?:\sfor)?\s+{_QUERY}{_END}",
        "arguments": {"query": "{query}"},
    },
    {
        "pattern": rf"{_PLEASE}(?:what\sdoes\s{_WEB}\ssay(?:\sabout)?)\s+{_QUERY}{_END}",
        "arguments": {"query": "{query}"},
    },
    {
        "pattern": rf"{_PLEASE}(?:{_SEEK}\s+)?{_QUERY}\s(?:online|on\s{_WEB}|in\s{_WEB}){_END}",
        "arguments": {"query": "{query}"},
    },
    {
        "pattern": rf"{_PLEASE}(?:(?:{_SEEK}|what(?:'s|\sis|\sare))\s+)?(?:the\s)?"
        rf"(?P<query>(?:latest\s|recent\s)?news[^\n]*?){_END}",
        "arguments": {"query": "{query}"},
    },
]

# "anything", "a rule": what is looked for, without a word of the subject.
_ANYTHING = (
    r"(?:anything|something|any\s(?:information|info|rules?|policy|details)|information|info"
    r"|details"
    r"|(?:an?|the)\s(?:rule|policy|section|chapter|part|paragraph|word))"
)
_IN_SHELF = rf"\s(?:in|from|inside|within)\s{_SOME}{_SHELF}"
_STANDS = r"(?:\s(?:written|said|stated|mentioned))?"
DOCUMENTS: list[MatchRuleJson] = [
    *(
        {
            # "is there anything in the documents on travel expenses"
            "pattern": rf"{_PLEASE}(?:is\sthere|are\sthere|do\s(?:we|you)\shave|have\swe\sgot|"
            rf"{_SEEK})"
            rf"\s{_ANYTHING}{_STANDS}{place}{_END}",
            "arguments": {"query": "{query}"},
        }
        for place in (rf"{_IN_SHELF}{_ABOUT}{_QUERY}", rf"{_ABOUT}{_QUERY}{_IN_SHELF}")
    ),
    {
        # "does the handbook say anything about pets", "do the documents mention overtime"
        "pattern": rf"{_PLEASE}(?:do|does|did)\s{_SOME}{_SHELF}\s(?:(?:also|even)\s)?"
        rf"(?:(?:say|have|contain|include|tell(?:\s(?:me|us))?|state)\s{_ANYTHING}{_ABOUT}"
        rf"|(?:mention|cover|talk\sabout|address|describe|explain|discuss|regulate|contain)\s+)"
        rf"{_QUERY}{_END}",
        "arguments": {"query": "{query}"},
    },
    {
        "pattern": rf"{_PLEASE}where\sin\s{_SOME}{_SHELF}\s(?:is|are|does\sit\ssay|do\sthey\ssay)\s"
        rf"{_QUERY}{_END}",
        "arguments": {"query": "{query}"},
    },
    {
        "pattern": rf"{_PLEASE}{_SEEK}\s+{_SOME}{_SHELF}{_ABOUT}{_QUERY}{_END}",
        "arguments": {"query": "{query}"},
    },
    {
        "pattern": rf"{_PLEASE}what\s(?:do|does)\s{_SOME}{_SHELF}\s(?:say|tell|contain|write)"
        rf"(?:\sus|\sme)?(?:{_ABOUT}|\s+){_QUERY}{_END}",
        "arguments": {"query": "{query}"},
    },
    {
        "pattern": rf"{_PLEASE}(?:according\sto|from|in)\s{_SOME}{_SHELF}[,:]?\s+{_QUERY}{_END}",
        "arguments": {"query": "{query}"},
    },
    {
        "pattern": rf"{_PLEASE}(?:(?:{_SEEK}|research)\s+)?{_QUERY}[,]?\s(?:according\sto|in|from)"
        rf"\s{_SOME}{_SHELF}{_END}",
        "arguments": {"query": "{query}"},
    },
    {
        "pattern": rf"{_PLEASE}(?:(?:look\sup|search\sfor|research)\s+)?(?P<query>(?s:\S.*))",
        "fallback": True,
        "arguments": {"query": "{query}"},
    },
]
