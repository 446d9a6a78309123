"""Adds files and folders to the documents, and removes documents whose file is gone.

Folders are searched for documents. Hidden files and folders are skipped.
"""

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trunkline.errors import InvalidArgumentError
from trunkline_agents.research.documents.formats import (
    FILE_LIMIT_BYTES,
    UnreadableFileError,
    clean_text,
    guess_media_type,
)
from trunkline_agents.research.documents.passages import Document, Passage, split_passages
from trunkline_agents.research.documents.reader import DocumentReader
from trunkline_agents.research.documents.store import DocumentStore
from trunkline_agents.research.documents.vectors import VectorIndex

DEPTH_LIMIT = 32
FILE_LIMIT = 20_000
"""Most documents in one folder. More suggest that the wrong folder was named."""
_PASSAGE_LIMIT: Final = 20_000


@dataclass(frozen=True, slots=True)
class DocumentFile:
    """A file that may be a document."""

    path: Path
    name: str
    """Its path from the named folder on. Sources show it."""
    media_type: str
    size_bytes: int
    modified_ns: int


def list_files(target: Path) -> Iterator[DocumentFile]:
    """Yield a named file of any name, or the documents of a folder, sorted by name.

    Links below a folder are not followed.

    Raises:
        InvalidArgumentError: the path does not exist, or a folder holds over FILE_LIMIT documents.
    """
    try:
        path = target.resolve(strict=True)
        path_status = path.stat()
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or "it can't be followed"
        raise InvalidArgumentError("PATH", f"{str(target)!r}: {reason}") from error
    if stat.S_ISREG(path_status.st_mode):
        yield _build_file(path, path.name, path_status, guess_media_type(path) or "text/plain")
        return
    if not stat.S_ISDIR(path_status.st_mode):
        raise InvalidArgumentError("PATH", f"{str(target)!r} is neither a file nor a folder")
    count = 0
    for file, status in _files(path, depth=0):
        if media_type := guess_media_type(file):
            count += 1
            if count > FILE_LIMIT:
                problem = (
                    f"{str(target)!r} holds more than {FILE_LIMIT} documents; name folders in it"
                )
                raise InvalidArgumentError("PATH", problem)
            name = str(Path(path.name) / file.relative_to(path))
            yield _build_file(file, name, status, media_type)


def _files(folder: Path, *, depth: int) -> Iterator[tuple[Path, os.stat_result]]:
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError:
        # A folder without permission to read counts as empty.
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


def _build_file(path: Path, name: str, status: os.stat_result, media_type: str) -> DocumentFile:
    return DocumentFile(path, _clean_name(name), media_type, status.st_size, status.st_mtime_ns)


def _clean_name(name: str) -> str:
    """Return a name as text. File systems allow any bytes in a name."""
    return clean_text(
        name.encode(errors="surrogateescape").decode(errors="replace").replace("\n", " ")
    )


@dataclass(slots=True)
class AddReport:
    """The result of adding files: names of documents."""

    added: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    """Documents whose file is gone from a folder that was added again."""
    refused: dict[str, str] = field(default_factory=dict)
    """The reasons, by path."""


def add_documents(
    store: DocumentStore,
    paths: Sequence[Path],
    *,
    index: VectorIndex | None = None,
    on_file: Callable[[str], None] = lambda name: None,
) -> AddReport:
    """Add files and the documents below folders. They replace earlier versions.

    A file with the same size and modification time is skipped. Documents that were added stay if
    a later step raises. `on_file` is called with the name of each file before it is read.

    Raises:
        InvalidArgumentError: a path does not exist, or a folder holds too many documents.
        ConfigurationError: the store can't be written.
        ModelUnavailableError: the embedding model does not answer.
    """
    report = AddReport()
    files_by_path = {path: list(list_files(path)) for path in paths}
    stored = {document.path: document for document in store.list_documents()}
    embedded = store.list_embedded(index.name) if index else set(stored)
    with DocumentReader() as reader:
        for path, files in files_by_path.items():
            for file in files:
                before = stored.get(str(file.path))
                if before and _is_unchanged(file, before) and before.path in embedded:
                    report.unchanged.append(file.name)
                    continue
                on_file(file.name)
                try:
                    _add_file(store, reader, file, index)
                except UnreadableFileError as error:
                    report.refused[str(file.path)] = str(error)
                else:
                    report.added.append(file.name)
            if path.is_dir():
                present = {str(file.path) for file in files}
                missing = [
                    document
                    for document in find_documents(store, path.resolve())
                    if document.path not in present
                ]
                store.remove([document.path for document in missing])
                report.removed += [document.name for document in missing]
    return report


def find_documents(store: DocumentStore, path: Path) -> list[Document]:
    """Return the documents with this name or path, or below this folder, which may be gone."""
    resolved = path.resolve()
    return [
        document
        for document in store.list_documents()
        if document.name == str(path)
        or Path(document.path) == resolved
        or resolved in Path(document.path).parents
    ]


def _is_unchanged(file: DocumentFile, before: Document) -> bool:
    return (file.size_bytes, file.modified_ns, file.name) == (
        before.size_bytes,
        before.modified_ns,
        before.name,
    )


def _add_file(
    store: DocumentStore,
    reader: DocumentReader,
    file: DocumentFile,
    index: VectorIndex | None,
) -> None:
    if file.size_bytes > FILE_LIMIT_BYTES:
        raise UnreadableFileError(f"it is larger than {FILE_LIMIT_BYTES // 1024**2} MiB")
    try:
        str(file.path).encode()
    except UnicodeEncodeError:
        raise UnreadableFileError("its name is not text; rename it") from None
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
    texts = [_embedded_text(passage) for passage in passages]
    vectors = index.embed(texts) if index else []
    store.put(document, passages, model=model, vectors=vectors)


def _embedded_text(passage: Passage) -> str:
    """Return a passage with its nearest heading.

    A text that all passages of a document share, such as the title, would only make them similar.
    """
    return "\n".join((*passage.headings[-1:], passage.text))
