"""The command `trunkline docs`. Each command imports what it works with when it runs."""

from collections.abc import Collection
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trunkline.cli.declaration import command
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import (
    DataOption,
    JsonOption,
    argument,
    load_command_settings,
    option,
)
from trunkline.cli.terminal import print_json, print_progress, print_stderr, print_table
from trunkline.cli.usage import QuestionCommand
from trunkline.errors import InvalidArgumentError

if TYPE_CHECKING:
    from trunkline.core.settings import Settings
    from trunkline_agents.research.documents.store import DocumentStore
    from trunkline_agents.research.documents.vectors import VectorIndex

docs = typer.Typer(
    help="Keep the documents that the agent `research` answers from.", rich_markup_mode=None
)

Paths = Annotated[list[Path], argument("PATH...", "Files, and folders with all below.")]
Query = Annotated[list[str], argument("QUERY...", "What to find.")]
Limit = Annotated[int, option(None, "How many passages.", min=1, max=20, show_default=True)]


@command(docs, "add")
def add_paths(paths: Paths, data: DataOption = None, *, json: JsonOption = False) -> ExitCode:
    """Add Markdown, text, HTML and PDF. Earlier versions are replaced. Exits 1 if a file fails."""
    from trunkline_agents.research.documents.adding import add_documents
    from trunkline_agents.research.documents.opening import open_documents
    from trunkline_agents.research.settings import read_documents_url

    settings = _load_settings(data, uses={"embeddings", "models"})
    index = _open_index(settings)
    with open_documents(settings) as store:
        report = add_documents(
            store, paths, index=index, on_file=lambda name: print_progress(f"reading {name}")
        )
    unchanged = len(report.unchanged)
    if json:
        print_json(asdict(report))
    else:
        for name in report.added:
            print(f"added {name}")
        for name in report.removed:
            print(f"removed {name}")
        if unchanged:
            print(f"unchanged: {unchanged} document{'' if unchanged == 1 else 's'}")
        if not any((report.added, report.removed, unchanged, report.refused)):
            print_stderr("nothing to add: there is no Markdown, text, HTML or PDF")
    for path, problem in report.refused.items():
        print_stderr(f"not added: {path}: {problem}")
    if settings.store and not read_documents_url(settings):
        print_stderr("agents can't read them until [research] documents_store is set")
    has_documents = report.added or unchanged or report.removed
    return ExitCode.OK if has_documents and not report.refused else ExitCode.FAILED


@command(docs, "list")
def list_all(data: DataOption = None, *, json: JsonOption = False) -> None:
    """List the documents."""
    store = _open_existing(_load_settings(data))
    documents = []
    if store is not None:
        with store:
            documents = store.list_documents()
    if json:
        print_json([asdict(document) for document in documents])
    elif documents:
        rows = [
            (
                document.name,
                document.title,
                str(document.passage_count),
                document.added_at[:10],
                document.path,
            )
            for document in documents
        ]
        print_table(("NAME", "TITLE", "PASSAGES", "ADDED", "FILE"), rows)
    else:
        print_stderr("there are no documents; `trunkline docs add PATH` adds some")


@command(docs, "remove")
def remove_paths(paths: Paths, data: DataOption = None, *, json: JsonOption = False) -> None:
    """Remove documents, or all below a folder; the files stay. Exits 1 if there is none."""
    from trunkline_agents.research.documents.adding import find_documents

    removed: dict[str, str] = {}
    store = _open_existing(_load_settings(data))
    with store or nullcontext():
        for path in paths:
            documents = find_documents(store, path) if store else []
            if not documents:
                problem = (
                    f"{str(path)!r} is no document, and has none below; `docs list` shows them"
                )
                raise InvalidArgumentError("PATH", problem)
            removed |= {document.path: document.name for document in documents}
        if store:
            store.remove(list(removed))
    if json:
        print_json({"removed": list(removed.values())})
    else:
        for name in removed.values():
            print(f"removed {name}")


@command(docs, "search", cls=QuestionCommand)
def search_passages(
    words: Query, data: DataOption = None, *, limit: Limit = 5, json: JsonOption = False
) -> ExitCode:
    """Show the passages that the agent would be given. Exits 1 if nothing fits."""
    from trunkline_agents.research.documents.search import search_documents

    settings = _load_settings(data, uses={"embeddings", "models"})
    store = _open_existing(settings)
    hits = []
    if store is not None:
        with store:
            index = _open_index(settings)
            hits = search_documents(store, " ".join(words), limit=limit, index=index)
    if json:
        print_json([asdict(hit) | {"place": hit.place} for hit in hits])
    else:
        for hit in hits:
            print(f"{hit.title}, {hit.place or 'whole'} ({hit.path})")
            print(f"    {' '.join(hit.text.split())}\n")
        if not hits:
            print_stderr("nothing fits")
    return ExitCode.OK if hits else ExitCode.FAILED


def _load_settings(data: Path | None, *, uses: Collection[str] = ()) -> "Settings":
    from trunkline.core.encryption import KEY_SETTINGS

    return load_command_settings(
        {"data_dir": data}, uses={"data_dir", "store", *uses, *KEY_SETTINGS}
    )


def _open_existing(settings: "Settings") -> "DocumentStore | None":
    from trunkline_agents.research.documents.opening import open_existing_documents

    return open_existing_documents(settings)


def _open_index(settings: "Settings") -> "VectorIndex | None":
    from trunkline.embeddings import EmbeddingModel
    from trunkline_agents.research.documents.vectors import VectorIndex

    model = EmbeddingModel.from_settings(settings.embeddings, settings.models)
    return VectorIndex(model.open()) if model else None
