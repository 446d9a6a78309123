"""Searches passages: by words, and also by meaning if there are vectors."""

import math
import re
from collections.abc import Sequence
from typing import Final

from trunkline_agents.research.documents.embeddings import EmbeddingIndex
from trunkline_agents.research.documents.passages import SearchHit
from trunkline_agents.research.documents.store import DocumentStore

RESULT_LIMIT: Final = 20
"""Most passages that a search returns."""
_CANDIDATES: Final = 50
_TERM_LIMIT: Final = 24
# A passage must contain this share of the weight of the question's words.
_MIN_COVERAGE: Final = 0.4
# The constant of reciprocal rank fusion, as its authors chose it (Cormack, Clarke, Büttcher 2009).
_FUSION_CONSTANT: Final = 60
_WORD = re.compile(r"[^\W_]+")
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
    "kind sort thing things whats hows wheres whos got go"
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
    rankings = [_rank_by_words(store, question)]
    if index is not None:
        rankings.append(index.search(store, question, limit=_CANDIDATES))
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, passage_id in enumerate(ranking, start=1):
            scores[passage_id] = scores.get(passage_id, 0.0) + 1 / (_FUSION_CONSTANT + rank)
    best = sorted(scores, key=lambda passage_id: (-scores[passage_id], passage_id))
    return _load_hits(store, best[: min(limit, RESULT_LIMIT)], scores)


def extract_keywords(question: str) -> list[str]:
    """Return the words of a question that tell what it is about, each once."""
    words = dict.fromkeys(_WORD.findall(question.casefold()))
    return [word for word in words if word not in _STOP_WORDS][:_TERM_LIMIT]


def _rank_by_words(store: DocumentStore, question: str) -> list[int]:
    """Rank passages by BM25, without those that have only words of little weight."""
    terms = [f'"{word}"' for word in extract_keywords(question)]
    if not terms:
        return []
    rows = store.query(
        "SELECT rowid FROM words WHERE words MATCH ?"
        " ORDER BY bm25(words, 4.0, 3.0, 1.0), rowid LIMIT ?",
        " OR ".join(terms),
        _CANDIDATES,
    )
    ranked: list[int] = [row[0] for row in rows]
    covered = dict.fromkeys(ranked, 0.0)
    total = 0.0
    among = ", ".join(map(str, ranked)) or "NULL"
    ((count,),) = store.query("SELECT count(*) FROM passages")
    for term in terms:
        ((occurs,),) = store.query("SELECT count(*) FROM words WHERE words MATCH ?", term)
        # Rare words weigh more. A word that occurs nowhere counts against all passages.
        weight = math.log(1 + count / (max(occurs, 1) + 0.5))
        total += weight
        statement = f"SELECT rowid FROM words WHERE words MATCH ? AND rowid IN ({among})"  # noqa: S608
        for (passage_id,) in store.query(statement, term):
            covered[passage_id] += weight
    return [passage_id for passage_id in ranked if covered[passage_id] >= _MIN_COVERAGE * total]


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
