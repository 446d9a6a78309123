"""Questions in one's own words find their passages by the local model, and others find none."""

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from harness.journal.postgres_server import blocking_database
from trunkline.embeddings import EmbeddingModel
from trunkline_agents.research.documents.adding import add_documents
from trunkline_agents.research.documents.postgres_store import PostgresDocumentStore
from trunkline_agents.research.documents.search import search_documents
from trunkline_agents.research.documents.sqlite_store import SqliteDocumentStore
from trunkline_agents.research.documents.store import DocumentStore
from trunkline_agents.research.documents.vectors import VectorIndex

_FOLDER: Final = Path(__file__).parents[3] / "vectors/own_words"
_TABLE: Final[Mapping[str, Any]] = json.loads((_FOLDER / "table.json").read_text("utf-8"))
_NAMES: Final = ("office", "dishwasher", "baking")
# Of 76 questions, words alone answer 2, and of 46 without an answer, words alone answer 3.
_RIGHT: Final = 40
_FALSE: Final = 5

Library = tuple[DocumentStore, VectorIndex]


@pytest.fixture(scope="module", params=["sqlite", "postgres"])
def libraries(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Mapping[str, Library]]:
    encoder = EmbeddingModel(name="local:minilm").open()
    opened: dict[str, Library] = {}
    with ExitStack() as stack:
        for name in _NAMES:
            store: DocumentStore
            if request.param == "sqlite":
                path = tmp_path_factory.mktemp(name) / "documents.db"
                store = SqliteDocumentStore.open(path)
            else:
                store = PostgresDocumentStore(stack.enter_context(blocking_database()))
            stack.enter_context(store)
            opened[name] = (store, VectorIndex(encoder))
            add_documents(store, [_FOLDER / f"{name}.md"], index=opened[name][1])
        yield opened


def find_section(library: Library, question: str) -> str:
    """Return the section of the best passage, or "" if none is found."""
    store, index = library
    hits = search_documents(store, question, limit=1, index=index)
    return (hits[0].headings or (hits[0].title,))[-1] if hits else ""


def test_questions_in_own_words_find_their_sections(libraries: Mapping[str, Library]) -> None:
    right = [
        question
        for name in _NAMES
        for question, section in _TABLE[name]
        if find_section(libraries[name], question) == section
    ]
    assert len(right) >= _RIGHT


def test_questions_that_no_document_answers_find_nothing(
    libraries: Mapping[str, Library],
) -> None:
    answered = [
        question
        for name in _NAMES
        for question in _TABLE["unanswered"][name]
        if find_section(libraries[name], question)
    ]
    assert len(answered) <= _FALSE, answered
