"""Searches passages: by words, and also by meaning if there are vectors."""

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from trunkline_agents.research.documents.embeddings import EmbeddingIndex
from trunkline_agents.research.documents.passages import SearchHit
from trunkline_agents.research.documents.similar import load_similar_words, stem_words
from trunkline_agents.research.documents.store import DocumentStore
from trunkline_agents.research.documents.synonyms import find_synonyms

RESULT_LIMIT: Final = 20
"""Most passages that a search returns."""
_CANDIDATES: Final = 50
_TERM_LIMIT: Final = 24
# A passage must contain this share of the weight of the question's words.
_MIN_COVERAGE: Final = 0.4
# If none has that, passages with less may fit, if they have two of the words.
_MIN_COVERAGE_OF_TWO: Final = 0.24
# The best passage by similar words must have this share, and this much more than the next one:
# chosen so that questions that no document answers still find nothing.
_MIN_COVERAGE_BY_MEANING: Final = 0.5
_MIN_LEAD: Final = 0.05
# Most words of the index that stand for one of a question.
_NEAREST: Final = 24
# The best BM25 is worth this share of all words.
_RELEVANCE_SHARE: Final = 0.3
# Who gives fewer words looks for these, and for no similar ones.
_SHORTEST_QUESTION: Final = 3
# A word in other words is worth less than the word.
_SYNONYM_SHARE: Final = 0.75
# People ask for a number or a version because they mean no other.
_NUMBER_WEIGHT: Final = 2.0
# Words that occur nowhere are looked for with a typing error, if they are this long.
_SHORTEST_MISSPELLED: Final = 5
_SIMILARITY: Final = 0.82
# The constant of reciprocal rank fusion, as its authors chose it (Cormack, Clarke, Büttcher 2009).
_FUSION_CONSTANT: Final = 60
# "3.2" and "C-1041" are one word, since their parts say nothing alone.
_WORD = re.compile(r"[^\W_]+(?:[-.,:/](?=[^\W_]*\d)[^\W_]+)*")
# Words that don't tell what a question is about.
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
    store: DocumentStore, question: str, *, limit: int = 5, index: EmbeddingIndex | None = None
) -> list[SearchHit]:
    """Return the passages that match a question best, best first; none if nothing matches.

    With `index`, the ranking by words is combined with one by the meaning of the whole question.

    Raises:
        ConfigurationError: the store can't be read.
        ModelUnavailableError: the embedding model does not answer.
    """
    terms = [_mend_term(store, term) for term in parse_terms(question)]
    ranking = _rank_by_words(store, terms)
    if not ranking and len(_WORD.findall(question)) >= _SHORTEST_QUESTION:
        ranking = _rank_by_similar_words(store, terms)
    rankings = [ranking]
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
    """A word of a question, and other words that a passage may have for it."""

    word: str
    others: tuple[str, ...] = ()

    @property
    def is_number(self) -> bool:
        """True for a number, a version, or a code with digits."""
        return any(letter.isdecimal() for letter in self.word)

    @property
    def is_whole_number(self) -> bool:
        """True for digits alone, which are also parts of times, dates and versions."""
        return self.word.isdecimal()


def parse_terms(question: str) -> list[Term]:
    """Return the words of a question that tell what it is about, with their synonyms."""
    keywords = extract_keywords(question)
    return [Term(word, find_synonyms(word)) for word in keywords]


def extract_keywords(question: str) -> list[str]:
    """Return the words of a question that tell what it is about, each once."""
    words = dict.fromkeys(_WORD.findall(question.casefold()))
    return [word for word in words if word not in _STOP_WORDS][:_TERM_LIMIT]


def _rank_by_words(store: DocumentStore, terms: Sequence[Term]) -> list[int]:
    """Rank passages by the words that they have, then by BM25.

    Those that have only words of little weight are left out.
    """
    if not terms:
        return []
    rows = store.query(
        "SELECT rowid, bm25(words, 4.0, 3.0, 1.0) FROM words WHERE words MATCH ?"
        " ORDER BY 2, rowid LIMIT ?",
        " OR ".join(_quote((term.word, *term.others)) for term in terms),
        _CANDIDATES,
    )
    # BM25 is negative, and the best is the least.
    relevance: dict[int, float] = dict(rows)
    weights = [_weigh(store, term) for term in terms]
    covered = dict.fromkeys(relevance, 0.0)
    counts = dict.fromkeys(relevance, 0)
    # Digits alone say nothing of the subject, unless they are all that the question has.
    is_about_number = all(term.is_whole_number for term in terms)
    on_subject: set[int] = set(relevance) if is_about_number else set()
    for term, weight in zip(terms, weights, strict=True):
        exact = _find_among(store, _quote((term.word,)), relevance)
        similar = _find_among(store, _quote(term.others), relevance) - exact if term.others else ()
        if not term.is_whole_number:
            on_subject.update(exact, similar)
        for passage_id in exact:
            covered[passage_id] += weight
            counts[passage_id] += 1
        for passage_id in similar:
            covered[passage_id] += weight * _SYNONYM_SHARE
            counts[passage_id] += 1
    total, best = sum(weights), min(relevance.values(), default=-1.0)
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


def _rank_by_similar_words(store: DocumentStore, terms: Sequence[Term]) -> list[int]:
    """Rank passages by what they have of the meaning of each word.

    Only if no passage has the words: a passage found by words never ranks lower by a similar one.
    """
    shares = [_list_shares(store, term) for term in terms]
    weights = [_weigh(store, term) for term in terms]
    # Which words of the question a word of the index stands for, and what it is worth.
    worth: dict[str, list[tuple[int, float]]] = {}
    for number, (weight, each) in enumerate(zip(weights, shares, strict=True)):
        for word, share in each.items():
            worth.setdefault(word, []).append((number, weight * share / sum(weights)))
    most = {word: max(value for _, value in pairs) for word, pairs in worth.items()}
    passages: dict[int, list[str]] = {}
    for passage_id, word in store.find_words(list(worth)):
        passages.setdefault(passage_id, []).append(word)
    # No passage with less can have enough.
    covered = {
        each: _cover(words, worth)
        for each, words in passages.items()
        if sum(most[word] for word in words) >= _MIN_COVERAGE_BY_MEANING - _MIN_LEAD
    }
    ranked = sorted(covered, key=lambda each: (-covered[each][0], each))[:_CANDIDATES]
    if not ranked:
        return []
    coverage, count = covered[ranked[0]]
    lead = coverage - (covered[ranked[1]][0] if len(ranked) > 1 else 0.0)
    if count < min(len(terms), 2) or lead < _MIN_LEAD:
        return []
    return [each for each in ranked if covered[each][0] >= _MIN_COVERAGE_BY_MEANING]


def _cover(
    words: Sequence[str], worth: Mapping[str, Sequence[tuple[int, float]]]
) -> tuple[float, int]:
    """Return what a passage's words have of a question, and of how many of its words.

    A word of the passage stands for one word of the question only.
    """
    pairs = sorted(
        ((value, number, word) for word in words for number, value in worth[word]), reverse=True
    )
    total = 0.0
    used_words: set[str] = set()
    used_numbers: set[int] = set()
    for value, number, word in pairs:
        if number not in used_numbers and word not in used_words:
            total += value
            used_words.add(word)
            used_numbers.add(number)
    return total, len(used_numbers)


def _list_shares(store: DocumentStore, term: Term) -> dict[str, float]:
    """Return the stems of the index for a word, with the share of the word that each is worth."""
    stem, *others = stem_words((term.word, *term.others))
    shares = {stem: 1.0} | dict.fromkeys(others, _SYNONYM_SHARE)
    for other, share in () if term.is_number else load_similar_words().find(stem).items():
        shares.setdefault(other, share)
    ((passages,),) = store.query("SELECT count(*) FROM passages")
    counts = store.count_words(list(shares))
    # A word of most passages, such as one of the title, does not tell them apart.
    most = max(1, passages // 2)
    near = [word for word in shares if counts.get(word, most + 1) <= most]
    return {word: shares[word] for word in near[:_NEAREST]}


def _weigh(store: DocumentStore, term: Term) -> float:
    """Return the weight of a word: rare ones weigh more.

    A word that occurs nowhere counts against all passages.
    """
    ((count,),) = store.query("SELECT count(*) FROM passages")
    words = _quote((term.word, *term.others))
    ((occurs,),) = store.query("SELECT count(*) FROM words WHERE words MATCH ?", words)
    weight = math.log(1 + count / (max(occurs, 1) + 0.5))
    return weight * _NUMBER_WEIGHT if term.is_number else weight


def _find_among(store: DocumentStore, words: str, passage_ids: Collection[int]) -> set[int]:
    """Return those of the passages that have one of the words."""
    among = ", ".join(map(str, passage_ids)) or "NULL"
    statement = f"SELECT rowid FROM words WHERE words MATCH ? AND rowid IN ({among})"  # noqa: S608
    return {passage_id for (passage_id,) in store.query(statement, words)}


def _mend_term(store: DocumentStore, term: Term) -> Term:
    """Return a word of the documents in place of one that occurs nowhere and is much like it."""
    word = term.word
    if term.is_number or len(word) < _SHORTEST_MISSPELLED or not word.isalpha():
        return term
    if store.query("SELECT 1 FROM words WHERE words MATCH ? LIMIT 1", _quote((word, *term.others))):
        return term
    (stem,) = stem_words([word])
    if stem in load_similar_words():
        # It is a word, not a typing error.
        return term
    near = get_close_matches(
        word, store.list_words(word[0], len(word) - 2, len(word) + 2), n=1, cutoff=_SIMILARITY
    )
    return Term(near[0], find_synonyms(near[0])) if near else term


def _quote(words: Sequence[str]) -> str:
    """Return an expression of FTS5 for any of the words."""
    return "(" + " OR ".join(f'"{word}"' for word in words) + ")"


def _load_hits(
    store: DocumentStore, passage_ids: Sequence[int], scores: dict[int, float]
) -> list[SearchHit]:
    hits = []
    for passage_id in passage_ids:
        for row in store.query(
            "SELECT documents.title, name, path, text, headings, page, line FROM passages"
            " JOIN documents ON documents.id = document_id WHERE passages.id = ?",
            passage_id,
        ):
            title, name, path, text, headings, page, line = row
            above = tuple(filter(None, headings.split("\n")))
            hits.append(SearchHit(title, name, path, text, above, page, line, scores[passage_id]))
    return hits
