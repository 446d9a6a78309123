"""Completes a question that leaves out what the question before it says.

"what is 20% of 150, and of 200" asks "what is 20% of 150" and "what is 20% of 200". The last part
has a number and a word that says which number of the first part it replaces.
"""

import re
from collections.abc import Sequence

TEXT_LIMIT_CHARS = 400
"""Longer texts are texts with numbers, and no questions."""
_NUMBER = r"[$€£¥]?-?\d(?:[\d,]*\d)?(?:\.\d+)?(?:/\d+)?"
_SHARE = rf"(?:{_NUMBER}\s?(?:%|per\s?cent\b))"
_WORDS = r"(?:\s(?!and\b)[a-z]+){0,2}"
_PREPOSITION = r"(?:of|from|by|to|into|in|on|at|for|with)"
_VERB = r"(?:is|are|was|were|does|do|can|will)"
_END = r"(?:\s(?:too|also|as\swell|then|instead))?\W*"
# The last part of a text: behind "and" or a mark. In "5, 6 and of 7", the 7 is listed.
_LAST = re.compile(
    r"(?P<first>[^\n]*?\d[^\n]*?)"
    r"(?:(?P<mark>\s?[,;.?])\s{0,2}(?:and\s|also\s|or\s)?(?:also\s)?|\sand\s(?:also\s)?)"
    rf"(?:(?P<about>(?:what|how)\sabout\s(?:{_PREPOSITION}\s)?)|(?P<cue>{_PREPOSITION}|{_VERB})\s)?"
    rf"(?P<value>(?P<number>{_SHARE}|{_NUMBER})(?P<words>{_WORDS})){_END}",
    re.IGNORECASE,
)
_ANY_NUMBER = re.compile(rf"(?<![\w./,]){_SHARE}|(?<![\w./,]){_NUMBER}(?![\w./])")
# The number is the first of several: "sum of 5 and 6".
_LISTED = re.compile(rf"\s?(?:,|and)\s?{_NUMBER}", re.IGNORECASE)
# A share of the same number: "35% of 1,400, and 5% of it as well". Without the last words, it may
# be one of the result.
_SAME = re.compile(
    rf"(?P<first>[^\n]*?{_SHARE}\sof\s[^\n]*?\d[^\n]*?)(?:\s?[,;.?]\s?(?:and\s|also\s)?|\sand\s)"
    rf"(?:(?:what|how)\sabout\s)?(?P<share>{_SHARE})\sof\s"
    r"(?:(?:it|that|this)\s(?:as\swell|too|also)|the\ssame(?:\s[a-z]+)?(?:\s(?:as\swell|too"
    r"|also))?)\W*",
    re.IGNORECASE,
)
_SHARE_OF = re.compile(rf"{_SHARE}(?=\sof\s)", re.IGNORECASE)
_AND_THEN = (
    r"(?:\s?[,;.?]\s{0,2}(?:and\s|or\s|also\s)?|\sand\s(?:also\s)?)(?:(?:what|how)\sabout\s)?"
)
# Words of one kind, of which the last part names another one.
_KINDS = tuple(
    (
        re.compile(
            rf"(?P<first>[^\n]*?\b{kind}\b[^\n]*?){_AND_THEN}(?:in\s)?(?P<word>{kind}){_END}", re.I
        ),
        re.compile(rf"\b{kind}\b", re.IGNORECASE),
    )
    for kind in (
        r"(?:january|february|march|april|may|june|july|august|september|october|november"
        r"|december)",
        r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?",
    )
)
# Another unit: "how many centimetres are 6 feet, and in inches?"
_OTHER_UNIT = re.compile(
    r"(?P<head>[^\n]*?\bhow\smany\s)(?P<unit>[a-z]+)(?P<rest>\s(?:is|are|in|make)\s[^\n]*?\d[^"
    r"\n]*?)"
    rf"{_AND_THEN}(?:how\smany\s|in\s|to\s)(?P<other>[a-z]+){_END}",
    re.IGNORECASE,
)
# What is asked of the number of a yes-or-no question: "is 51 prime? If not, what are its factors?"
_ITS = re.compile(
    r"(?P<first>[^\n]*?\b(?:is|whether|if)\s(?:the\snumber\s)?(?P<number>\d[\d,]*)\s[^\n\d]*?)"
    r"(?:\s?[,;.?]\s{1,2}(?:and\s)?|\sand\s)"
    r"(?:(?:if\s(?:it\s)?(?:not|so|yes|no|is|is\snot|isn't)|otherwise)\s?,?\s)?"
    r"(?:(?:what|which)(?:\s(?:is|are)|'s)?|list|name|give\sme|show\sme|tell\sme|find)\s"
    r"(?:what\s)?(?:are\s)?(?:all\s)?its\s"
    r"(?P<asked>(?:prime\s)?(?:factors|divisors|factori[sz]ation)|(?:square|cube)(?:\sroot)?)"
    r"(?:\s(?:is|are))?\W*",
    re.IGNORECASE,
)
_YES_OR_NO = re.compile(rf"{_VERB}\s", re.IGNORECASE)


def split_ellipsis(text: str) -> Sequence[str]:
    """Return the question and the completed one that is behind it; [] if there is none."""
    if len(text) > TEXT_LIMIT_CHARS:
        return []
    if same := _SAME.fullmatch(text):
        question = same["first"].rstrip(" ,;.?")
        return [question, _SHARE_OF.sub(same["share"], question, count=1)]
    if its := _ITS.fullmatch(text):
        verb = "are" if its["asked"].lower().endswith("s") else "is"
        return [its["first"], f"what {verb} the {its['asked']} of {its['number']}"]
    last = _LAST.fullmatch(text)
    if last is None:
        return _split_other_word(text)
    question = last["first"].rstrip(" ,;.?")
    if not last["cue"]:
        # A share alone replaces another one: "what is 15% of 80? And 20%?"
        is_clear = last["about"] or (last["mark"] and re.fullmatch(_SHARE, last["value"]))
        # "Is 91 prime? And 89?"
        is_asked = "?" in (last["mark"] or "") and _YES_OR_NO.match(question)
        place = _find_number(question, last["number"]) if is_clear or is_asked else None
    elif re.fullmatch(_VERB, last["cue"], re.IGNORECASE):
        place = _find_behind_verb(question, last["cue"])
    else:
        place = _find_behind(question, last["cue"])
    if place is None:
        return []
    start, end = place
    tail = question[end:]
    if last["words"]:
        # The unit of the new number replaces that of the old one.
        tail = re.sub(rf"^{_WORDS}(?=$|\W)", "", tail, count=1, flags=re.IGNORECASE)
    return [question, f"{question[:start]}{last['value']}{tail}"]


def _split_other_word(text: str) -> Sequence[str]:
    """Return the question and the same one with another month, day of the week or unit."""
    if unit := _OTHER_UNIT.fullmatch(text):
        rest = unit["rest"].rstrip(" ,;.?")
        return [f"{unit['head']}{name}{rest}" for name in (unit["unit"], unit["other"])]
    for pattern, kind in _KINDS:
        if found := pattern.fullmatch(text):
            question = found["first"].rstrip(" ,;.?")
            named = list(kind.finditer(question))
            # "From Monday to Friday" has two, so that it is open which one is replaced.
            if len(named) == 1:
                start, end = named[0].span()
                return [question, f"{question[:start]}{found['word']}{question[end:]}"]
    return []


def _find_behind(question: str, word: str) -> tuple[int, int] | None:
    """Return the place of the last number behind a preposition."""
    pattern = rf"\b{word}\s({_SHARE}|{_NUMBER})(?![\w./])"
    found = list(re.finditer(pattern, question, re.IGNORECASE))
    if found and _LISTED.match(question, found[-1].end()):
        return None
    return found[-1].span(1) if found else None


def _find_behind_verb(question: str, verb: str) -> tuple[int, int] | None:
    """Return the place of the number that a question begins with, behind the same verb."""
    found = re.match(
        rf"{verb}\s(?:the\s(?:number|year)\s)?({_SHARE}|{_NUMBER})\s", question, re.IGNORECASE
    )
    return found.span(1) if found else None


def _find_number(question: str, number: str) -> tuple[int, int] | None:
    """Return the place of the number that another one of its kind replaces.

    That of a yes-or-no question is its subject, and that of another question is its last one.
    """
    is_share = re.fullmatch(_SHARE, number, re.IGNORECASE) is not None
    places = [
        found.span()
        for found in _ANY_NUMBER.finditer(question)
        if is_share == bool(re.fullmatch(_SHARE, found[0], re.IGNORECASE))
    ]
    if not places:
        return None
    return places[0] if _YES_OR_NO.match(question) else places[-1]
