"""Runs the commands of `trunkline docs` on the documents of a mesh."""

import contextlib
from collections.abc import Collection, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trunkline.cli.exits import ExitCode
from trunkline.cli.options import load_command_settings
from trunkline.cli.terminal import print_json, print_progress, print_stderr, print_table
from trunkline.embeddings import EmbeddingModel
from trunkline.encryption import KEY_SETTINGS, Cipher
from trunkline.errors import InvalidArgumentError
from trunkline.settings import Settings
from trunkline_agents.research.documents.adding import add_documents, find_documents
from trunkline_agents.research.documents.passages import SearchHit
from trunkline_agents.research.documents.search import search_documents
from trunkline_agents.research.documents.store import DocumentStore
from trunkline_agents.research.documents.vectors import VectorIndex
from trunkline_agents.research.settings import (
    DOCUMENTS_FILE,
    documents_path,
    open_documents_key,
)


def add(paths: Sequence[Path], data: Path | None, *, as_json: bool) -> ExitCode:
    """Add files and folders.

    Raises:
        InvalidArgumentError: a path does not exist, or a folder holds too many documents.
        ConfigurationError: the store can't be written.
        ModelUnavailableError: the embedding model does not answer.
    """
    settings = _load_settings(data, uses={"data_dir", "embeddings", "models"})
    index = _open_index(settings)
    with DocumentStore.open(_store_path(settings), _open_cipher(settings)) as store:
        report = add_documents(
            store, paths, index=index, on_file=lambda name: print_progress(f"reading {name}")
        )
    if as_json:
        print_json(asdict(report))
    else:
        for name in report.added:
            print(f"added {name}")
        for name in report.removed:
            print(f"removed {name}")
        if report.unchanged:
            print(f"unchanged: {_count(len(report.unchanged))}")
        if not any((report.added, report.removed, report.unchanged, report.refused)):
            print_stderr("nothing to add: there is no Markdown, text, HTML or PDF")
    for path, problem in report.refused.items():
        print_stderr(f"not added: {path}: {problem}")
    has_documents = report.added or report.unchanged or report.removed
    return ExitCode.OK if has_documents and not report.refused else ExitCode.FAILED


def list_all(data: Path | None, *, as_json: bool) -> ExitCode:
    """List the documents.

    Raises:
        ConfigurationError: the store can't be read.
    """
    store = _open_existing(_load_settings(data, uses={"data_dir"}))
    documents = []
    if store is not None:
        with store:
            documents = store.list_documents()
    if as_json:
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
    return ExitCode.OK


def remove(paths: Sequence[Path], data: Path | None, *, as_json: bool) -> ExitCode:
    """Remove documents. The files stay.

    Raises:
        InvalidArgumentError: a path matches no document; then nothing is removed.
        ConfigurationError: the store can't be written.
    """
    removed: dict[str, str] = {}
    store = _open_existing(_load_settings(data, uses={"data_dir"}))
    with store or contextlib.nullcontext():
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
    if as_json:
        print_json({"removed": list(removed.values())})
    else:
        for name in removed.values():
            print(f"removed {name}")
    return ExitCode.OK


def search(query: str, data: Path | None, *, limit: int, as_json: bool) -> ExitCode:
    """Print the passages that match a query.

    Raises:
        ConfigurationError: the store can't be read.
        ModelUnavailableError: the embedding model does not answer.
    """
    settings = _load_settings(data, uses={"data_dir", "embeddings", "models"})
    store = _open_existing(settings)
    hits: list[SearchHit] = []
    if store is not None:
        with store:
            hits = search_documents(store, query, limit=limit, index=_open_index(settings))
    if as_json:
        print_json([_as_json(hit) for hit in hits])
    else:
        for hit in hits:
            print(f"{hit.title}, {hit.place or 'whole'} ({hit.path})")
            print(f"    {' '.join(hit.text.split())}\n")
        if not hits:
            print_stderr("nothing fits")
    return ExitCode.OK if hits else ExitCode.FAILED


def _as_json(hit: SearchHit) -> dict[str, Any]:
    return asdict(hit) | {"place": hit.place}


def _load_settings(data: Path | None, *, uses: Collection[str]) -> Settings:
    return load_command_settings({"data_dir": data}, uses={*uses, *KEY_SETTINGS})


def _store_path(settings: Settings) -> Path:
    return documents_path(settings.data_dir)


def _open_existing(settings: Settings) -> DocumentStore | None:
    return DocumentStore.open_existing(_store_path(settings), _open_cipher(settings))


def _open_cipher(settings: Settings) -> Cipher | None:
    key = open_documents_key(settings)
    return None if key is None else key.cipher(name=DOCUMENTS_FILE)


def _open_index(settings: Settings) -> VectorIndex | None:
    model = EmbeddingModel.from_settings(settings.embeddings, settings.models)
    return VectorIndex(model.open()) if model else None


def _count(count: int) -> str:
    return f"{count} document{'' if count == 1 else 's'}"
