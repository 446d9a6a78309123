"""The library answers also if its file changes or the embedding model fails."""

from pathlib import Path

from trunkline.embeddings import EmbeddingModel
from trunkline_agents.research.documents.adding import add_documents
from trunkline_agents.research.documents.sqlite_store import SqliteDocumentStore
from trunkline_agents.research.library import DocumentLibrary


def fill(folder: Path, **texts: str) -> Path:
    with SqliteDocumentStore.open(folder / "documents.db") as store:
        for name, text in texts.items():
            (folder / f"{name}.md").write_text(text)
            add_documents(store, [folder / f"{name}.md"])
    return folder / "documents.db"


async def test_a_failing_model_is_reported_each_time_and_words_are_searched(
    tmp_path: Path,
) -> None:
    path = fill(tmp_path, leave="# Leave\n\n28 days.", other="# Other\n\nNothing.")
    library = DocumentLibrary(path, EmbeddingModel(name="unknown:x"))

    first, second = [await library.search("leave", 5) for _ in range(2)]

    assert first == second
    assert [source.location for source in first.sources] == ["leave.md"]
    (notice,) = first.unavailable
    assert notice.startswith("Search by meaning is unavailable: ")
    assert "unknown:x" in notice
