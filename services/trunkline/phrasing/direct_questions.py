"""Turns an indirect question into a direct one.

After "tell me", a question has the order of a statement: "what 12 times 12 is", "how many euros I'd
get", "whether 97 is prime".
"""

import re
from collections.abc import Sequence
from typing import Final

WORD: Final = re.compile(r"[^\W_]+(?:['\N{RIGHT SINGLE QUOTATION MARK}][^\W_]+)?")
_VERBS: Final = frozenset(("is", "are", "was", "were"))
_QUESTION_WORDS: Final = frozenset(("what", "how", "who", "where", "when", "which", "why", "whose"))
_CONDITIONS: Final = frozenset(("whether", "if"))
# A question that has one of these behind its question word is in the right order.
_INVERTED: Final = _VERBS | {
    *("do", "does", "did", "can", "could", "will", "would", "should", "has", "have")
}
_PRONOUNS: Final = ("i", "you", "we", "it", "they", "one")
# Pronouns with a verb, and the verb of the question: "I'd get" asks "would I get".
_SUBJECTS: Final[dict[tuple[str, ...], str]] = {
    (pronoun, verb): verb
    for pronoun in _PRONOUNS
    for verb in ("would", "will", "can", "could", "should", "must")
}
_SUBJECTS.update({(f"{pronoun}'d",): "would" for pronoun in _PRONOUNS})
_SUBJECTS.update({(f"{pronoun}'ll",): "will" for pronoun in _PRONOUNS})
_SUBJECT_OPENERS: Final = frozenset(("a", "an", "one", "the", "there", *_PRONOUNS))
# With "how", these are one question word: "how long the journey is".
_DEGREES: Final = frozenset(
    (
        *("long", "far", "big", "large", "tall", "high", "old", "often", "fast", "soon", "heavy"),
        *("quickly", "late", "early", "deep", "wide", "expensive", "much", "many"),
    )
)
# With "what" or "which", these are: "which day 1 May is".
_ASKED_NOUNS: Final = frozenset(
    ("day", "weekday", "date", "time", "percentage", "percent", "share", "fraction", "number")
)
# Behind "there are", as in "how many minutes there are in a week".
_PLACE_WORDS: Final = frozenset(
    ("in", "on", "at", "to", "per", "between", "from", "for", "of", "left", "within", "until")
)
_QUESTIONS_FOR_THINGS: Final = (["how", "many"], ["how", "much"], ["what"], ["which"])
_LONGEST_COUNTED_WORDS: Final = 5
# Behind a noun: "how much 30 pounds would be" asks "how much would 30 pounds be".
_FUTURES: Final = frozenset((("would", "be"), ("will", "be")))


# "how do you factor 6x - 18"
_METHOD: Final = re.compile(
    r"how\s(?:do|would|should|can|could)\s(?:i|you|we|one)\s(?P<action>[^?\n]{1,300})\W{0,4}",
    re.IGNORECASE,
)
# "if I raise 1200 by 4 percent, what do I get"
_CASE: Final = re.compile(
    r"(?:if|when)\s(?:i|you|we|one)\s(?P<action>[^?\n]{1,300}?)[,;]?\s(?:then\s)?(?:what|how\smuch)\s"
    r"(?:(?:do|will|would)\s(?:i|you|we|one)\s(?:get|have|pay)|is(?:\s(?:that|it|left))?)"
    r"(?:\sleft|\sthen)?\W{0,4}",
    re.IGNORECASE,
)


def ask_for_action(text: str) -> str | None:
    """Return what a question supposes that one does; None if it asks more than what one gets.

    "if I raise 1200 by 4 percent, what do I get" asks to "raise 1200 by 4 percent", and "how do you
    factor 6x - 18" to "factor 6x - 18".
    """
    case = _CASE.fullmatch(text) or _METHOD.fullmatch(text)
    return case["action"] if case else None


def split_spans(text: str) -> tuple[list[tuple[int, int]], list[str]]:
    """Return the places of the words, and the words in lower case."""
    spans = [match.span() for match in WORD.finditer(text)]
    words = [
        text[start:end].lower().replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
        for start, end in spans
    ]
    return spans, words


def ask_directly(question: str) -> str:
    """Return an indirect question as a direct one: "what 2+2 is" asks "what is 2+2"."""
    spans, words = split_spans(question)
    if len(words) < 3 or words[0] not in _QUESTION_WORDS | _CONDITIONS:
        return question
    if there := _find_there(words):
        return _move_verb(question, spans, there + 1, there)
    if words[0] in _QUESTION_WORDS and (moved := _move_modal(question, spans, words)):
        return moved
    verb = next((n for n, word in enumerate(words) if word in _VERBS), 0)
    is_condition = words[0] in _CONDITIONS
    opening = _count_opening(words)
    if words[:2] == ["how", "many"]:
        # What is counted stays before the verb: "how many grams are 3 ounces". Without a subject
        # behind it, the order is right: "how many ounces are in a pound".
        opening = next((n for n in range(3, verb) if _begins_subject(words[n])), verb)
    if verb <= opening - is_condition or words[opening] in _INVERTED:
        return question
    return _move_verb(question, spans, verb, 0 if is_condition else opening)


def is_indirectly_asked(words: Sequence[str]) -> bool:
    """Return whether a question is in the order that it has behind "tell me".

    "what 12 times 12 is", "how many minutes there are in a week"
    """
    if len(words) < 3 or words[0] not in _QUESTION_WORDS:
        return False
    if _find_there(words):
        return True
    if words[-1] not in _VERBS:
        return False
    between = words[_count_opening(words) : -1]
    # "What is there is" asks already.
    return bool(between) and not _INVERTED.intersection(between)


def _find_there(words: Sequence[str]) -> int:
    """Return the place of "there" in "how many minutes there are in a week", or 0."""
    opening = 2 if words[0] == "how" else 1
    if words[:opening] not in _QUESTIONS_FOR_THINGS:
        return 0
    # What is counted is between the question word and "there".
    for number in range(opening + 1, min(opening + _LONGEST_COUNTED_WORDS, len(words) - 1)):
        if words[number - 1] in _INVERTED:
            return 0
        is_end = number + 2 == len(words) or words[number + 2] in _PLACE_WORDS
        if words[number] == "there" and words[number + 1] in _VERBS:
            return number if is_end else 0
    return 0


def _begins_subject(word: str) -> bool:
    return word.isdecimal() or word in _SUBJECT_OPENERS


def _count_opening(words: Sequence[str]) -> int:
    """Return the length of the question word: "how much" and "which day" are whole ones."""
    is_degree = words[0] == "how" and words[1] in _DEGREES
    return 2 if is_degree or (words[0] in {"what", "which"} and words[1] in _ASKED_NOUNS) else 1


def _move_verb(question: str, spans: Sequence[tuple[int, int]], verb: int, opening: int) -> str:
    """Move a verb behind the question word, or in place of "whether" if there is none."""
    head = question[: spans[opening - 1][1]] if opening else ""
    subject = question[spans[max(opening, 1) - 1][1] : spans[verb][0]]
    parts = (head, question[slice(*spans[verb])], subject)
    return f"{' '.join(part.strip() for part in parts if part)}{question[spans[verb][1] :]}"


def _move_modal(
    question: str, spans: Sequence[tuple[int, int]], words: Sequence[str]
) -> str | None:
    """Return "how many euros would I get" of "how many euros I'd get"; None if it is no such."""
    opening = _count_opening(words)
    for number in range(1, len(words)):
        if number > opening and tuple(words[number : number + 2]) in _FUTURES:
            return _move_verb(question, spans, number, opening)
        # A question that asks already: "what would you get if I could".
        if words[number] in _INVERTED:
            return None
        for length in (1, 2):
            if verb := _SUBJECTS.get(tuple(words[number : number + length])):
                start, end = spans[number][0], spans[number + length - 1][1]
                pronoun = WORD.sub(_remove_ending, question[slice(*spans[number])])
                return f"{question[:start]}{verb} {pronoun}{question[end:]}"
    return None


def _remove_ending(word: re.Match[str]) -> str:
    return re.split("['\N{RIGHT SINGLE QUOTATION MARK}]", word[0])[0]
