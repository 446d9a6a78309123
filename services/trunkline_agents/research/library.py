"""Searches the documents of the mesh."""

import asyncio
import time
from pathlib import Path

from trunkline.core.encryption import Cipher
from trunkline.embeddings import EmbeddingModel
from trunkline.errors import (
    ConfigurationError,
    InvalidArgumentError,
    ModelUnavailableError,
)
from trunkline_agents.research.documents.opening import open_database_documents
from trunkline_agents.research.documents.passages import SearchHit
from trunkline_agents.research.documents.search import search_documents
from trunkline_agents.research.documents.sqlite_store import SqliteDocumentStore
from trunkline_agents.research.documents.store import DocumentStore
from trunkline_agents.research.documents.vectors import VectorIndex
from trunkline_agents.research.sources import TEXT_CHARS, SearchResult, Source

# After a failure of the embedding model, searches don't wait for it for this long.
_RETRY_AFTER_S = 30.0


class DocumentLibrary:
    """The documents of a mesh, which may be created and changed while the server runs."""

    def __init__(
        self,
        path: Path | None,
        model: EmbeddingModel | None = None,
        cipher: Cipher | None = None,
        *,
        database_url: str = "",
    ) -> None:
        """Use a file, which is encrypted with a cipher, or the database of a URL, or nothing."""
        self._path = path
        self._database_url = database_url
        self._model = model
        self._cipher = cipher
        self._store: DocumentStore | None = None
        self._inode = 0
        self._index: VectorIndex | None = None
        self._problem = ""
        self._retry_at = 0.0
        self._turn = asyncio.Lock()

    async def search(self, query: str, limit: int) -> SearchResult:
        """Return the passages that match best.

        Raises:
            InvalidArgumentError: there are no documents, or no document matches. The text has the
                reason.
            ConfigurationError: the documents can't be read.
        """
        # One search at a time, because a search only reads a file.
        async with self._turn:
            return await asyncio.to_thread(self._search, query, limit)

    def _search(self, query: str, limit: int) -> SearchResult:
        store = self._open_store()
        count = 0 if store is None else store.count_documents()
        if store is None or not count:
            raise InvalidArgumentError(
                "query", "There are no documents yet; `trunkline docs add PATH` adds some."
            )
        hits, unavailable = self._search_store(store, query, limit)
        if not hits:
            number = "the one document" if count == 1 else f"the {count} documents"
            raise InvalidArgumentError(
                "query", f"Nothing in {number} fits {query[:200]!r}; ask with other words."
            )
        sources = tuple(_source(hit) for hit in hits)
        return SearchResult(query, sources, unavailable)

    def _open_store(self) -> DocumentStore | None:
        """Return the store, or None if the file does not exist.

        The store stays open, because decrypting all documents takes a while.
        """
        if self._database_url:
            if self._store is None:
                self._store = open_database_documents(self._database_url)
            return self._store
        if self._path is None:
            problem = (
                "Documents are in the database, which agents can't read yet: "
                "set documents_store under [research]."
            )
            raise InvalidArgumentError("query", problem)
        inode = self._path.stat().st_ino if self._path.is_file() else 0
        if self._store is not None and inode != self._inode:
            self._store.close()
            self._store = None
        if self._store is None:
            self._store = SqliteDocumentStore.open_existing(self._path, self._cipher)
            self._inode = inode
        return self._store

    def _search_store(
        self, store: DocumentStore, query: str, limit: int
    ) -> tuple[list[SearchHit], tuple[str, ...]]:
        """Return the hits, and a sentence if the embedding model can't be used.

        After a failure the model is not tried again for a while.
        """
        if time.monotonic() >= self._retry_at:
            try:
                return search_documents(store, query, limit=limit, index=self._open_index()), ()
            except (ModelUnavailableError, ConfigurationError) as error:
                self._problem = f"Search by meaning is unavailable: {error}."
                self._retry_at = time.monotonic() + _RETRY_AFTER_S
        return search_documents(store, query, limit=limit), (self._problem,)

    def _open_index(self) -> VectorIndex | None:
        if self._index is None and self._model is not None:
            self._index = VectorIndex(self._model.open())
        return self._index


def _source(hit: SearchHit) -> Source:
    return Source(hit.title, hit.name, hit.text[:TEXT_CHARS], place=hit.place)
