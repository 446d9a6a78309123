"""The questions that each Argo CD tool answers: patterns that the `rules` model reads.

They are in RE2's syntax. The first pattern of a tool that matches wins.
"""

from typing import Final

from trunkline_agents.mcp_server import MatchRuleJson

_PLEASE: Final = r"^(?:(?:please|can\syou|could\syou)\s+)?"
_SEE: Final = (
    r"(?:(?:show|get|give|tell|print|display|list|describe|zeige?|what(?:'s|\sis|\sare)?|which"
    r"|are\sthere|is\sthere|do\swe\shave|have\swe(?:\sgot)?|how\smany(?:\sof)?|check|see|find)"
    r"(?:\sme)?(?:\sabout)?\s+)?"
)
_THE: Final = (
    r"(?:(?:the|all|any|my|our|these|current|currently|running|die|den|argo|argo\s?cd"
    r"|argo\s?cd's)\s+)*"
)
_APP_WORD: Final = r"(?:apps?|applications?|deployments?)"
_NAME: Final = r"(?P<name>[a-z0-9](?:[a-z0-9./-]{0,300}[a-z0-9])?)"
_APP: Final = rf"{_THE}(?:{_APP_WORD}\s+)?{_NAME}(?:\s+{_APP_WORD})?"
_OF: Final = r"\s+(?:of|for|in|on|about)\s+"
_END: Final = r"\s*[?.!]?$"
_STATES: Final = (
    r"(?P<state>out[\s-]of[\s-]sync|outofsync|unhealthy|degraded|progressing|missing|suspended|"
    r"unknown|healthy|not\s(?:healthy|ok|okay|fine|well|synced|in\ssync)|failing|failed|broken"
    r"|unwell|down|synced|in\ssync)"
)
# Asked of everything, each names the applications that are not so.
_WELL: Final = (
    r"(?P<well>healthy|ok|okay|fine|well|good|alright|running|up|green|synced|in"
    r"\ssync|up\sto\sdate)"
)
_SYNC_WORDS: Final = ("synced", "in sync", "up to date")
_HEALTH_WORDS: Final = (
    "healthy",
    "ok",
    "okay",
    "fine",
    "well",
    "good",
    "alright",
    "running",
    "up",
    "green",
)
_UNHEALTHY: Final = dict.fromkeys(_HEALTH_WORDS, "Unhealthy")
_BY_SYNC: Final = {
    "out of sync": "OutOfSync",
    "out-of-sync": "OutOfSync",
    "outofsync": "OutOfSync",
    "synced": "Synced",
    "in sync": "Synced",
    "not synced": "OutOfSync",
    "not in sync": "OutOfSync",
}
_BY_HEALTH: Final = {
    "unhealthy": "Unhealthy",
    "degraded": "Degraded",
    "progressing": "Progressing",
    "missing": "Missing",
    "suspended": "Suspended",
    "unknown": "Unknown",
    "healthy": "Healthy",
    **dict.fromkeys(("not healthy", "not ok", "not okay", "not fine", "not well"), "Unhealthy"),
    **dict.fromkeys(("failing", "failed", "broken", "unwell", "down"), "Unhealthy"),
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

_EVERYTHING: Final = (
    rf"{_PLEASE}(?:is|are)\s(?:everything|all|all\sof\sthem|(?:all|all\sof)?\s?{_THE}{_APP_WORD})"
    r"(?:\s(?:in|on)\s(?:argo\s?cd|argo|the\scluster))?\s"
)

LIST: Final[list[MatchRuleJson]] = [
    {
        "pattern": r"^what(?:'s|\sis|\sare)?\s(?:currently\s)?(?:deployed|running|installed)"
        r"(?:\s(?:in|on|by|with)\s(?:the\s)?(?:argo\s?cd|argo|cluster))?" + _END,
        "arguments": {},
    },
    {
        "pattern": rf"{_EVERYTHING}{_WELL}(?:\s(?:in|on)\s(?:argo\s?cd|argo|the\scluster))?{_END}",
        "arguments": {
            "state": {"from": "{well}", "map": dict.fromkeys(_SYNC_WORDS, "OutOfSync") | _UNHEALTHY}
        },
    },
    {
        "pattern": rf"{_PLEASE}{_SEE}{_THE}{_APP_WORD}(?:\s(?:that|which))?(?:\s(?:is|are))?(?:"
        rf"\scurrently)?"
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

_ABOUT: Final = (
    r"(?:(?:the\s)?(?:(?:more|some|all)\s)?(?:details?|info|information|more"
    r"|everything|summary)\s+(?:of|for|on|about)\s+)"
)

GET: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"{_PLEASE}{_SEE}{_ABOUT}?{_THE}{_APP_WORD}\s+{_NAME}{_END}",
        "arguments": _APPLICATION,
    },
    {
        "pattern": rf"{_PLEASE}{_SEE}{_ABOUT}{_APP}{_END}",
        "arguments": _APPLICATION,
    },
    {
        "pattern": rf"^where\s(?:is|are)\s{_APP}\s(?:deployed|running|installed){_END}",
        "arguments": _APPLICATION,
    },
    {
        "pattern": r"^(?:what|which)\s(?:version|revision|commit|tag)\s(?:of\s)?(?:is|does|has)?\s*"
        rf"{_THE}{_NAME}\s+{_APP_WORD}(?:\s(?:on|at|run|running|deployed|have))*{_END}",
        "arguments": _APPLICATION,
    },
]

HEALTH: Final[list[MatchRuleJson]] = [
    {
        "pattern": rf"{_PLEASE}{_SEE}{_THE}(?:health|status|state)(?:\sstatus)?{_OF}{_APP}{_END}",
        "arguments": _APPLICATION,
    },
    {
        "pattern": rf"{_PLEASE}(?:how|how's|is)\s(?:is\s)?{_APP}"
        rf"(?:\s(?:still\s)?(?:doing|going|running|working|ok|okay|fine|well|up|alive"
        rf"|{_STATES}))?{_END}",
        "arguments": _APPLICATION,
    },
    {
        "pattern": rf"^(?:what(?:'s|\sis)\s(?:wrong|up|the\s(?:matter|problem|issue))|any\s"
        rf"(?:problems?|issues?)"
        rf"|are\sthere\s(?:any\s)?(?:problems?|issues?))\s(?:with|in)\s{_APP}{_END}",
        "arguments": _APPLICATION,
    },
    {
        "pattern": rf"^why\s(?:is|are)\s{_APP}\s(?:unhealthy|degraded|progressing|missing"
        rf"|failing|broken|down){_END}",
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
        "pattern": rf"^(?:when|by\swhom|how\soften)\s(?:was|were|has|have)\s{_APP}\s(?:been\s)?"
        rf"(?:last\s)?"
        rf"(?:deployed|synced|released|updated)(?:\slast)?{_END}",
        "arguments": _APPLICATION,
    },
    {
        "pattern": r"^when\sdid\s(?:i|we|you|they|someone)\s(?:last\s)?(?:deploy|sync|release"
        r"|update)\s"
        rf"{_APP}(?:\slast)?{_END}",
        "arguments": _APPLICATION,
    },
    {
        "pattern": rf"^who\s(?:has\s)?(?:last\s)?(?:deployed|synced|released|updated)\s{_APP}(?:"
        rf"\slast)?{_END}",
        "arguments": _APPLICATION,
    },
    {
        "pattern": rf"{_PLEASE}{_SEE}{_THE}(?:(?:last|latest|recent|past|previous)\s)?"
        rf"(?:deployments?|releases?|syncs){_OF}{_APP}{_END}",
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
    {
        "pattern": r"^what\s(?:would|will|does)\s(?:change|happen)\s(?:if|when)\s(?:i|we|you"
        r"|someone)\s"
        rf"(?:sync|synced|deploy|deployed|redeploy|redeployed)\s{_APP}{_END}",
        "arguments": _APPLICATION,
    },
    {
        "pattern": r"^what\s(?:would|will|does)\s(?:a|the)\s(?:sync|deployment)\sof\s"
        rf"{_APP}\s(?:change|do){_END}",
        "arguments": _APPLICATION,
    },
    {
        "pattern": r"^what(?:'s|\sis|\shas)?\s(?:different|changed|out\sof\ssync|not\ssynced)\s"
        r"(?:in|with|about|for)\s"
        rf"{_APP}{_END}",
        "arguments": _APPLICATION,
    },
    {
        "pattern": rf"^why\s(?:is|are)\s{_APP}\s(?:out[\s-]of[\s-]sync|not\s(?:synced|in"
        rf"\ssync)){_END}",
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
