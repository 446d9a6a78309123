"""Stores the documents of all machines of a mesh in PostgreSQL, with its full-text index.

Words are cut in this module, so that a version or a code such as "C-1041" is a phrase of its parts,
as in the index of SQLite. If the database has the extension pgvector, it searches vectors, too.
"""

import array
import hashlib
import re
import unicodedata
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import astuple, replace
from typing import TYPE_CHECKING, Final

from trunkline.core.postgres import Connection, PostgresDatabase
from trunkline.core.postgres.blocking import BlockingDatabase
from trunkline.core.postgres.columns import split_columns
from trunkline.core.postgres.document_tables import DOCUMENTS
from trunkline.errors import ModelUnavailableError
from trunkline_agents.research.documents.passages import Document, Passage
from trunkline_agents.research.documents.store import (
    DOCUMENT_COLUMNS,
    DocumentStore,
    StoredPassage,
    convert_errors,
    read_passage,
)

if TYPE_CHECKING:
    import asyncpg

_ADD: Final = " ".join(
    (
        f"INSERT INTO trunkline_documents (id, path_hash, {DOCUMENT_COLUMNS})",
        "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
    )
)
_ADD_PASSAGES: Final = (
    "INSERT INTO trunkline_passages (id, document_id, headings, text, page, line, words) "
    "SELECT $1 + number, $1, headings, text, page, line, "
    "setweight(to_tsvector('trunkline_words', $2), 'A') || "
    "setweight(to_tsvector('trunkline_words', heading_words), 'B') || "
    "setweight(to_tsvector('trunkline_words', text_words), 'D') "
    "FROM unnest($3::text[], $4::text[], $5::integer[], $6::integer[], $7::text[], $8::text[]) "
    "WITH ORDINALITY AS passage (headings, text, page, line, heading_words, text_words, number)"
)
_ASKED: Final = (
    "WITH asked AS MATERIALIZED "
    "(SELECT n, phraseto_tsquery('trunkline_words', word) AS query "
    "FROM unnest($1::text[]) WITH ORDINALITY AS asked (word, n))"
)
_COUNT: Final = " ".join(
    (
        _ASKED,
        "SELECT (SELECT count(*) FROM trunkline_passages) AS passages, "
        "(SELECT count(*) FROM trunkline_passages WHERE words @@ query) AS found "
        "FROM asked ORDER BY n",
    )
)
# The rarer a word, the more it is worth, as in BM25. The weights are of D, C, B and A; 1 divides by
# the length of the passage.
_RANK: Final = " ".join(
    (
        _ASKED,
        ", weighed AS MATERIALIZED (SELECT query, ln(1 + "
        "(SELECT count(*) FROM trunkline_passages) / "
        "((SELECT count(*) FROM trunkline_passages WHERE words @@ query) + 0.5)) AS weight "
        "FROM asked) "
        "SELECT id, sum(weight * ts_rank('{0.25, 0.25, 0.75, 1.0}', words, query, 1)) AS relevance "
        "FROM weighed JOIN trunkline_passages ON words @@ query "
        "GROUP BY id ORDER BY relevance DESC, id LIMIT $2",
    )
)
_FIND: Final = " ".join(
    (
        _ASKED,
        "SELECT n, id FROM asked JOIN trunkline_passages ON words @@ query WHERE id = ANY($2)",
    )
)
_LOAD: Final = (
    "SELECT passage.id, title, name, path, text, headings, page, line "
    "FROM trunkline_passages AS passage "
    "JOIN trunkline_documents AS document ON document.id = document_id "
    "WHERE passage.id = ANY($1)"
)
_NEAREST: Final = (
    "SELECT passage_id, 1 - (vector::vector <=> $2::real[]::vector) AS cosine "
    "FROM trunkline_passage_vectors WHERE model = $1 AND cardinality(vector) = cardinality($2) "
    "ORDER BY cosine DESC, passage_id LIMIT $3"
)
# A document of the largest size takes seconds.
_TIMEOUT_S: Final = 60.0
_WORD: Final = re.compile(r"[^\W_]+")


class PostgresDocumentStore(DocumentStore):
    """A `DocumentStore` in a database."""

    _COUNT_DOCUMENTS = "SELECT count(*) FROM trunkline_documents"
    _LIST_DOCUMENTS = " ".join(
        (
            "SELECT",
            DOCUMENT_COLUMNS,
            "FROM trunkline_documents",
            'ORDER BY name COLLATE "C", path COLLATE "C"',
        )
    )
    _LIST_EMBEDDED = (
        "SELECT path FROM trunkline_documents AS document "
        "JOIN trunkline_passages AS passage ON passage.document_id = document.id "
        "LEFT JOIN trunkline_passage_vectors AS vector "
        "ON vector.passage_id = passage.id AND vector.model = $1 "
        "GROUP BY document.id HAVING count(vector.passage_id) = count(*)"
    )

    def __init__(self, url: str) -> None:
        """Use the database of a URL. It connects when it is used.

        Raises:
            ValueError: the URL is invalid.
        """
        self._database = PostgresDatabase(url)
        self._blocking = BlockingDatabase(self._database, timeout_s=_TIMEOUT_S)
        self._place = f"the documents in {self._database.name}"
        # Whether the database can search vectors. None until it was asked.
        self._has_vectors: bool | None = None

    def close(self) -> None:
        """Close the connections."""
        self._blocking.close()

    @property
    def revision(self) -> int:
        """A number that every change increases."""
        ((revision,),) = self._fetch("SELECT revision FROM trunkline_document_revision")
        return int(revision)

    def _put(
        self,
        document: Document,
        passages: Sequence[Passage],
        model: str,
        vectors: Sequence[bytes],
    ) -> None:
        headings = ["\n".join(passage.headings) for passage in passages]
        rows = [
            (
                *(_clean(heading), _clean(passage.text), passage.page, passage.line),
                *(_cut_words(heading), _cut_words(passage.text)),
            )
            for heading, passage in zip(headings, passages, strict=True)
        ]
        stored = replace(document, name=_clean(document.name), title=_clean(document.title))
        values = (_hash(document.path), *astuple(stored))

        async def put(connection: Connection, first_id: int) -> None:
            await _delete(connection, [document.path])
            await connection.execute(_ADD, first_id, *values)
            title_words = _cut_words(document.title)
            await connection.execute(_ADD_PASSAGES, first_id, title_words, *split_columns(rows, 6))
            if vectors:
                await connection.executemany(
                    "INSERT INTO trunkline_passage_vectors VALUES ($1, $2, $3)",
                    [
                        (passage_id, model, array.array("f", vector).tolist())
                        for passage_id, vector in enumerate(vectors, start=first_id + 1)
                    ],
                )

        self._change(put, id_count=len(passages) + 1)

    def remove(self, paths: Sequence[str]) -> None:
        """Remove the documents with these paths."""

        async def delete(connection: Connection, _first_id: int) -> None:
            await _delete(connection, paths)

        self._change(delete)

    def rank_by_words(self, words: Sequence[str], *, limit: int) -> dict[int, float]:
        """Return the passages that have any of these words; see `DocumentStore`."""
        rows = self._fetch(_RANK, _cut(words), limit)
        return {row["id"]: float(row["relevance"]) for row in rows}

    def count_passages(self, words: Sequence[str]) -> tuple[int, Mapping[str, int]]:
        """Return the number of all passages, and of the passages that have each word."""
        rows = self._fetch(_COUNT, _cut(words))
        counts = {word: row["found"] for word, row in zip(words, rows, strict=True)}
        return (rows[0]["passages"] if rows else 0), counts

    def find_words(
        self, words: Sequence[str], passage_ids: Sequence[int]
    ) -> Mapping[str, set[int]]:
        """Return for each word the passages among these that have it."""
        found: dict[str, set[int]] = {word: set() for word in words}
        for row in self._fetch(_FIND, _cut(words), list(passage_ids)):
            found[words[row["n"] - 1]].add(row["id"])
        return found

    def load_passages(self, passage_ids: Sequence[int]) -> Mapping[int, StoredPassage]:
        """Return passages by their ids."""
        rows = self._fetch(_LOAD, list(passage_ids))
        return {row["id"]: read_passage(row) for row in rows}

    def list_vectors(self, model: str) -> list[tuple[int, bytes]]:
        """Return the vectors of a model; see `DocumentStore`."""
        rows = self._fetch(
            "SELECT passage_id, vector FROM trunkline_passage_vectors WHERE model = $1 "
            "ORDER BY passage_id",
            model,
        )
        return [(row["passage_id"], array.array("f", row["vector"]).tobytes()) for row in rows]

    def find_nearest(
        self, model: str, vector: Sequence[float], *, limit: int
    ) -> list[tuple[int, float]] | None:
        """Return the passages that are nearest to a vector, if pgvector is there."""
        if self._has_vectors is None:
            rows = self._fetch(
                "SELECT 1 FROM pg_type WHERE typname = 'vector' AND pg_type_is_visible(oid)"
            )
            self._has_vectors = bool(rows)
        if not self._has_vectors:
            return None
        found = self._fetch(_NEAREST, model, list(vector), limit)
        if not found and self._fetch(
            "SELECT 1 FROM trunkline_passage_vectors WHERE model = $1 LIMIT 1", model
        ):
            raise ModelUnavailableError(model, "its vectors have another length than before")
        return [(row["passage_id"], float(row["cosine"])) for row in found]

    def _fetch(self, statement: str, *values: object) -> "list[asyncpg.Record]":
        async def fetch() -> "list[asyncpg.Record]":
            await self._database.prepare(DOCUMENTS)
            return await self._database.fetch(statement, *values)

        with convert_errors(self._place):
            return self._blocking.run(fetch())

    def _change(
        self, change: Callable[[Connection, int], Awaitable[None]], *, id_count: int = 0
    ) -> None:
        """Run a change in a transaction. It gets the first of `id_count` new ids."""

        async def run() -> None:
            await self._database.prepare(DOCUMENTS)
            async with self._database.transaction() as connection:
                last_id = await connection.fetchval(
                    "UPDATE trunkline_document_revision "
                    "SET revision = revision + 1, last_id = last_id + $1 RETURNING last_id",
                    id_count,
                )
                await change(connection, last_id - id_count + 1)

        with convert_errors(self._place):
            self._blocking.run(run())


async def _delete(connection: Connection, paths: Sequence[str]) -> None:
    await connection.execute(
        "DELETE FROM trunkline_documents WHERE path_hash = ANY($1)", list(map(_hash, paths))
    )


def _hash(path: str) -> str:
    return hashlib.sha256(path.encode()).hexdigest()


def _clean(text: str) -> str:
    """Return a text that the database accepts: files may have NULs and broken characters."""
    return text.replace("\0", " ").encode(errors="replace").decode()


def _cut(words: Sequence[str]) -> list[str]:
    return list(map(_cut_words, words))


def _cut_words(text: str) -> str:
    """Return the words of a text, without accents and with spaces between them.

    The parser of the database would take addresses, versions and numbers with signs as one.
    """
    decomposed = unicodedata.normalize("NFKD", _clean(text).casefold())
    plain = "".join(each for each in decomposed if not unicodedata.combining(each))
    return " ".join(_WORD.findall(plain))
