"""Searches passages: by words, and also by meaning if there are vectors."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trunkline_agents.research.documents.passages import SearchHit
from trunkline_agents.research.documents.store import DocumentStore
from trunkline_agents.research.documents.vectors import VectorIndex

RESULT_LIMIT: Final = 20
"""Most passages that a search returns."""
_CANDIDATES: Final = 50
_TERM_LIMIT: Final = 24
# A passage must contain this share of the weight of the question's words.
_MIN_COVERAGE: Final = 0.4
# If no passage has that, passages with less and with two of the words may fit.
_MIN_COVERAGE_OF_TWO: Final = 0.24
# The best relevance is worth this share of all words.
_RELEVANCE_SHARE: Final = 0.3
# A person who names a number or a version means no other.
_NUMBER_WEIGHT: Final = 2.0
# The constant of reciprocal rank fusion, as its authors chose it (Cormack, Clarke, Büttcher 2009).
_FUSION_CONSTANT: Final = 60
# "3.2" and "C-1041" are words, because their parts mean nothing alone.
_WORD = re.compile(r"[^\W_]+(?:[-.,:/](?=[^\W_]*\d)[^\W_]+)*")
# Words that do not name the subject of a question.
_STOP_WORD_LIST: Final = (
    "a about all am an and any are as at be been but by can could did do does for from get give "
    "had has have her his how i if in into is it its let me my no not of on or our please say "
    "says she should show so some tell than that the their them then there these they this those "
    "to us was we were what when where which who whom whose why will with would you your "
    "s t document documents docs find explain many much according guide handbook manual "
    "long often take takes taken happen happens there here need needs must may might ok okay "
    "possible anyone anybody someone somebody everyone everybody people person want wants know "
    "after before during while out up down off over under again still yet just only ever "
    "kind sort thing things whats hows wheres whos got go put"
)
_STOP_WORDS: Final = frozenset(_STOP_WORD_LIST.split())


def search_documents(
    store: DocumentStore, question: str, *, limit: int = 5, index: VectorIndex | None = None
) -> list[SearchHit]:
    """Return the passages that match a question best, best first; none if nothing matches.

    With `index`, the ranking by words is combined with one by the meaning of the whole question.

    Raises:
        ConfigurationError: the store can't be read.
        ModelUnavailableError: the embedding model does not answer.
    """
    rankings = [_rank_by_words(store, parse_terms(question))]
    if index is not None:
        rankings.append(index.search(store, question, limit=_CANDIDATES))
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, passage_id in enumerate(ranking, start=1):
            scores[passage_id] = scores.get(passage_id, 0.0) + 1 / (_FUSION_CONSTANT + rank)
    best = sorted(scores, key=lambda passage_id: (-scores[passage_id], passage_id))
    return _load_hits(store, best[: min(limit, RESULT_LIMIT)], scores)


@dataclass(frozen=True, slots=True)
class Term:
    """A word of a question that names its subject."""

    word: str

    @property
    def is_number(self) -> bool:
        """True for a number, a version, or a code with digits."""
        return any(letter.isdecimal() for letter in self.word)

    @property
    def is_whole_number(self) -> bool:
        """True for digits alone, which are also parts of times, dates and versions."""
        return self.word.isdecimal()


def parse_terms(question: str) -> list[Term]:
    """Return the words of a question that name its subject, each once."""
    words = dict.fromkeys(_WORD.findall(question.casefold()))
    return [Term(word) for word in words if word not in _STOP_WORDS][:_TERM_LIMIT]


def _rank_by_words(store: DocumentStore, terms: Sequence[Term]) -> list[int]:
    """Rank passages by the words that they have, then by the relevance that the store gives.

    Passages that have only words of little weight are left out.
    """
    if not terms:
        return []
    words = [term.word for term in terms]
    relevance = store.rank_by_words(words, limit=_CANDIDATES)
    covered = dict.fromkeys(relevance, 0.0)
    counts = dict.fromkeys(relevance, 0)
    # Numbers name no subject, unless the question has only numbers.
    is_about_number = all(term.is_whole_number for term in terms)
    on_subject: set[int] = set(relevance) if is_about_number else set()
    passage_count, occurrences = store.count_passages(words)
    found = store.find_words(words, list(relevance))
    total = 0.0
    for term in terms:
        weight = _weigh(term, occurrences[term.word], passage_count)
        total += weight
        for passage_id in found[term.word]:
            covered[passage_id] += weight
            counts[passage_id] += 1
            if not term.is_whole_number:
                on_subject.add(passage_id)
    best = max(relevance.values(), default=1.0)
    ranked = sorted(
        on_subject,
        key=lambda passage_id: (
            -covered[passage_id] / total - _RELEVANCE_SHARE * relevance[passage_id] / best,
            passage_id,
        ),
    )
    fitting = [each for each in ranked if covered[each] >= _MIN_COVERAGE * total]
    return fitting or [
        each
        for each in ranked
        if counts[each] > 1 and covered[each] >= _MIN_COVERAGE_OF_TWO * total
    ]


def _weigh(term: Term, occurs: int, passage_count: int) -> float:
    """Return the weight of a word: rare ones weigh more.

    A word that occurs nowhere counts against all passages.
    """
    weight = math.log(1 + passage_count / (max(occurs, 1) + 0.5))
    return weight * _NUMBER_WEIGHT if term.is_number else weight


def _load_hits(
    store: DocumentStore, passage_ids: Sequence[int], scores: dict[int, float]
) -> list[SearchHit]:
    passages = store.load_passages(passage_ids)
    return [
        SearchHit(*passages[passage_id], scores[passage_id])
        for passage_id in passage_ids
        if passage_id in passages
    ]
