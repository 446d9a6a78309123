"""The questions that each research tool answers: patterns that the `rules` model reads.

They are in RE2's syntax, for whole questions. A
`fallback` counts for a question that no other pattern matches.
"""

from typing import Final

from trunkline_agents.mcp_server import MatchRuleJson

_SEEK: Final = r"(?:please\s)?(?:(?:search|find|get|list|show)\s(?:me\s)?(?:the\s)?)?"
_ABOUT: Final = r"\s(?:for|about|on)\s"
_QUERY: Final = r"(?P<query>\S[^\n]*)"
_WEB: Final = r"(?:the\s)?(?:web|internet)"
_SHELF: Final = r"(?:the\s|our\s|my\s)?(?:documents?|docs|handbook|manual|notes)"

ARXIV: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"{_SEEK}(?P<newest>(?:latest|newest)\s)?(?:arxiv\s)?papers"
        rf"(?:\sby\s(?P<author>[^\n?]{{1,200}}?))?{_ABOUT}{_QUERY}",
        "arguments": {
            "query": "{query}",
            "author": "{author}",
            "newest_first": {
                "from": "{newest}",
                "map": {"latest": True, "newest": True},
                "default": False,
            },
        },
    },
    {
        "pattern": rf"(?:search\s)?arxiv(?:{_ABOUT}|\s?:\s?|\s){_QUERY}",
        "arguments": {"query": "{query}"},
    },
]
WEB: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"(?:please\s)?(?:search\s{_WEB}(?:{_ABOUT}|\s)|google\s){_QUERY}",
        "arguments": {"query": "{query}"},
    },
]
DOCUMENTS: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"(?:please\s)?search\s{_SHELF}{_ABOUT}{_QUERY}",
        "arguments": {"query": "{query}"},
    },
    {
        "pattern": rf"what\s(?:do|does)\s{_SHELF}\ssay\sabout\s{_QUERY}",
        "arguments": {"query": "{query}"},
    },
    {
        "pattern": rf"(?:according\sto|in)\s{_SHELF},?\s{_QUERY}",
        "arguments": {"query": "{query}"},
    },
    {
        "pattern": r"(?P<query>(?s:\S.*))",
        "fallback": True,
        "arguments": {"query": "{query}"},
    },
]
