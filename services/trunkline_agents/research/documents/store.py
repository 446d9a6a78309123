"""Stores documents and their passages in one SQLite file, with a full-text index (FTS5)."""

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

from trunkline.errors import ConfigurationError
from trunkline_agents.research.documents.passages import Document, Passage

_SCHEMA_VERSION: Final = 1
# SQLite's header marks the file as ours: "TRND".
_APPLICATION_ID: Final = 0x54524E44
_BUSY_S: Final = 10.0
_COLUMNS: Final = (
    "path, name, title, media_type, size_bytes, modified_ns, page_count, passage_count, added_at"
)

_TABLES: Final = (
    "CREATE TABLE meta (revision INTEGER NOT NULL)",
    "INSERT INTO meta VALUES (1)",
    """CREATE TABLE documents (
        id INTEGER PRIMARY KEY,
        path TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        title TEXT NOT NULL,
        media_type TEXT NOT NULL,
        size_bytes INTEGER NOT NULL,
        modified_ns INTEGER NOT NULL,
        page_count INTEGER NOT NULL,
        passage_count INTEGER NOT NULL,
        added_at TEXT NOT NULL
    )""",
    """CREATE TABLE passages (
        id INTEGER PRIMARY KEY,
        document_id INTEGER NOT NULL REFERENCES documents (id) ON DELETE CASCADE,
        title TEXT NOT NULL,
        headings TEXT NOT NULL,
        text TEXT NOT NULL,
        page INTEGER,
        line INTEGER
    )""",
    "CREATE INDEX passages_of_document ON passages (document_id)",
    """CREATE TABLE vectors (
        passage_id INTEGER PRIMARY KEY REFERENCES passages (id) ON DELETE CASCADE,
        model TEXT NOT NULL,
        vector BLOB NOT NULL
    )""",
    """CREATE VIRTUAL TABLE words USING fts5 (
        title, headings, text,
        content='passages', content_rowid='id',
        tokenize='porter unicode61 remove_diacritics 2'
    )""",
    """CREATE TRIGGER passage_added AFTER INSERT ON passages BEGIN
        INSERT INTO words (rowid, title, headings, text)
        VALUES (new.id, new.title, new.headings, new.text);
    END""",
    """CREATE TRIGGER passage_removed AFTER DELETE ON passages BEGIN
        INSERT INTO words (words, rowid, title, headings, text)
        VALUES ('delete', old.id, old.title, old.headings, old.text);
    END""",
    f"PRAGMA application_id = {_APPLICATION_ID}",
    f"PRAGMA user_version = {_SCHEMA_VERSION}",
)


class DocumentStore:
    """The documents of a mesh.

    Only one thread may use the store at a time. Other processes may use the file meanwhile.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        """Use `open`."""
        self.path = path
        self._connection = connection

    @classmethod
    def open(cls, path: Path) -> Self:
        """Open the file, and create it if it does not exist.

        Raises:
            ConfigurationError: the file can't be used.
        """
        with _convert_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # It holds texts of its owner, so other users may not read it.
            with contextlib.suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
            connection = sqlite3.connect(
                path, isolation_level=None, timeout=_BUSY_S, check_same_thread=False
            )
            store = cls(path, connection)
            try:
                connection.execute("PRAGMA foreign_keys = ON")
                store._prepare()
            except BaseException:
                connection.close()
                raise
            return store

    @classmethod
    def open_existing(cls, path: Path) -> Self | None:
        """Open the file; None if it does not exist.

        Raises:
            ConfigurationError: the file can't be used.
        """
        return cls.open(path) if path.is_file() else None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @property
    def revision(self) -> int:
        """A number that every change increases."""
        with _convert_errors(self.path):
            (revision,) = self._connection.execute("SELECT revision FROM meta").fetchone()
        return int(revision)

    def put(
        self,
        document: Document,
        passages: Sequence[Passage],
        *,
        model: str = "",
        vectors: Sequence[bytes] = (),
    ) -> None:
        """Add a document; it replaces the one with its path. `vectors` belong to its passages."""
        with self._change() as database:
            database.execute("DELETE FROM documents WHERE path = ?", (document.path,))
            added = datetime.now(UTC).isoformat(timespec="seconds")
            values = (
                *(document.path, document.name, document.title, document.media_type),
                *(document.size_bytes, document.modified_ns, document.page_count),
                *(len(passages), added),
            )
            row_id = database.execute(
                f"INSERT INTO documents ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
                values,
            ).lastrowid
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

    def list_documents(self) -> list[Document]:
        """Return all documents, sorted by name."""
        with _convert_errors(self.path):
            rows = self._connection.execute(
                f"SELECT {_COLUMNS} FROM documents ORDER BY name, path"  # noqa: S608
            )
            return [Document(*row) for row in rows]

    def list_embedded(self, model: str) -> set[str]:
        """Return the paths of the documents whose passages all have a vector of this model."""
        with _convert_errors(self.path):
            rows = self._connection.execute(
                "SELECT documents.path FROM documents"
                " JOIN passages ON passages.document_id = documents.id"
                " LEFT JOIN vectors ON vectors.passage_id = passages.id AND vectors.model = ?"
                " GROUP BY documents.id HAVING count(vectors.passage_id) = count(*)",
                (model,),
            )
            return {path for (path,) in rows}

    def query(self, statement: str, *values: object) -> list[tuple[Any, ...]]:
        """Return the rows of a SELECT."""
        with _convert_errors(self.path):
            return self._connection.execute(statement, values).fetchall()

    def _prepare(self) -> None:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        (application,) = self._connection.execute("PRAGMA application_id").fetchone()
        if version == 0 and application == 0:
            with self._transaction():
                (current_version,) = self._connection.execute("PRAGMA user_version").fetchone()
                for statement in () if current_version else _TABLES:
                    self._connection.execute(statement)
        elif application != _APPLICATION_ID or version != _SCHEMA_VERSION:
            raise ConfigurationError(str(self.path), "was made by another program, or version")

    @contextlib.contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        with _convert_errors(self.path), self._transaction():
            yield self._connection
            self._connection.execute("UPDATE meta SET revision = revision + 1")

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


@contextlib.contextmanager
def _convert_errors(path: Path) -> Iterator[None]:
    """Convert errors of SQLite and of the system to a ConfigurationError that names the file."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problem = f"can't be used: {reason}; repair it, or move it away and add the documents again"
        raise ConfigurationError(str(path), problem) from error
