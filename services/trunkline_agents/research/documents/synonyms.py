"""Words of everyday questions that documents say in other words: "holiday" finds "annual leave"."""

from typing import Final

# Each line is one meaning, in the singular: the search finds other forms of the words by itself.
_GROUPS: Final = (
    "holiday vacation leave",
    "salary pay wage payroll income",
    "pay spend cost price fee charge rate amount",
    "refund reimburse compensate expense receipt claim",
    "most maximum limit",
    "least minimum",
    "sick ill illness sickness unwell fever flu",
    "note certificate",
    "doctor physician medical",
    "phone call telephone number extension",
    "call ring contact inform",
    "food meal lunch catering",
    "car vehicle automobile",
    "bike bicycle cycle",
    "plane flight fly airline",
    "travel trip journey travelling",
    "hotel accommodation lodging",
    "km kilometre kilometer mileage",
    "wifi wireless wlan",
    "guest visitor",
    "boss manager supervisor lead",
    "colleague coworker employee staff worker",
    "computer laptop pc notebook",
    "program software application app",
    "wear clothes clothing dress",
    "buy purchase order procure",
    "begin start commence",
    "end finish expire expiry",
    "quit resign terminate cancel termination",
    "old age aged",
    "new introduce add release",
    "change new update modify",
    "fix repair correct solve",
    "broken defect fault crash",
    "remove delete drop",
    "send submit hand deliver ship",
    "carry transport ship deliver",
    "keep retain store stored",
    "child children kid parental",
    "baby parental maternity paternity",
    "home remote remotely",
    "money budget allowance",
    "month monthly",
    "year annual yearly",
    "week weekly",
    "day daily",
    "hour hourly time",
    "rule policy regulation",
    "allow permit may",
    "need require must compulsory mandatory",
    "stolen theft steal lost lose",
    "room office meeting",
    "document file paper",
    "supplier vendor contractor",
    "customer client",
    "company firm business employer",
    "bill invoice payment",
    "school education training course",
    "dog pet animal",
    "bake cook oven",
    "ready done make prepare",
    "length long duration last",
    "deadline due until latest",
    "sign-in login log",
    "backup copy saved",
    "smoke smoking cigarette",
    "wed marry marriage wedding",
    "help support assistance desk",
    "open opening",
    "closed close shut",
    "address location located",
    "mail email e-mail",
    "weekend saturday sunday",
)


def _build_table() -> dict[str, tuple[str, ...]]:
    table: dict[str, dict[str, None]] = {}
    for group in _GROUPS:
        words = group.split()
        for word in words:
            table.setdefault(word, {}).update(dict.fromkeys(words))
    return {
        word: tuple(other for other in others if other != word) for word, others in table.items()
    }


_SYNONYMS: Final = _build_table()
_ENDINGS: Final = (
    ("ies", "y"),
    ("ing", ""),
    ("ing", "e"),
    ("ed", ""),
    ("ed", "e"),
    ("es", ""),
    ("s", ""),
)


def find_synonyms(word: str) -> tuple[str, ...]:
    """Return other words for a word, or for the word that it is a form of."""
    stems = (word.removesuffix(old) + new for old, new in _ENDINGS if word.endswith(old))
    return next((_SYNONYMS[form] for form in (word, *stems) if form in _SYNONYMS), ())
