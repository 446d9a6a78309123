"""Searches the documents of the mesh."""

import asyncio
import time
from pathlib import Path

from trunkline.errors import (
    ConfigurationError,
    InvalidArgumentError,
    ModelUnavailableError,
    TrunklineError,
)
from trunkline_agents.research.documents.embeddings import (
    EmbeddingIndex,
    EmbeddingModel,
    open_embedding_index,
)
from trunkline_agents.research.documents.passages import SearchHit
from trunkline_agents.research.documents.search import search_documents
from trunkline_agents.research.documents.store import DocumentStore
from trunkline_agents.research.sources import TEXT_CHARS, SearchResult, Source

# A question more that waits for a model in trouble would be one too many.
_REST_S = 30.0


class DocumentLibrary:
    """The documents in one file, which may come and change while this is used."""

    def __init__(self, path: Path, model: EmbeddingModel | None = None) -> None:
        self._path = path
        self._model = model
        self._index: EmbeddingIndex | None = None
        self._trouble = ""
        self._asks_again_at = 0.0
        self._turn = asyncio.Lock()

    async def search(self, query: str, limit: int) -> SearchResult:
        """Return the passages that fit best.

        Raises:
            InvalidArgumentError: there are no documents, or none of them fits; it says which.
            TrunklineError: they can't be searched.
        """
        # One at a time: what it costs is reading one file.
        async with self._turn:
            return await asyncio.to_thread(self._search, query, limit)

    def _search(self, query: str, limit: int) -> SearchResult:
        store = DocumentStore.open_existing(self._path)
        if store is None:
            raise _none_yet()
        with store:
            ((count,),) = store.query("SELECT count(*) FROM documents")
            if not count:
                raise _none_yet()
            found, unavailable = self._found(store, query, limit)
        if not found:
            number = "the one document" if count == 1 else f"the {count} documents"
            raise InvalidArgumentError(
                "query", f"Nothing in {number} fits {query[:200]!r}; ask with other words."
            )
        sources = tuple(_source(one) for one in found)
        return SearchResult(query, sources, unavailable)

    def _found(
        self, store: DocumentStore, query: str, limit: int
    ) -> tuple[list[SearchHit], tuple[str, ...]]:
        """What fits, and what could not be asked: a model in trouble is left alone for a while."""
        if time.monotonic() >= self._asks_again_at:
            try:
                return search_documents(store, query, limit=limit, index=self._open_index()), ()
            except (ModelUnavailableError, ConfigurationError) as error:
                self._trouble = f"Search by meaning is unavailable: {error}."
                self._asks_again_at = time.monotonic() + _REST_S
        return search_documents(store, query, limit=limit), (self._trouble,)

    def _open_index(self) -> EmbeddingIndex | None:
        if self._index is None and self._model is not None:
            self._index = open_embedding_index(self._model)
        return self._index


def _none_yet() -> TrunklineError:
    return InvalidArgumentError(
        "query", "There are no documents yet; `trunkline docs add PATH` adds some."
    )


def _source(found: SearchHit) -> Source:
    return Source(found.title, found.name, found.text[:TEXT_CHARS], place=found.place)
