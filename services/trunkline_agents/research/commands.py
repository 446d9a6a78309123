"""`trunkline docs`: the documents that the agent `research` answers from."""

import contextlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trunkline.cli.exits import ExitCode
from trunkline.cli.terminal import note, print_json, print_table, say
from trunkline.errors import InvalidArgumentError
from trunkline.settings import Settings, load_settings
from trunkline_agents.research.documents.adding import add_documents, find_documents
from trunkline_agents.research.documents.embeddings import (
    EmbeddingIndex,
    EmbeddingModel,
    open_embedding_index,
)
from trunkline_agents.research.documents.passages import SearchHit
from trunkline_agents.research.documents.search import search_documents
from trunkline_agents.research.documents.store import FILE_NAME, DocumentStore


def add(paths: Sequence[Path], data: Path | None, *, as_json: bool) -> ExitCode:
    """Add files and folders.

    Raises:
        InvalidArgumentError: there is no such file or folder, or it holds too much.
        ConfigurationError: the documents can't be kept.
        ModelUnavailableError: the model that makes vectors can't be asked.
    """
    settings = load_settings({"data_dir": data})
    meanings = _meanings(settings)
    with DocumentStore.open(_path(settings)) as store:
        done = add_documents(
            store, paths, meanings=meanings, on_file=lambda name: note(f"reading {name}")
        )
    if as_json:
        print_json(asdict(done))
    else:
        for name in done.added:
            print(f"added {name}")
        for name in done.removed:
            print(f"removed {name}")
        if done.unchanged:
            print(f"unchanged: {_counted(len(done.unchanged))}")
        if not any((done.added, done.removed, done.unchanged, done.refused)):
            say("nothing to add: there is no Markdown, text, HTML or PDF")
    for path, problem in done.refused.items():
        say(f"not added: {path}: {problem}")
    is_there = done.added or done.unchanged or done.removed
    return ExitCode.OK if is_there and not done.refused else ExitCode.FAILED


def list_all(data: Path | None, *, as_json: bool) -> ExitCode:
    """List the documents. ConfigurationError: they can't be read."""
    store = DocumentStore.open_existing(_path(load_settings({"data_dir": data})))
    documents = []
    if store is not None:
        with store:
            documents = store.list_documents()
    if as_json:
        print_json([asdict(document) for document in documents])
    elif documents:
        rows = [
            (one.name, one.title, str(one.passage_count), one.added_at[:10], one.path)
            for one in documents
        ]
        print_table(("NAME", "TITLE", "PASSAGES", "ADDED", "FILE"), rows)
    else:
        say("there are no documents; `trunkline docs add PATH` adds some")
    return ExitCode.OK


def remove(paths: Sequence[Path], data: Path | None, *, as_json: bool) -> ExitCode:
    """Remove documents.

    Raises:
        InvalidArgumentError: one of these is none, nor has any below; then all stay.
        ConfigurationError: they can't be changed.
    """
    removed: dict[str, str] = {}
    store = DocumentStore.open_existing(_path(load_settings({"data_dir": data})))
    with store or contextlib.nullcontext():
        for path in paths:
            found = find_documents(store, path) if store else []
            if not found:
                problem = f"{str(path)!r} is no document, nor has any below; `docs list` shows them"
                raise InvalidArgumentError("PATH", problem)
            removed |= {document.path: document.name for document in found}
        if store:
            store.remove(list(removed))
    if as_json:
        print_json({"removed": list(removed.values())})
    else:
        for name in removed.values():
            print(f"removed {name}")
    return ExitCode.OK


def search_passages(query: str, data: Path | None, *, limit: int, as_json: bool) -> ExitCode:
    """Show what fits a query.

    Raises:
        ConfigurationError: the documents can't be read.
        ModelUnavailableError: the model that makes vectors can't be asked.
    """
    settings = load_settings({"data_dir": data})
    store = DocumentStore.open_existing(_path(settings))
    found: list[SearchHit] = []
    if store is not None:
        with store:
            found = search_documents(store, query, limit=limit, meanings=_meanings(settings))
    if as_json:
        print_json([_as_json(one) for one in found])
    else:
        for one in found:
            print(f"{one.title}, {one.place or 'whole'} ({one.path})")
            print(f"    {' '.join(one.text.split())}\n")
        if not found:
            say("nothing fits")
    return ExitCode.OK if found else ExitCode.FAILED


def _as_json(found: SearchHit) -> dict[str, Any]:
    return asdict(found) | {"place": found.place}


def _path(settings: Settings) -> Path:
    return settings.data_dir / FILE_NAME


def _meanings(settings: Settings) -> EmbeddingIndex | None:
    model = EmbeddingModel.from_settings(settings)
    return open_embedding_index(model) if model else None


def _counted(count: int) -> str:
    return f"{count} document{'' if count == 1 else 's'}"
