"""Documents are also searched by meaning, with the vectors of a model."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from langchain_core.embeddings import Embeddings

from harness.journal.postgres_server import blocking_database
from trunkline.embeddings import TextEncoder
from trunkline.errors import ModelUnavailableError
from trunkline_agents.research.documents.adding import add_documents
from trunkline_agents.research.documents.postgres_store import PostgresDocumentStore
from trunkline_agents.research.documents.search import search_documents
from trunkline_agents.research.documents.sqlite_store import SqliteDocumentStore
from trunkline_agents.research.documents.store import DocumentStore
from trunkline_agents.research.documents.vectors import VectorIndex

TOPIC_WORDS = ({"leave", "sabbatical"}, {"trains", "railway"}, {"cache", "memory"})


class TopicEmbeddings(Embeddings):
    """Embeds a text by its topics, one dimension for each."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.extra_values: list[float] = [0.01]
        self.problem: Exception | None = None

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.problem is not None:
            raise self.problem
        self.texts += texts
        words = [set(text.casefold().replace(".", "").split()) for text in texts]
        return [
            [*(float(len(word_set & topic)) for topic in TOPIC_WORDS), *self.extra_values]
            for word_set in words
        ]

    def embed_query(self, text: str) -> list[float]:
        (vector,) = self.embed_documents([text])
        return vector


@pytest.fixture(params=["sqlite", "postgres", "pgvector"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[DocumentStore]:
    with ExitStack() as stack:
        if request.param == "sqlite":
            yield stack.enter_context(SqliteDocumentStore.open(tmp_path / "documents.db"))
            return
        extension = "vector" if request.param == "pgvector" else ""
        url = stack.enter_context(blocking_database(extension=extension))
        opened = stack.enter_context(PostgresDocumentStore(url))
        has_vectors = opened.find_nearest("topics", [1.0], limit=1) is not None
        assert has_vectors == (request.param == "pgvector")
        yield opened


@pytest.fixture
def pages(tmp_path: Path) -> Sequence[Path]:
    texts = {"leave": "28 days of paid leave.", "rail": "Trains first.", "cache": "Write-through."}
    for name, text in texts.items():
        (tmp_path / f"{name}.md").write_text(f"# {name}\n\n{text}\n")
    return [tmp_path / f"{name}.md" for name in texts]


def search_names(store: DocumentStore, question: str, index: VectorIndex | None) -> list[str]:
    return [hit.name for hit in search_documents(store, question, index=index)]


def test_rankings_are_merged_and_hits_of_both_come_first(
    store: DocumentStore, pages: Sequence[Path]
) -> None:
    index = VectorIndex(TextEncoder("topics", TopicEmbeddings()))
    add_documents(store, pages, index=index)

    assert search_names(store, "vacation trains leave", index)[0] == "leave.md"
    assert search_names(store, "write-through", index) == ["cache.md"]


def test_documents_that_were_added_without_vectors_get_them_when_added_again(
    store: DocumentStore, pages: Sequence[Path]
) -> None:
    topics = TopicEmbeddings()
    add_documents(store, pages)

    second_run = add_documents(store, pages, index=VectorIndex(TextEncoder("topics", topics)))
    third_run = add_documents(store, pages, index=VectorIndex(TextEncoder("topics", topics)))
    other_index_run = add_documents(store, pages, index=VectorIndex(TextEncoder("other", topics)))

    assert [len(run.added) for run in (second_run, third_run, other_index_run)] == [3, 0, 3]
    assert topics.texts[0] == "leave\n28 days of paid leave."


def test_vectors_follow_the_documents(store: DocumentStore, pages: Sequence[Path]) -> None:
    index = VectorIndex(TextEncoder("topics", TopicEmbeddings()))
    add_documents(store, pages, index=index)
    assert search_names(store, "sabbatical", index) == ["leave.md"]

    store.remove([str(pages[0])])
    pages[1].write_text("# rail\n\nNow a sabbatical is what it is about.\n")
    add_documents(store, pages[1:], index=index)

    assert search_names(store, "leave", index) == ["rail.md"]
    assert len(store.list_vectors("topics")) == 2


def test_a_failing_model_is_reported_without_its_error_text(
    store: DocumentStore, pages: Sequence[Path]
) -> None:
    topics = TopicEmbeddings()
    index = VectorIndex(TextEncoder("topics", topics))
    add_documents(store, pages, index=index)

    topics.extra_values = [1.0, 2.0]
    with pytest.raises(ModelUnavailableError, match="another length"):
        search_documents(store, "vacation", index=index)
    topics.extra_values = [float("nan")]
    with pytest.raises(ModelUnavailableError, match="no vectors"):
        search_documents(store, "vacation", index=index)
    topics.problem = RuntimeError("sk-secret")
    with pytest.raises(ModelUnavailableError, match="RuntimeError") as caught:
        search_documents(store, "vacation", index=index)
    assert "sk-secret" not in str(caught.value)
