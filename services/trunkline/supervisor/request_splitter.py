"""Splits a request into steps that agents can take separately. Pure.

A request is split only where each part is routed with good confidence or is a question. Otherwise
it stays whole.
"""

import re
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass

from trunkline.calls.outcome import clip
from trunkline.errors import TrunklineError
from trunkline.phrasing import (
    MEASURE_PAIR,
    asks_for_thing,
    find_numbers,
    find_pair,
    find_topic,
    is_courtesy,
    resolve_amounts,
    split_ellipsis,
    states_number,
    strip_courtesy,
    write_digits,
)
from trunkline.supervisor.references import format_step_id, has_pronoun, has_reference, write_number
from trunkline.supervisor.router import SEARCHED_CHARS, RoutedText, Router, address_decision
from trunkline.supervisor.steps import Step
from trunkline.supervisor.tags import split_words
from trunkline.v1 import event_pb2

MAX_STEPS = 16
# A request with more separators is a text and not a list of questions.
_MAX_PIECES = 48
_ANNOUNCEMENT_CHARS = 60

_SEPARATOR = re.compile(
    r"(?:[;\n]|,(?=\s)|(?<=[?.])(?=\s))(?:\s{0,4}(?<!\w)(?:and|then|also|afterwards|after\sthat)(?=[\s,]))*"
    r"|(?<=\s)(?:and|then|also)(?=\s)(?:\s{0,4}(?:then|also|afterwards|after\sthat)(?=[\s,]))*",
    re.IGNORECASE,
)
# A question behind a statement: "I lost my key, who do I call".
_LAST_QUESTION = re.compile(
    r"[,;.]\s{1,4}(?:(?:at|by|for|from|in|on|since|to|until|up\sto|with|within)\s(?=wh|how))?"
    r"(?:what|whom?|where|when|which|why|how|is|are|do|does|can|may|must)\s",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"\d[\d.,]*")
_AMOUNT_ALONE = re.compile(r"\W{0,4}\d[\d.,]*\s?(?:[^\W\d]{1,20}|[$€£])?\W{0,4}")
_SHARE = re.compile(r"\d\s?(?:%|per ?cent\b)", re.IGNORECASE)
# A tip or a tax without the number that it is of: "split 187 between 6 people, 10% tip first".
_SURCHARGE = re.compile(
    r"\W{0,4}(?:(?:with|plus|after|including|add|and)\s)?(?:an?\s)?\d[\d.]*\s?(?:%|per ?cent)\s"
    r"(?:tip|tax|vat|service|discount|off)\b[^\d]*",
    re.IGNORECASE,
)
_SORTING = frozenset(("sort", "order", "arrange", "rank", "put"))
_SORTED = frozenset(("the", "these", "numbers", "values", "following"))
_THEN = re.compile(r"\b(?:then|afterwards|after\sthat)\b", re.IGNORECASE)
# Before "then": "add 3 and 4 first, and then …". "Largest first" is an order.
_FIRST = re.compile(r"(?<!est)\s(?:first|please\sfirst|first\splease)\W*$", re.IGNORECASE)
# Quoted text is one value: "translate 'read and sign' into German".
_QUOTED = re.compile(r"""(?<!\w)(?:'[^'\n]{1,200}'|"[^"\n]{1,200}")(?!\w)""")
_EDGE_CHARS = " \t\r\n,;"
_JOINING_WORDS = (" and", " then", " also")
_QUESTION_WORDS = frozenset(
    ("what", "who", "whom", "whose", "where", "when", "why", "which", "how")
)
# A question word may follow one or two of these: "until when", "up to how much".
_QUESTION_PREPOSITIONS = frozenset(
    (
        *("about", "above", "after", "against", "as", "at", "before", "below", "between", "by"),
        *("during", "for", "from", "in", "into", "of", "on", "out", "over", "since", "through"),
        *("till", "to", "under", "until", "up", "upon", "via", "with", "within", "without"),
    )
)
_MOST_PREPOSITIONS = 2
# A part that begins with one of these says where an answer is looked for.
_PREPOSITIONS = frozenset(
    ("according", "as", "in", "from", "per", "based", "regarding", "concerning", "following")
)
# A part that begins with one of these states what the next part asks about.
_STATEMENT_OPENERS = frozenset(
    (
        "i",
        "we",
        "my",
        "our",
        "there",
        "if",
        "say",
        "suppose",
        "a",
        "an",
        "the",
        "someone",
        "somebody",
    )
)
# The words after one of these name at least two things.
_OF_SEVERAL = frozenset(("average", "mean", "sum", "product", "difference", "between", "ratio"))
# A part that begins with one of these continues a formula: "a 60 euro coat, reduced by a third".
_CONTINUATIONS = frozenset(
    (
        *("reduced", "increased", "decreased", "lowered", "raised", "discounted", "divided"),
        *("multiplied", "plus", "minus", "times", "shared"),
    )
)
# Words of questions for what follows from numbers stated before.
_RESULTS = frozenset(
    (
        *(
            "i",
            "we",
            "each",
            "one",
            "it",
            "total",
            "sum",
            "price",
            "cost",
            "rest",
            "change",
            "speed",
        ),
        *("everyone", "everybody", "owe"),
        *("percent", "area", "much", "end", "arrive"),
        *("average", "that", "left", "remains", "profit", "difference", "they", "percentage"),
    )
)
_TOTALS = frozenset(("total", "altogether", "all", "sum"))
# The next part asks about the case that such a part assumes.
_CONDITIONS = frozenset(("if", "suppose", "assuming", "assume", "given", "when", "say"))
_VARIABLE_QUESTION = re.compile(
    r"\W{0,4}(?:then )?(?:what(?:'s| is| are)|find|solve for)(?: the values? of)? ([a-z])\W{0,4}",
    re.IGNORECASE,
)
_FOLLOW_UPS = frozenset((("what", "about"), ("how", "about")))
_OPENERS = _QUESTION_WORDS | {"is", "are", "can", "could", "please", "give", "tell", "show", "find"}
_YES_OR_NO_OPENERS = frozenset(
    (
        *("is", "are", "am", "was", "were", "do", "does", "did", "has", "have"),
        *("can", "could", "may", "must", "should", "will", "would"),
    )
)
_OPEN_QUESTION_OPENERS = _QUESTION_WORDS | {
    *_YES_OR_NO_OPENERS,
    *("tell", "about", "explain", "describe", "summarise", "summarize"),
}


@dataclass(slots=True)
class _Piece:
    """A part of the request, from `begin` to `end`, and its route."""

    begin: int
    end: int
    is_after: bool
    routed: RoutedText


@dataclass(frozen=True, slots=True)
class PlanResult:
    """The result of planning: steps, a question to the user, or neither."""

    steps: tuple[Step, ...] = ()
    question: str = ""
    """The question for the user, instead of steps."""
    problem: str = ""
    """The reason why there is neither."""
    failure: TrunklineError | None = None
    """The error of a turn in which no agent fits by the scores either."""
    written_text: str = ""
    """The part of the plan's text that has been written."""


def names_agents(text: str, router: Router) -> bool:
    """Return whether a request names its agents, by address or by a command."""
    if router.find_unknown_address(text) or router.find_addresses(text[:SEARCHED_CHARS]):
        return True
    return router.route(text).is_explicit


def is_open_question(text: str) -> bool:
    """Return whether a text is a whole question, which no earlier one has to complete."""
    if find_topic(text[:SEARCHED_CHARS]) or asks_for_thing(text[:SEARCHED_CHARS]):
        return True
    words = split_words(strip_courtesy(text[:SEARCHED_CHARS]))
    if len(words) < 3 or tuple(words[:2]) in _FOLLOW_UPS:
        return False
    return (
        _find_opener(words) in _OPEN_QUESTION_OPENERS
        or text.rstrip().endswith("?")
        or _LAST_QUESTION.search(text) is not None
    )


def split_request(text: str, router: Router) -> tuple[Step, ...]:
    """Split a request into steps, at least one, in its order. A step may have no agent.

    The default agent is not set here: see `Router.apply_default`.
    """
    unknown_name = router.find_unknown_address(text)
    if unknown_name:
        route = event_pb2.RouteDecided(reasons=[f"no agent here is named {unknown_name}"])
        return (_build_step(1, text, route),)
    addresses = router.find_addresses(text[:SEARCHED_CHARS])
    if addresses:
        return _build_steps(text, _split_at_addresses(text, addresses, router))
    return _build_steps(text, _split_pieces(text, 0, len(text), router))


def _split_at_addresses(
    text: str, addresses: Sequence[re.Match[str]], router: Router
) -> list[_Piece]:
    """Split at addresses. The text before the first address is split as usual."""
    start = addresses[0].start()
    prefix = _strip_conjunction(text[:start])
    pieces = _split_pieces(text, 0, len(prefix), router) if split_words(prefix) else []
    separator = text[len(prefix) : start]
    for match, next_match in zip(addresses, [*addresses[1:], None], strict=True):
        end = next_match.start() if next_match else len(text)
        body = _strip_conjunction(text[match.end() : end])
        stop = match.end() + len(body)
        decision = address_decision(router.find_name(match[1]))
        is_after = bool(_THEN.search(separator)) or has_reference(body)
        pieces.append(
            _Piece(
                match.end(), stop, is_after, RoutedText(decision, has_verb=True, is_explicit=True)
            )
        )
        separator = text[stop:end]
    return pieces


def _strip_conjunction(text: str) -> str:
    """Return the text without a trailing conjunction: commas, "and", "then"."""
    # Works on positions: repeated copies would take a second for a hostile request.
    end = _trim_end(text, len(text))
    while text[max(0, end - 5) : end].lower().endswith(_JOINING_WORDS):
        end = _trim_end(text, text.rfind(" ", 0, end))
    return text[:end]


def _trim_end(text: str, end: int) -> int:
    """Return the end of text[:end] without trailing separators."""
    while end and text[end - 1] in _EDGE_CHARS:
        end -= 1
    return end


def _split_pieces(text: str, begin: int, end: int, router: Router) -> list[_Piece]:
    """Split where both parts can be steps. Any other part is joined to the part before it."""
    begin = _skip_announcement(text, begin, end)
    fragments = _find_fragments(text, begin, end) if end - begin <= SEARCHED_CHARS else []
    if not 0 < len(fragments) <= _MAX_PIECES:
        return [_Piece(begin, end, is_after=False, routed=router.route(text[begin:end]))]
    pieces: list[_Piece] = []
    for number, (start, stop, is_after) in enumerate(fragments):
        fragment = text[start:stop]
        routed = router.route(fragment)
        if not pieces:
            pieces.append(_Piece(start, stop, is_after=False, routed=routed))
        elif not _is_place_behind(text, pieces[-1], fragments[number:]) and _stands_alone(
            text, fragment, routed, pieces[-1], router
        ):
            if not routed.agent and has_reference(fragment):
                routed = router.route(write_number(fragment))
            if _is_preface(text, pieces[-1]):
                preface = pieces[-1]
                if preface.routed.agent:
                    routed = router.route(text[preface.begin : stop])
                pieces[-1] = _Piece(preface.begin, stop, preface.is_after, routed)
            else:
                pieces.append(_Piece(start, stop, is_after or has_reference(fragment), routed))
        else:
            previous = pieces[-1]
            merged = router.route(text[previous.begin : stop])
            pieces[-1] = _Piece(previous.begin, stop, previous.is_after, merged)
    return pieces


def _skip_announcement(text: str, begin: int, end: int) -> int:
    """Return where the questions begin that a text announces: "three quick ones: what is …"."""
    colon = text.find(":", begin, min(end, begin + _ANNOUNCEMENT_CHARS))
    return colon + 1 if colon > 0 and is_courtesy(text[begin:colon]) else begin


def _find_fragments(text: str, begin: int, end: int) -> list[tuple[int, int, bool]]:
    """Return the parts between separators, and whether "then" precedes each."""
    fragments = []
    is_after = False
    joined = [
        (begin + number.start, begin + number.end) for number in find_numbers(text[begin:end])
    ]
    pairs = [*MEASURE_PAIR.finditer(text, begin, end)]
    if pair := find_pair(text[begin:end]):
        joined.append((begin + pair.start("joint"), begin + pair.end("joint")))
    joined += [quoted.span() for quoted in _QUOTED.finditer(text, begin, end)]
    joined = sorted([*joined, *(measures.span("joint") for measures in pairs)])
    for match in _SEPARATOR.finditer(text, begin, end):
        # "one hundred and twenty", "March 2, 2020", "both 4 and 5"
        number = bisect(joined, (match.start(), end)) - 1
        if number >= 0 and match.start() < joined[number][1]:
            continue
        if text[begin : match.start()].strip(_EDGE_CHARS):
            fragments.append((begin, match.start(), is_after))
            is_after = False
        is_after = is_after or bool(_THEN.search(match[0]))
        begin = match.end()
    if text[begin:end].strip(_EDGE_CHARS) or not fragments:
        fragments.append((begin, end, is_after))
    return fragments


def _stands_alone(
    text: str, fragment: str, routed: RoutedText, previous: _Piece, router: Router
) -> bool:
    """Return whether a fragment is its own step, and not a part of the text before it."""
    words = split_words(fragment)
    if _asks_about(text[previous.begin : previous.end], fragment, routed.agent):
        return False
    if _follows_up(fragment, previous, router):
        return True
    if not routed.agent or not words:
        # "but how quickly must I report it", "tell me by when it is due"
        direct = strip_courtesy(fragment)
        asked = split_words(direct)
        return (
            _is_question(asked) or _is_yes_or_no_question(direct, asked) or asks_for_thing(fragment)
        )
    if routed.is_explicit:
        return len(words) > 1
    has_digit = any(word.isdecimal() for word in split_words(write_digits(fragment)))
    if routed.agent != previous.routed.agent:
        return has_digit or len(words) > 1
    is_call = fragment.strip().casefold().startswith(f"{words[0]}(")
    if words[0] in _OPENERS or (not is_call and router.has_opener(routed.agent, words[0])):
        return len(words) > 1
    # "integrate x^2 and x^3": the second part has no verb, so splitting would lose it.
    is_share = _SHARE.search(fragment) is not None and len(_NUMBER.findall(fragment)) > 1
    return has_digit and (routed.has_verb or not previous.routed.has_verb or is_share)


def _follows_up(fragment: str, previous: _Piece, router: Router) -> bool:
    """Return whether a fragment asks about the result of the part before it.

    "what is 3 cubed, and is it odd"; "subtract 15 from 40 and double it"
    """
    if not previous.routed.agent or not has_pronoun(fragment):
        return False
    with_number = write_number(fragment)
    return router.route(with_number).agent == previous.routed.agent


def _asks_about(before: str, fragment: str, agent: str) -> bool:
    """Return whether a fragment asks about what the text before it states.

    "I have 20 dollars, how much is that in euros"; "2x = 14, what is x"
    """
    # "I have two questions: how long is it" is a question, and no statement.
    is_asking = not is_courtesy(before)
    words, asked = split_words(strip_courtesy(before)) if is_asking else [], split_words(fragment)
    variable = _VARIABLE_QUESTION.fullmatch(fragment)
    if variable:
        return variable[1].lower() in words
    if split_ellipsis(f"{before.strip(_EDGE_CHARS)}, {fragment.strip(_EDGE_CHARS)}"):
        return True
    if not words or not asked:
        return False
    if asked[0] not in _OPENERS and _lacks_number(before, fragment, words):
        return True
    if asked[0] in _CONTINUATIONS or _lacks_predicate(words):
        return True
    if words[0] in _CONDITIONS and not _QUESTION_WORDS.intersection(words):
        return True
    if resolve_amounts(f"{before.strip(_EDGE_CHARS)}. {fragment.strip(_EDGE_CHARS)}"):
        return True
    if _asks_for_total(words, asked) or _continues_statement(before, fragment, asked):
        return True
    if words[0] not in _STATEMENT_OPENERS and not _is_amount(before):
        return False
    # A statement asks nothing, so a question that fits no agent is about it.
    is_about_it = not agent and _is_question(asked) and not _QUESTION_WORDS.intersection(words)
    return is_about_it or has_reference(fragment) or _asks_for_share(words, fragment)


def _continues_statement(before: str, fragment: str, asked: Sequence[str]) -> bool:
    """Return whether words say more of what is stated, or ask for a number that follows from it.

    "a shirt costs 20 dollars and a tie 15 dollars, what do I pay"
    """
    if {*_QUESTION_WORDS, "whether"}.intersection(split_words(before)):
        return False
    # "I need 400 zloty" states a number, though "I need" may be polite.
    if not (states_number(before) or states_number(strip_courtesy(before))):
        return False
    if asked[0] == "how":
        return True
    if _QUESTION_WORDS.intersection(asked):
        is_lacking = not any(word.isdecimal() for word in asked)
        # Times, too: the train leaves at 8:40 and takes two hours, when do I arrive.
        is_result = asked[0] == "when" or bool(_RESULTS.intersection(asked))
        return asked[0] in {"what", "when"} and is_lacking and is_result
    return asked[0] in _STATEMENT_OPENERS or states_number(fragment)


def _is_amount(text: str) -> bool:
    """Return whether a text is an amount alone, about which the next part asks: "3200 euros"."""
    return _AMOUNT_ALONE.fullmatch(text) is not None


def _asks_for_share(before: Sequence[str], fragment: str) -> bool:
    """Return whether a fragment has no number but a percentage, and a number is stated before it.

    "dinner was 60 dollars, what is a 15% tip"
    """
    is_stated = any(word.isdecimal() for word in before) and not _QUESTION_WORDS.intersection(
        before
    )
    return is_stated and len(_NUMBER.findall(fragment)) == 1 and bool(_SHARE.search(fragment))


def _asks_for_total(before: Sequence[str], asked: Sequence[str]) -> bool:
    """Return whether a question without a number is for the total of numbers stated before it.

    "3 nights at 89 euros each, how much is it in total"
    """
    is_stated = any(word.isdecimal() for word in before) and not _QUESTION_WORDS.intersection(
        before
    )
    has_number = any(word.isdecimal() for word in asked)
    return is_stated and not has_number and _is_question(asked) and bool(_TOTALS & {*asked})


def _lacks_number(before: str, fragment: str, words: Sequence[str]) -> bool:
    """Return whether a text needs the numbers of the fragment behind it: "sort 3, 9 and 5"."""
    if _lacks_operand(before, words):
        return True
    if words[0] in _SORTING and fragment.strip()[:1].isdecimal():
        # "Order 2 apples and 3 pears" is for two agents.
        return all(word.isdecimal() or word in _SORTED for word in words[1:])
    is_whole = _SURCHARGE.fullmatch(fragment) and re.search(r"\b(?:of|on|off)\s", fragment)
    return bool(_SURCHARGE.fullmatch(fragment) and not is_whole and not _SHARE.search(before))


def _lacks_operand(text: str, words: Sequence[str]) -> bool:
    """Return whether a text has one number only and a word such as "average", which takes two."""
    if not _OF_SEVERAL.intersection(words) or "first" in words:
        return False
    return len(_NUMBER.findall(write_digits(text))) == 1


def _lacks_predicate(words: Sequence[str]) -> bool:
    """Return whether words are a verb and numbers only: "are 3/6", before "and 1/2 the same"."""
    # "what do 3", before "4 and 5 come to"
    verb = words[1:] if words[:2] == ["what", "do"] else words
    return (
        len(verb) > 1
        and verb[0] in _YES_OR_NO_OPENERS
        and all(word.isdecimal() for word in verb[1:])
    )


def _is_question(words: Sequence[str]) -> bool:
    if len(words) < 3:
        return False
    return _find_opener(words) in _QUESTION_WORDS or words[0] == "whether"


def _find_opener(words: Sequence[str]) -> str:
    """Return the question word of "by when" or "up to how much", else the first word."""
    for word in words[: _MOST_PREPOSITIONS + 1]:
        if word not in _QUESTION_PREPOSITIONS:
            return word if word in _QUESTION_WORDS else words[0]
    return words[0]


def _is_yes_or_no_question(fragment: str, words: Sequence[str]) -> bool:
    """Return whether a fragment is a whole question such as "can I smoke inside"."""
    # "May 17" is a date.
    is_opened = len(words) > 2 and words[0] in _YES_OR_NO_OPENERS and not words[1].isdecimal()
    return is_opened and not has_reference(fragment)


def _is_preface(text: str, piece: _Piece) -> bool:
    """Return whether a piece asks nothing, so that it belongs to the next piece."""
    body = text[piece.begin : piece.end]
    if is_courtesy(body):
        return True
    words = split_words(strip_courtesy(body))
    is_word = len(words) == 1 and not words[0].isdecimal()
    if is_word or _is_place(words):
        return True
    asks = _is_question(words) or _is_yes_or_no_question(body, words) or asks_for_thing(body)
    return not piece.routed.agent and not asks


def _is_place(words: Sequence[str]) -> bool:
    """Return whether words only say where an answer is looked for: "according to the handbook"."""
    return (
        bool(words)
        and words[0] in _PREPOSITIONS
        and not any(word.isdecimal() or word in _OPENERS for word in words)
    )


def _is_place_behind(
    text: str, previous: _Piece, fragments: Sequence[tuple[int, int, bool]]
) -> bool:
    """Return whether the first fragment says where the answer to the piece before it is.

    "what is the limit, according to the handbook"
    """
    (start, stop, _), *following = fragments
    if not _is_place(split_words(text[start:stop])) or _is_preface(text, previous):
        return False
    # Only a comma before it: after "and" or a full stop, it begins the next question. So it does
    # if only a comma is behind it.
    is_behind = text[previous.end : start].strip() == ","
    return is_behind and not (following and text[stop : following[0][0]].strip() == ",")


def _build_steps(text: str, pieces: Sequence[_Piece]) -> tuple[Step, ...]:
    steps: list[Step] = []
    for number, piece in enumerate(pieces, start=1):
        step_text = text[piece.begin : piece.end].strip(_EDGE_CHARS)
        if piece.routed.is_wrapped:
            # A command is the first word of its request.
            step_text = strip_courtesy(step_text)
        if number < len(pieces) and pieces[number].is_after:
            step_text = _FIRST.sub("", step_text)
        after = (steps[-1].id,) if piece.is_after and steps else ()
        steps.append(_build_step(number, step_text, piece.routed.decision, after=after))
    return tuple(steps)


def _build_step(
    number: int,
    text: str,
    route: event_pb2.RouteDecided,
    *,
    after: tuple[str, ...] = (),
) -> Step:
    route.step_id = format_step_id(number)
    route.text = clip(text)
    return Step(route.step_id, text, route, after)
