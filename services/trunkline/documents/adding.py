"""Adds files and folders to the documents, and takes away what is gone."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from trunkline.documents.embedding import Meanings
from trunkline.documents.finding import Candidate, candidates
from trunkline.documents.passages import Document, Passage, passages_of
from trunkline.documents.reading import Reader, Unreadable
from trunkline.documents.reading.kinds import FILE_LIMIT_BYTES
from trunkline.documents.store import DocumentStore

_PASSAGE_LIMIT: Final = 20_000


@dataclass(slots=True)
class Added:
    """What became of what was to be added: names of documents."""

    added: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    """They were below a folder that was added again, and are gone from it."""
    refused: dict[str, str] = field(default_factory=dict)
    """By path, why."""


def add(
    store: DocumentStore,
    paths: Sequence[Path],
    *,
    meanings: Meanings | None = None,
    on_file: Callable[[str], None] = lambda name: None,
) -> Added:
    """Add files, and the documents in folders and below; what was added before is replaced.

    A file that has the size and time it had is left as it is. Whatever is added stays, also when
    something later raises. `on_file` is told of each file before it is read.

    Raises:
        InvalidArgumentError: there is no such file or folder, or it holds too much.
        ConfigurationError: the store can't be used.
        ModelUnavailableError: `meanings` can't be asked.
    """
    done = Added()
    found = {path: list(candidates(path)) for path in paths}
    known = {document.path: document for document in store.documents()}
    embedded = store.embedded(meanings.name) if meanings else set(known)
    with Reader() as reader:
        for path, files in found.items():
            for file in files:
                before = known.get(str(file.path))
                if before and _is_same(file, before) and before.path in embedded:
                    done.unchanged.append(file.name)
                    continue
                on_file(file.name)
                try:
                    _put(store, reader, file, meanings)
                except Unreadable as error:
                    done.refused[str(file.path)] = str(error)
                else:
                    done.added.append(file.name)
            if path.is_dir():
                there = {str(file.path) for file in files}
                gone = [one for one in below(store, path.resolve()) if one.path not in there]
                store.remove([document.path for document in gone])
                done.removed += [document.name for document in gone]
    return done


def below(store: DocumentStore, path: Path) -> list[Document]:
    """Return the documents of this name or file, or below this folder; it may be gone."""
    place = path.resolve()
    return [
        document
        for document in store.documents()
        if document.name == str(path)
        or Path(document.path) == place
        or place in Path(document.path).parents
    ]


def _is_same(file: Candidate, before: Document) -> bool:
    return (file.size_bytes, file.modified_ns, file.name) == (
        before.size_bytes,
        before.modified_ns,
        before.name,
    )


def _put(store: DocumentStore, reader: Reader, file: Candidate, meanings: Meanings | None) -> None:
    if file.size_bytes > FILE_LIMIT_BYTES:
        raise Unreadable(f"it is larger than {FILE_LIMIT_BYTES // 1024**2} MiB")
    try:
        str(file.path).encode()
    except UnicodeEncodeError:
        raise Unreadable("its name is no text; rename it") from None
    extract = reader.read(file.path, file.media_type)
    passages = list(passages_of(extract.sections))
    if len(passages) > _PASSAGE_LIMIT:
        raise Unreadable("it holds too much text")
    document = Document(
        path=str(file.path),
        name=file.name,
        title=extract.title or file.name,
        media_type=file.media_type,
        size_bytes=file.size_bytes,
        modified_ns=file.modified_ns,
        page_count=extract.page_count,
    )
    model = meanings.name if meanings else ""
    texts = [_embedded_text(document, passage) for passage in passages]
    vectors = meanings.vectors_of(texts) if meanings else []
    store.put(document, passages, model=model, vectors=vectors)


def _embedded_text(document: Document, passage: Passage) -> str:
    """A passage with what stands above it: alone, it may not say what it is about."""
    return "\n".join((document.title, *passage.headings, passage.text))
