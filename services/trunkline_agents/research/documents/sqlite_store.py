"""Stores documents and their passages in one SQLite file, with a full-text index (FTS5).

With an encryption key, the file has each document as one ciphertext. The tables and the index are
then in memory, because an index of words can't be encrypted.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, Final, Self

from trunkline.core.database import Database, Schema, connect_in_memory, run_script
from trunkline.core.encryption import Cipher, is_encrypted
from trunkline.errors import ConfigurationError, JournalUnavailableError
from trunkline_agents.research.documents.passages import Document, Passage
from trunkline_agents.research.documents.store import (
    DOCUMENT_COLUMNS,
    DocumentStore,
    StoredPassage,
    convert_errors,
    read_passage,
)

_TABLES: Final = """
CREATE TABLE meta (revision INTEGER NOT NULL);
INSERT INTO meta VALUES (1);
CREATE TABLE documents (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    path TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    title TEXT NOT NULL,
    media_type TEXT NOT NULL,
    size_bytes INTEGER NOT NULL,
    modified_ns INTEGER NOT NULL,
    page_count INTEGER NOT NULL,
    passage_count INTEGER NOT NULL,
    added_at TEXT NOT NULL
);
CREATE TABLE passages (
    id INTEGER PRIMARY KEY,
    document_id INTEGER NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
    title TEXT NOT NULL,
    headings TEXT NOT NULL,
    text TEXT NOT NULL,
    page INTEGER,
    line INTEGER
);
CREATE INDEX passages_of_document ON passages (document_id);
CREATE TABLE vectors (
    passage_id INTEGER PRIMARY KEY REFERENCES passages (id) ON DELETE CASCADE,
    model TEXT NOT NULL,
    vector BLOB NOT NULL
);
CREATE VIRTUAL TABLE words USING fts5 (
    title, headings, text,
    content='passages', content_rowid='id',
    tokenize='porter unicode61 remove_diacritics 2'
);
CREATE TRIGGER passage_added AFTER INSERT ON passages BEGIN
    INSERT INTO words (rowid, title, headings, text)
    VALUES (new.id, new.title, new.headings, new.text);
END;
CREATE TRIGGER passage_removed AFTER DELETE ON passages BEGIN
    INSERT INTO words (words, rowid, title, headings, text)
    VALUES ('delete', old.id, old.title, old.headings, old.text);
END;
"""
# An encrypted file has the table `encrypted` in place of the tables of documents. Earlier versions
# of this program gave only encrypted files the version 2. The application id is "TRND".
_SCHEMA: Final = Schema(_TABLES, version=2, migrations={1: ""}, application_id=0x54524E44)
_FIND: Final = (
    "SELECT rowid FROM words WHERE words MATCH ? AND rowid IN (SELECT value FROM json_each(?))"
)
_LOAD: Final = (
    "SELECT passages.id, documents.title, name, path, text, headings, page, line FROM passages "
    "JOIN documents ON documents.id = document_id "
    "WHERE passages.id IN (SELECT value FROM json_each(?))"
)
_ENCRYPT: Final = """
DROP TABLE words;
DROP TABLE vectors;
DROP TABLE passages;
DROP TABLE documents;
CREATE TABLE encrypted (id INTEGER PRIMARY KEY, content BLOB NOT NULL);
"""


class SqliteDocumentStore(DocumentStore):
    """A `DocumentStore` in a file."""

    _COUNT_DOCUMENTS = "SELECT count(*) FROM documents"
    _LIST_DOCUMENTS = " ".join(("SELECT", DOCUMENT_COLUMNS, "FROM documents ORDER BY name, path"))
    _LIST_EMBEDDED = (
        "SELECT documents.path FROM documents"
        " JOIN passages ON passages.document_id = documents.id"
        " LEFT JOIN vectors ON vectors.passage_id = passages.id AND vectors.model = ?"
        " GROUP BY documents.id HAVING count(vectors.passage_id) = count(*)"
    )

    def __init__(self, database: Database, cipher: Cipher | None) -> None:
        """Use `open`."""
        self.path: Path = database.path
        self._database = database
        self._file = database.connection
        self._cipher = cipher
        # The tables: the file's, or those in memory.
        self._connection = database.connection
        # The revision of the file that is in memory.
        self._loaded = 0

    @classmethod
    def open(cls, path: Path, cipher: Cipher | None = None) -> Self:
        """Open the file, and create it if it does not exist.

        With a cipher, a plain file is encrypted.

        Raises:
            ConfigurationError: the file can't be used, is a link, or others may change it; or it is
                encrypted and there is no cipher.
        """
        with convert_errors(str(path)):
            store = cls(Database(path, _SCHEMA, synchronous="full"), cipher)
            try:
                with store._database.read():
                    store._prepare()
            except BaseException:
                store.close()
                raise
            return store

    @classmethod
    def open_existing(cls, path: Path, cipher: Cipher | None = None) -> Self | None:
        """Open the file, or return None if it does not exist.

        Raises:
            ConfigurationError: as `open`.
        """
        return cls.open(path, cipher) if path.is_file() else None

    def close(self) -> None:
        """Close the file."""
        self._connection.close()
        self._database.close()

    @property
    def revision(self) -> int:
        """A number that every change increases."""
        with convert_errors(str(self.path)), self._database.read():
            return self._read_revision()

    def _put(
        self,
        document: Document,
        passages: Sequence[Passage],
        model: str,
        vectors: Sequence[bytes],
    ) -> None:
        with self._change() as database:
            database.execute("DELETE FROM documents WHERE path = ?", (document.path,))
            row_id = _insert(database, None, astuple(document))
            for number, passage in enumerate(passages):
                passage_id = database.execute(
                    "INSERT INTO passages (document_id, title, headings, text, page, line)"
                    " VALUES (?, ?, ?, ?, ?, ?)",
                    (
                        *(row_id, document.title, "\n".join(passage.headings), passage.text),
                        *(passage.page, passage.line),
                    ),
                ).lastrowid
                if vectors:
                    database.execute(
                        "INSERT INTO vectors VALUES (?, ?, ?)",
                        (passage_id, model, vectors[number]),
                    )

    def remove(self, paths: Sequence[str]) -> None:
        """Remove the documents with these paths."""
        with self._change() as database:
            database.executemany(
                "DELETE FROM documents WHERE path = ?", [(path,) for path in paths]
            )

    def rank_by_words(self, words: Sequence[str], *, limit: int) -> dict[int, float]:
        """Return the passages that have any of these words, ranked by BM25."""
        rows = self._fetch(
            "SELECT rowid, bm25(words, 4.0, 3.0, 1.0) FROM words WHERE words MATCH ?"
            " ORDER BY 2, rowid LIMIT ?",
            " OR ".join(map(_quote, words)),
            limit,
        )
        # SQLite's BM25 is negative, and the best is the least.
        return {passage_id: -relevance for passage_id, relevance in rows}

    def count_passages(self, words: Sequence[str]) -> tuple[int, Mapping[str, int]]:
        """Return the number of all passages, and of the passages that have each word."""
        ((count,),) = self._fetch("SELECT count(*) FROM passages")
        statement = "SELECT count(*) FROM words WHERE words MATCH ?"
        return count, {word: self._fetch(statement, _quote(word))[0][0] for word in words}

    def find_words(
        self, words: Sequence[str], passage_ids: Sequence[int]
    ) -> Mapping[str, set[int]]:
        """Return for each word the passages among these that have it."""
        among = json.dumps(list(passage_ids))
        return {
            word: {passage_id for (passage_id,) in self._fetch(_FIND, _quote(word), among)}
            for word in words
        }

    def load_passages(self, passage_ids: Sequence[int]) -> Mapping[int, StoredPassage]:
        """Return passages by their ids."""
        rows = self._fetch(_LOAD, json.dumps(list(passage_ids)))
        return {row[0]: read_passage(row) for row in rows}

    def list_vectors(self, model: str) -> list[tuple[int, bytes]]:
        """Return the vectors of a model; see `DocumentStore`."""
        return self._fetch(
            "SELECT passage_id, vector FROM vectors WHERE model = ? ORDER BY passage_id", model
        )

    def find_nearest(
        self, _model: str, _vector: Sequence[float], *, limit: int
    ) -> list[tuple[int, float]] | None:
        """Return None: the caller has to search the vectors."""

    def _fetch(self, statement: str, *values: object) -> list[Any]:
        """Return the rows of a SELECT."""
        with convert_errors(str(self.path)), self._database.read():
            self._refresh()
            return self._connection.execute(statement, values).fetchall()

    def _prepare(self) -> None:
        if self._cipher is not None:
            if not self._is_encrypted():
                self._encrypt_file(self._cipher)
            self._refresh()
        elif self._is_encrypted():
            problem = "is encrypted; set the encryption key of its data directory"
            raise ConfigurationError(str(self.path), problem)

    def _is_encrypted(self) -> bool:
        query = "SELECT 1 FROM sqlite_master WHERE name = 'encrypted'"
        return self._file.execute(query).fetchone() is not None

    def _encrypt_file(self, cipher: Cipher) -> None:
        with self._database.write() as file:
            if self._is_encrypted():
                return
            ids = [row_id for (row_id,) in file.execute("SELECT id FROM documents")]
            rows = [(row_id, _encrypt(cipher, file, row_id)) for row_id in ids]
            run_script(file, _ENCRYPT)
            file.executemany("INSERT INTO encrypted VALUES (?, ?)", rows)
        # Otherwise pages of the file and of its log would still contain the plain texts.
        self._file.execute("VACUUM")
        self._file.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _read_revision(self) -> int:
        (revision,) = self._file.execute("SELECT revision FROM meta").fetchone()
        return int(revision)

    def _refresh(self) -> None:
        """Load an encrypted file into memory if it has changed."""
        if self._cipher is None or (revision := self._read_revision()) == self._loaded:
            return
        memory = connect_in_memory()
        memory.execute("PRAGMA foreign_keys = ON")
        run_script(memory, _TABLES)
        rows = self._file.execute("SELECT id, content FROM encrypted").fetchall()
        for row_id, content in rows:
            _decrypt(self._cipher, memory, row_id, content)
        if self._connection is not self._file:
            self._connection.close()
        self._connection, self._loaded = memory, revision

    @contextlib.contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        with convert_errors(str(self.path)), self._database.write():
            if self._cipher is None:
                yield self._file
                self._file.execute("UPDATE meta SET revision = revision + 1")
                return
            self._refresh()
            before = self._list_ids()
            # Loaded again if the change fails.
            self._loaded = 0
            yield self._connection
            after = self._list_ids()
            self._file.executemany(
                "DELETE FROM encrypted WHERE id = ?", [(row_id,) for row_id in before - after]
            )
            self._file.executemany(
                "INSERT INTO encrypted VALUES (?, ?)",
                [
                    (row_id, _encrypt(self._cipher, self._connection, row_id))
                    for row_id in after - before
                ],
            )
            self._file.execute("UPDATE meta SET revision = revision + 1")
            revision = self._read_revision()
        self._loaded = revision

    def _list_ids(self) -> set[int]:
        return {row_id for (row_id,) in self._connection.execute("SELECT id FROM documents")}


def _encrypt(cipher: Cipher, database: sqlite3.Connection, row_id: int) -> bytes:
    """Return a document with its passages as one ciphertext."""
    select = " ".join(("SELECT", DOCUMENT_COLUMNS, "FROM documents WHERE id = ?"))
    document = database.execute(select, (row_id,)).fetchone()
    passages = database.execute(
        "SELECT title, headings, text, page, line, model, hex(vector) FROM passages"
        " LEFT JOIN vectors ON vectors.passage_id = passages.id"
        " WHERE document_id = ? ORDER BY passages.id",
        (row_id,),
    ).fetchall()
    return cipher.encrypt(json.dumps([document, passages]).encode(), f"document {row_id}")


def _decrypt(cipher: Cipher, database: sqlite3.Connection, row_id: int, content: bytes) -> None:
    """Insert a document of `_encrypt` into the tables."""
    if not is_encrypted(content):
        raise JournalUnavailableError("documents", "a document in it is not encrypted")
    document, passages = json.loads(cipher.decrypt(content, f"document {row_id}"))
    _insert(database, row_id, document)
    for *values, model, vector in passages:
        passage_id = database.execute(
            "INSERT INTO passages (document_id, title, headings, text, page, line)"
            " VALUES (?, ?, ?, ?, ?, ?)",
            (row_id, *values),
        ).lastrowid
        if vector:
            database.execute(
                "INSERT INTO vectors VALUES (?, ?, ?)", (passage_id, model, bytes.fromhex(vector))
            )


def _insert(
    database: sqlite3.Connection, row_id: int | None, document: Sequence[object]
) -> int | None:
    """Insert a document, and return its id, which is a new one if there is none."""
    insert = " ".join(
        (
            f"INSERT INTO documents (id, {DOCUMENT_COLUMNS})",
            "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        )
    )
    return database.execute(insert, (row_id, *document)).lastrowid


def _quote(word: str) -> str:
    """Return the expression of FTS5 for a word."""
    return f'"{word}"'
