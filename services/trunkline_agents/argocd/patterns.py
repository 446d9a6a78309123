"""The questions that each Argo CD tool answers: patterns that the `rules` model reads.

They are in RE2's syntax. The first pattern of a tool that matches wins.
"""

from typing import Final

from trunkline_agents.mcp_server import MatchRuleJson

_PLEASE: Final = r"^(?:(?:please|can\syou|could\syou)\s+)?"
_SEE: Final = (
    r"(?:(?:show|get|give|tell|print|display|list|describe|zeige?|what(?:'s|\sis|\sare)|which)"
    r"(?:\sme)?\s+)?"
)
_THE: Final = r"(?:(?:the|all|my|our|current|die|den|argo|argo\s?cd|argo\s?cd's)\s+)*"
_APP_WORD: Final = r"(?:apps?|applications?|deployments?)"
_NAME: Final = r"(?P<name>[a-z0-9](?:[a-z0-9./-]{0,300}[a-z0-9])?)"
_APP: Final = rf"{_THE}(?:{_APP_WORD}\s+)?{_NAME}(?:\s+{_APP_WORD})?"
_OF: Final = r"\s+(?:of|for|in|on|about)\s+"
_END: Final = r"\s*[?.!]?$"
_STATES: Final = (
    r"(?P<state>out[\s-]of[\s-]sync|outofsync|unhealthy|degraded|progressing|missing|suspended|"
    r"unknown|healthy|synced|in\ssync)"
)
_BY_SYNC: Final = {
    "out of sync": "OutOfSync",
    "out-of-sync": "OutOfSync",
    "outofsync": "OutOfSync",
    "synced": "Synced",
    "in sync": "Synced",
}
_BY_HEALTH: Final = {
    "unhealthy": "Unhealthy",
    "degraded": "Degraded",
    "progressing": "Progressing",
    "missing": "Missing",
    "suspended": "Suspended",
    "unknown": "Unknown",
    "healthy": "Healthy",
}
_STATE: Final = {"state": {"from": "{state}", "map": _BY_SYNC | _BY_HEALTH}}
_APPLICATION: Final = {"application": "{name}"}

VERSION: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"{_PLEASE}{_SEE}{_THE}(?:server\s)?version"
        rf"(?:\s(?:of|is|does|do|has)\b[^\n?]{{0,80}})?{_END}",
        "arguments": {},
    }
]

LIST: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"{_PLEASE}{_SEE}{_THE}{_APP_WORD}(?:\s(?:that|which))?(?:\s(?:is|are))?"
        rf"\s+{_STATES}{_END}",
        "arguments": _STATE,
    },
    {
        "pattern": rf"{_PLEASE}{_SEE}{_THE}{_STATES}\s+{_APP_WORD}{_END}",
        "arguments": _STATE,
    },
    {
        "pattern": rf"{_PLEASE}{_SEE}{_THE}{_APP_WORD}\s(?:in|of)\s(?:the\s)?project\s+"
        rf"(?P<project>[a-z0-9-]{{1,253}}){_END}",
        "arguments": {"project": "{project}"},
    },
    {
        "pattern": rf"{_PLEASE}{_SEE}{_THE}{_APP_WORD}"
        rf"(?:\s(?:are|is|do|does|on|in)\b[^\n?]{{0,40}})?{_END}",
        "arguments": {},
    },
]

GET: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"{_PLEASE}{_SEE}(?:(?:details?|information){_OF})?{_THE}{_APP_WORD}\s+{_NAME}"
        rf"{_END}",
        "arguments": _APPLICATION,
    }
]

HEALTH: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"{_PLEASE}{_SEE}{_THE}(?:health|status|state)(?:\sstatus)?{_OF}{_APP}{_END}",
        "arguments": _APPLICATION,
    },
    {
        "pattern": rf"{_PLEASE}(?:how|is)\s(?:is\s)?{_APP}(?:\s(?:doing|ok|up|{_STATES}))?{_END}",
        "arguments": _APPLICATION,
    },
    {
        "pattern": rf"{_PLEASE}{_SEE}{_THE}{_NAME}\s(?:health|status){_END}",
        "arguments": _APPLICATION,
    },
]

HISTORY: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"{_PLEASE}{_SEE}{_THE}(?:(?:deployment|sync|release)\s)?history{_OF}{_APP}"
        rf"{_END}",
        "arguments": _APPLICATION,
    },
    {
        "pattern": rf"^when\s(?:was|were)\s{_APP}\s(?:last\s)?(?:deployed|synced){_END}",
        "arguments": _APPLICATION,
    },
]

DIFF: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"{_PLEASE}{_SEE}{_THE}(?:diffs?|differences?|drift|changes)(?:{_OF}|\s+)"
        rf"{_APP}{_END}",
        "arguments": _APPLICATION,
    },
    {
        "pattern": rf"^what\s(?:would|will)\s(?:be\s)?(?:change|changed|sync|synced)(?:{_OF})"
        rf"{_APP}{_END}",
        "arguments": _APPLICATION,
    },
]

SYNC: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"{_PLEASE}(?:re)?(?:sync|synchroni[sz]e|deploy)\s+{_APP}"
        rf"(?:\s+(?:to|at)\s+(?:revision\s|version\s)?(?P<revision>[\w./-]{{1,200}}))?{_END}",
        "arguments": {"application": "{name}", "revision": {"from": "{revision}", "default": ""}},
    }
]
