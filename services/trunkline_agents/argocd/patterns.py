"""The questions that each Argo CD tool answers: patterns that the `rules` model reads.

They are in RE2's syntax, for whole questions.
"""

from typing import Final

from trunkline_agents.mcp_server import MatchRuleJson

_SEE: Final = r"(?:please\s)?(?:(?:show|get|list|what\sis|which)(?:\sme)?\s)?(?:(?:the|all)\s)*"
_ARGO: Final = r"(?:argo\s?cd\s)?"
_APPS: Final = r"(?:apps|applications)"
_APP: Final = r"(?:(?:app|application)\s)?(?P<name>[a-z0-9](?:[a-z0-9./-]{0,300}[a-z0-9])?)"
_OF: Final = r"\s(?:of|for)\s"
_APPLICATION: Final = {"application": "{name}"}
_STATES: Final = {
    "out of sync": "OutOfSync",
    "synced": "Synced",
    "healthy": "Healthy",
    "unhealthy": "Unhealthy",
    "degraded": "Degraded",
    "progressing": "Progressing",
    "missing": "Missing",
    "suspended": "Suspended",
    "unknown": "Unknown",
}
_STATE: Final = rf"(?P<state>{'|'.join(_STATES)})".replace(" ", r"\s")
_BY_STATE: Final = {"state": {"from": "{state}", "map": _STATES}}

VERSION: Final[list[MatchRuleJson]] = [
    {"pattern": rf"{_SEE}{_ARGO}version(?:\sof\sargo\s?cd)?", "arguments": {}}
]
LIST: Final[list[MatchRuleJson]] = [
    {"pattern": rf"{_SEE}{_ARGO}{_STATE}\s{_APPS}", "arguments": _BY_STATE},
    {"pattern": rf"{_SEE}{_ARGO}{_APPS}\s(?:that\s)?are\s{_STATE}", "arguments": _BY_STATE},
    {
        "pattern": rf"{_SEE}{_ARGO}{_APPS}\s(?:in|of)\sproject\s(?P<project>[a-z0-9-]{{1,253}})",
        "arguments": {"project": "{project}"},
    },
    {"pattern": rf"{_SEE}{_ARGO}{_APPS}", "arguments": {}},
]
GET: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"{_SEE}{_ARGO}(?:app|application)\s"
        r"(?P<name>[a-z0-9](?:[a-z0-9./-]{0,300}[a-z0-9])?)",
        "arguments": _APPLICATION,
    }
]
HEALTH: Final[list[MatchRuleJson]] = [
    {"pattern": rf"{_SEE}{_ARGO}(?:health|status){_OF}{_APP}", "arguments": _APPLICATION}
]
HISTORY: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"{_SEE}{_ARGO}(?:(?:deployment|release)\s)?history{_OF}{_APP}",
        "arguments": _APPLICATION,
    }
]
DIFF: Final[list[MatchRuleJson]] = [
    {"pattern": rf"{_SEE}{_ARGO}diff{_OF}{_APP}", "arguments": _APPLICATION}
]
SYNC: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"(?:please\s)?sync\s{_APP}"
        r"(?:\s(?:to|at)\s(?:revision\s)?(?P<revision>[\w./-]{1,200}))?",
        "arguments": {"application": "{name}", "revision": {"from": "{revision}", "default": ""}},
    }
]
