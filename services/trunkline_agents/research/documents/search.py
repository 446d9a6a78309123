"""Finds the passages that a question is about: by words, and by meaning where there are vectors."""

import math
import re
from collections.abc import Sequence
from typing import Final

from trunkline_agents.research.documents.embeddings import EmbeddingIndex
from trunkline_agents.research.documents.passages import SearchHit
from trunkline_agents.research.documents.store import DocumentStore

RESULT_LIMIT: Final = 20
"""Most passages that one search gives."""
_CANDIDATES: Final = 50
_TERM_LIMIT: Final = 24
# Of the weight of a question's words, so much must occur in a passage.
_COVERAGE: Final = 0.4
# Reciprocal rank fusion (Cormack, Clarke, Büttcher 2009): what its authors found to do.
_FUSION: Final = 60
_WORD = re.compile(r"[^\W_]+")
# Words that say nothing about what is looked for.
_EMPTY_WORDS: Final = (
    "a about all am an and any are as at be been but by can could did do does for from get give "
    "had has have her his how i if in into is it its let me my no not of on or our please say "
    "says she should show so some tell than that the their them then there these they this those "
    "to us was we were what when where which who whom whose why will with would you your "
    "s t document documents docs find explain many much"
)
_EMPTY: Final = frozenset(_EMPTY_WORDS.split())


def search_documents(
    store: DocumentStore, question: str, *, limit: int = 5, index: EmbeddingIndex | None = None
) -> list[SearchHit]:
    """Return the passages that fit a question best, best first; none when nothing fits.

    With `index`, two rankings are joined: by words, and by the meaning of the whole question.

    Raises:
        ConfigurationError: the store can't be used.
        PeerUnavailableError: `index` can't be asked.
    """
    rankings = [_by_words(store, question)]
    if index is not None:
        rankings.append(index.search(store, question, limit=_CANDIDATES))
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, passage_id in enumerate(ranking, start=1):
            scores[passage_id] = scores.get(passage_id, 0.0) + 1 / (_FUSION + rank)
    best = sorted(scores, key=lambda passage_id: (-scores[passage_id], passage_id))
    return _found(store, best[: min(limit, RESULT_LIMIT)], scores)


def extract_keywords(question: str) -> list[str]:
    """Return the words of a question that say what is looked for, each once."""
    words = dict.fromkeys(_WORD.findall(question.casefold()))
    return [word for word in words if word not in _EMPTY][:_TERM_LIMIT]


def _by_words(store: DocumentStore, question: str) -> list[int]:
    """Passages by BM25, without those that only have words of little weight."""
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
        # What is rare tells more; what occurs nowhere counts against all passages.
        weight = math.log(1 + count / (max(occurs, 1) + 0.5))
        total += weight
        statement = f"SELECT rowid FROM words WHERE words MATCH ? AND rowid IN ({among})"  # noqa: S608
        for (passage_id,) in store.query(statement, term):
            covered[passage_id] += weight
    return [passage_id for passage_id in ranked if covered[passage_id] >= _COVERAGE * total]


def _found(
    store: DocumentStore, passage_ids: Sequence[int], scores: dict[int, float]
) -> list[SearchHit]:
    found = []
    for passage_id in passage_ids:
        for row in store.query(
            "SELECT documents.title, name, path, text, headings, page, line FROM passages"
            " JOIN documents ON documents.id = document_id WHERE passages.id = ?",
            passage_id,
        ):
            title, name, path, text, headings, page, line = row
            above = tuple(filter(None, headings.split("\n")))
            found.append(SearchHit(title, name, path, text, above, page, line, scores[passage_id]))
    return found
