"""Documents are also searched by meaning, with the vectors of a model."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from langchain_core.embeddings import Embeddings

from trunkline.errors import ConfigurationError, ModelUnavailableError
from trunkline.settings import ModelSettings
from trunkline_agents.research.documents.adding import add_documents
from trunkline_agents.research.documents.embeddings import (
    EmbeddingIndex,
    EmbeddingModel,
    open_embedding_index,
)
from trunkline_agents.research.documents.search import search_documents
from trunkline_agents.research.documents.store import DocumentStore

ABOUT = ({"leave", "vacation"}, {"trains", "railway"}, {"cache", "memory"})


class Topics(Embeddings):
    """A direction for each thing that a text is about."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.more: list[float] = [0.01]
        self.problem: Exception | None = None

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.problem is not None:
            raise self.problem
        self.asked += texts
        words = [set(text.casefold().replace(".", "").split()) for text in texts]
        return [[*(float(len(one & about)) for about in ABOUT), *self.more] for one in words]

    def embed_query(self, text: str) -> list[float]:
        (found,) = self.embed_documents([text])
        return found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[DocumentStore]:
    with DocumentStore.open(tmp_path / "documents.db") as one:
        yield one


@pytest.fixture
def pages(tmp_path: Path) -> Sequence[Path]:
    texts = {"leave": "28 days of paid leave.", "rail": "Trains first.", "cache": "Write-through."}
    for name, text in texts.items():
        (tmp_path / f"{name}.md").write_text(f"# {name}\n\n{text}\n")
    return [tmp_path / f"{name}.md" for name in texts]


def names(store: DocumentStore, question: str, meanings: EmbeddingIndex | None) -> list[str]:
    return [one.name for one in search_documents(store, question, index=meanings)]


def test_a_question_without_a_common_word_finds_what_it_means(
    store: DocumentStore, pages: Sequence[Path]
) -> None:
    meanings = EmbeddingIndex("topics", Topics())
    add_documents(store, pages, index=meanings)

    assert names(store, "vacation", None) == []
    assert names(store, "vacation", meanings) == ["leave.md"]
    assert names(store, "railway memory", meanings) == ["rail.md", "cache.md"]
    assert names(store, "Hamlet", meanings) == []


def test_both_rankings_are_joined_and_what_is_in_both_comes_first(
    store: DocumentStore, pages: Sequence[Path]
) -> None:
    meanings = EmbeddingIndex("topics", Topics())
    add_documents(store, pages, index=meanings)

    assert names(store, "vacation trains leave", meanings)[0] == "leave.md"
    assert names(store, "write-through", meanings) == ["cache.md"]


def test_documents_that_were_added_without_vectors_get_them_when_added_again(
    store: DocumentStore, pages: Sequence[Path]
) -> None:
    topics = Topics()
    add_documents(store, pages)

    again = add_documents(store, pages, index=EmbeddingIndex("topics", topics))
    third = add_documents(store, pages, index=EmbeddingIndex("topics", topics))
    other = add_documents(store, pages, index=EmbeddingIndex("other", topics))

    assert [len(one.added) for one in (again, third, other)] == [3, 0, 3]
    assert topics.asked[0] == "leave\nleave\n28 days of paid leave."


def test_vectors_follow_the_documents(store: DocumentStore, pages: Sequence[Path]) -> None:
    meanings = EmbeddingIndex("topics", Topics())
    add_documents(store, pages, index=meanings)
    assert names(store, "vacation", meanings) == ["leave.md"]

    store.remove([str(pages[0])])
    pages[1].write_text("# rail\n\nNow vacation is what it is about.\n")
    add_documents(store, pages[1:], index=meanings)

    assert names(store, "leave", meanings) == ["rail.md"]
    assert len(store.query("SELECT * FROM vectors")) == 2


def test_a_model_in_trouble_is_named_without_what_it_says(
    store: DocumentStore, pages: Sequence[Path]
) -> None:
    topics = Topics()
    meanings = EmbeddingIndex("topics", topics)
    add_documents(store, pages, index=meanings)

    topics.more = [1.0, 2.0]
    with pytest.raises(ModelUnavailableError, match="another length"):
        search_documents(store, "vacation", index=meanings)
    topics.more = [float("nan")]
    with pytest.raises(ModelUnavailableError, match="no vectors"):
        search_documents(store, "vacation", index=meanings)
    topics.problem = RuntimeError("sk-secret")
    with pytest.raises(ModelUnavailableError, match="RuntimeError") as caught:
        search_documents(store, "vacation", index=meanings)
    assert "sk-secret" not in str(caught.value)


def test_only_known_providers_can_be_named() -> None:
    for name in ("nobody:x", "openai", "openai:", "x"):
        with pytest.raises(ConfigurationError, match="is not one of: openai:NAME"):
            open_embedding_index(EmbeddingModel(name=name))


def test_where_the_model_is_and_its_key_come_from_the_settings_of_models(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "usual")
    monkeypatch.setenv("MY_KEY", "mine")
    provider = ModelSettings(base_url="http://provider/v1", api_key_env="MY_KEY")

    monkeypatch.setenv("OPENAI_BASE_URL", "http://usual/v1")

    none = EmbeddingModel.from_settings("", {})
    usual = EmbeddingModel.from_settings("openai:small", {})
    of_provider = EmbeddingModel.from_settings("openai:small", {"openai": provider})
    own = ModelSettings(base_url="http://own/v1")
    of_both = EmbeddingModel.from_settings(
        "openai:small", {"openai": provider, "openai:small": own}
    )

    assert none is None
    assert usual == EmbeddingModel(name="openai:small", base_url="http://usual/v1", api_key="usual")
    assert of_provider is not None
    assert (of_provider.base_url, of_provider.api_key) == ("http://provider/v1", "mine")
    assert of_both is not None
    assert (of_both.base_url, of_both.api_key) == ("http://own/v1", "mine")
    assert "mine" not in repr(of_both)
