"""The store of documents and their passages: a file of a data directory, or a database."""

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime
from typing import Any, ClassVar, Final, NamedTuple, Self

from trunkline.errors import ConfigurationError, JournalUnavailableError
from trunkline_agents.research.documents.passages import Document, Passage

DOCUMENT_COLUMNS: Final = ", ".join(field.name for field in fields(Document))
"""The columns of documents in every store."""


class StoredPassage(NamedTuple):
    """A passage and the document that has it."""

    title: str
    name: str
    path: str
    text: str
    headings: tuple[str, ...]
    page: int | None
    line: int | None


class DocumentStore(ABC):
    """The documents of a mesh, with an index of their words, and vectors of their passages.

    Only one thread may use a store at a time. Other processes may use the same documents. All
    methods raise ConfigurationError if the documents can't be read or written.
    """

    _COUNT_DOCUMENTS: ClassVar[str]
    _LIST_DOCUMENTS: ClassVar[str]
    _LIST_EMBEDDED: ClassVar[str]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @abstractmethod
    def close(self) -> None:
        """Close the store."""

    @property
    @abstractmethod
    def revision(self) -> int:
        """A number that every change increases."""

    def put(
        self,
        document: Document,
        passages: Sequence[Passage],
        *,
        model: str = "",
        vectors: Sequence[bytes] = (),
    ) -> None:
        """Add a document, or replace the document with its path. `vectors` are of its passages."""
        now = datetime.now(UTC).isoformat(timespec="seconds")
        added = replace(document, passage_count=len(passages), added_at=now)
        self._put(added, passages, model, vectors)

    @abstractmethod
    def _put(
        self,
        document: Document,
        passages: Sequence[Passage],
        model: str,
        vectors: Sequence[bytes],
    ) -> None:
        """Store all columns of a document, its passages and their vectors."""

    @abstractmethod
    def remove(self, paths: Sequence[str]) -> None:
        """Remove the documents with these paths."""

    def count_documents(self) -> int:
        """Return the number of documents."""
        ((count,),) = self._fetch(self._COUNT_DOCUMENTS)
        return int(count)

    def list_documents(self) -> list[Document]:
        """Return all documents, sorted by name."""
        return [Document(*row) for row in self._fetch(self._LIST_DOCUMENTS)]

    def list_embedded(self, model: str) -> set[str]:
        """Return the paths of the documents whose passages all have a vector of this model."""
        return {path for (path,) in self._fetch(self._LIST_EMBEDDED, model)}

    @abstractmethod
    def rank_by_words(self, words: Sequence[str], *, limit: int) -> dict[int, float]:
        """Return the passages that have any of these words, by their ids, with their relevance.

        The most relevant have the highest numbers, which are above 0.
        """

    @abstractmethod
    def count_passages(self, words: Sequence[str]) -> tuple[int, Mapping[str, int]]:
        """Return the number of all passages, and of the passages that have each word."""

    @abstractmethod
    def find_words(
        self, words: Sequence[str], passage_ids: Sequence[int]
    ) -> Mapping[str, set[int]]:
        """Return for each word the passages among these that have it."""

    @abstractmethod
    def load_passages(self, passage_ids: Sequence[int]) -> Mapping[int, StoredPassage]:
        """Return passages by their ids."""

    @abstractmethod
    def list_vectors(self, model: str) -> list[tuple[int, bytes]]:
        """Return the vectors of a model with the ids of their passages, sorted by id."""

    @abstractmethod
    def find_nearest(
        self, model: str, vector: Sequence[float], *, limit: int
    ) -> list[tuple[int, float]] | None:
        """Return the passages that are nearest to a vector of length 1, with their cosines.

        None is returned if the store can't search vectors, so that the caller has to do it.

        Raises:
            ModelUnavailableError: the vectors of the model have another length.
        """

    @abstractmethod
    def _fetch(self, statement: str, *values: object) -> Sequence[Iterable[Any]]:
        """Return the rows of a SELECT."""


def read_passage(row: Iterable[Any]) -> StoredPassage:
    """Return the passage of a row of the columns of StoredPassage, after the id of the passage."""
    _, title, name, path, text, headings, page, line = row
    above = tuple(filter(None, headings.split("\n")))
    return StoredPassage(title, name, path, text, above, page, line)


@contextlib.contextmanager
def convert_errors(place: str) -> Iterator[None]:
    """Convert errors of a store to a ConfigurationError that names its place."""
    try:
        yield
    except JournalUnavailableError as error:
        problem = f"can't be used: {error.problem}. Or move it away, and add the documents again"
        raise ConfigurationError(place, problem) from error
