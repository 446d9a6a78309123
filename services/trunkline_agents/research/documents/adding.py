"""Finds the files that are meant by paths: folders are searched, hidden things are not."""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trunkline.errors import InvalidArgumentError
from trunkline_agents.research.documents.embeddings import EmbeddingIndex
from trunkline_agents.research.documents.formats import (
    FILE_LIMIT_BYTES,
    UnreadableFileError,
    clean_text,
    guess_media_type,
)
from trunkline_agents.research.documents.passages import Document, Passage, split_passages
from trunkline_agents.research.documents.reader import DocumentReader
from trunkline_agents.research.documents.store import DocumentStore

DEPTH_LIMIT = 32
FILE_LIMIT = 20_000
"""Files that one folder may hold; more are most likely not what was meant."""


@dataclass(frozen=True, slots=True)
class DocumentFile:
    """A file that may be a document."""

    path: Path
    name: str
    """How sources call it: its path from the folder on that was named."""
    media_type: str
    size_bytes: int
    modified_ns: int


def list_files(given: Path) -> Iterator[DocumentFile]:
    """Yield a named file, whatever it is called, or the documents of a folder, by name.

    Links below a folder aren't followed.

    Raises:
        InvalidArgumentError: there is nothing, or far too much.
    """
    try:
        path = given.resolve(strict=True)
        found = path.stat()
    except (OSError, RuntimeError) as error:
        said = getattr(error, "strerror", None) or "it can't be followed"
        raise InvalidArgumentError("PATH", f"{str(given)!r}: {said}") from error
    if stat.S_ISREG(found.st_mode):
        yield _candidate(path, path.name, found, guess_media_type(path) or "text/plain")
        return
    if not stat.S_ISDIR(found.st_mode):
        raise InvalidArgumentError("PATH", f"{str(given)!r} is neither a file nor a folder")
    count = 0
    for file, status in _files(path, depth=0):
        if media_type := guess_media_type(file):
            count += 1
            if count > FILE_LIMIT:
                problem = (
                    f"{str(given)!r} holds more than {FILE_LIMIT} documents; name folders in it"
                )
                raise InvalidArgumentError("PATH", problem)
            name = str(Path(path.name) / file.relative_to(path))
            yield _candidate(file, name, status, media_type)


def _files(folder: Path, *, depth: int) -> Iterator[tuple[Path, os.stat_result]]:
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError:
        # A folder that may not be read holds nothing for us.
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                if depth < DEPTH_LIMIT:
                    yield from _files(Path(entry.path), depth=depth + 1)
            elif entry.is_file(follow_symlinks=False):
                yield Path(entry.path), entry.stat(follow_symlinks=False)
        except OSError:
            continue


def _candidate(path: Path, name: str, status: os.stat_result, media_type: str) -> DocumentFile:
    return DocumentFile(path, _shown(name), media_type, status.st_size, status.st_mtime_ns)


def _shown(name: str) -> str:
    """A name as text: file systems take anything."""
    return clean_text(
        name.encode(errors="surrogateescape").decode(errors="replace").replace("\n", " ")
    )


_PASSAGE_LIMIT: Final = 20_000


@dataclass(slots=True)
class AddReport:
    """What became of what was to be added: names of documents."""

    added: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    """They were below a folder that was added again, and are gone from it."""
    refused: dict[str, str] = field(default_factory=dict)
    """By path, why."""


def add_documents(
    store: DocumentStore,
    paths: Sequence[Path],
    *,
    index: EmbeddingIndex | None = None,
    on_file: Callable[[str], None] = lambda name: None,
) -> AddReport:
    """Add files, and the documents in folders and below; what was added before is replaced.

    A file that has the size and time it had is left as it is. Whatever is added stays, also when
    something later raises. `on_file` is told of each file before it is read.

    Raises:
        InvalidArgumentError: there is no such file or folder, or it holds too much.
        ConfigurationError: the store can't be used.
        ModelUnavailableError: `index` can't be asked.
    """
    done = AddReport()
    found = {path: list(list_files(path)) for path in paths}
    known = {document.path: document for document in store.list_documents()}
    embedded = store.list_embedded(index.name) if index else set(known)
    with DocumentReader() as reader:
        for path, files in found.items():
            for file in files:
                before = known.get(str(file.path))
                if before and _is_same(file, before) and before.path in embedded:
                    done.unchanged.append(file.name)
                    continue
                on_file(file.name)
                try:
                    _put(store, reader, file, index)
                except UnreadableFileError as error:
                    done.refused[str(file.path)] = str(error)
                else:
                    done.added.append(file.name)
            if path.is_dir():
                there = {str(file.path) for file in files}
                gone = [
                    one for one in find_documents(store, path.resolve()) if one.path not in there
                ]
                store.remove([document.path for document in gone])
                done.removed += [document.name for document in gone]
    return done


def find_documents(store: DocumentStore, path: Path) -> list[Document]:
    """Return the documents of this name or file, or below this folder; it may be gone."""
    place = path.resolve()
    return [
        document
        for document in store.list_documents()
        if document.name == str(path)
        or Path(document.path) == place
        or place in Path(document.path).parents
    ]


def _is_same(file: DocumentFile, before: Document) -> bool:
    return (file.size_bytes, file.modified_ns, file.name) == (
        before.size_bytes,
        before.modified_ns,
        before.name,
    )


def _put(
    store: DocumentStore,
    reader: DocumentReader,
    file: DocumentFile,
    index: EmbeddingIndex | None,
) -> None:
    if file.size_bytes > FILE_LIMIT_BYTES:
        raise UnreadableFileError(f"it is larger than {FILE_LIMIT_BYTES // 1024**2} MiB")
    try:
        str(file.path).encode()
    except UnicodeEncodeError:
        raise UnreadableFileError("its name is no text; rename it") from None
    extract = reader.read(file.path, file.media_type)
    passages = list(split_passages(extract.sections))
    if len(passages) > _PASSAGE_LIMIT:
        raise UnreadableFileError("it holds too much text")
    document = Document(
        path=str(file.path),
        name=file.name,
        title=extract.title or file.name,
        media_type=file.media_type,
        size_bytes=file.size_bytes,
        modified_ns=file.modified_ns,
        page_count=extract.page_count,
    )
    model = index.name if index else ""
    texts = [_embedded_text(document, passage) for passage in passages]
    vectors = index.embed(texts) if index else []
    store.put(document, passages, model=model, vectors=vectors)


def _embedded_text(document: Document, passage: Passage) -> str:
    """A passage with what stands above it: alone, it may not say what it is about."""
    return "\n".join((document.title, *passage.headings, passage.text))
