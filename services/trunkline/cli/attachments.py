"""Reads the files to send with a question, and saves the files of an answer."""

import mimetypes
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final
from urllib.parse import urlsplit

from trunkline.cli.terminal import print_stderr
from trunkline.errors import ConfigurationError, InvalidArgumentError

if TYPE_CHECKING:
    from trunkline.cli.agent_client import AgentClient
    from trunkline.v1 import part_pb2

LIMIT_BYTES: Final = 3_000_000
"""The limit on the sum of a question's files. As base64, the sum is below the bridge's limit."""


def read_parts(files: Sequence[str]) -> "list[part_pb2.Part]":
    """Convert files, each a path or a URL, to A2A parts. The content at a URL is not read.

    Raises:
        InvalidArgumentError: one can't be read, or together they are too large.
    """
    if not files:
        # A question without files starts its mesh before it loads protobuf.
        return []
    parts = []
    remaining_bytes = LIMIT_BYTES
    for file in files:
        try:
            part = build_file_part(file)
        except OSError as error:
            raise InvalidArgumentError("--file", f"{file}: {error.strerror}") from None
        remaining_bytes -= len(part.raw)
        if remaining_bytes < 0:
            problem = (
                f"{file}: files are too large to be sent (at most {LIMIT_BYTES / 1e6:g} MB in "
                "all); give a URL where the mesh can fetch it"
            )
            raise InvalidArgumentError("--file", problem)
        parts.append(part)
    return parts


def build_file_part(source: str, *, folder: Path = Path()) -> "part_pb2.Part":
    """Return the part of a file: its bytes, or its URL, which is not read.

    A path is below `folder`, or below the user's home after `~`. The part has the name and the
    media type of its path, if they are known.

    Raises:
        OSError: the file can't be read.
    """
    from trunkline.v1 import part_pb2

    if source.startswith(("http://", "https://")):
        part, path = part_pb2.Part(url=source), urlsplit(source).path
    else:
        part, path = part_pb2.Part(raw=(folder / Path(source).expanduser()).read_bytes()), source
    part.filename = _sanitize(path)
    part.media_type = mimetypes.guess_type(part.filename)[0] or ""
    return part


async def save_files(client: "AgentClient", parts: "Iterable[part_pb2.Part]", folder: Path) -> None:
    """Save the files of an answer in a folder under unused names; print their paths.

    Files on other hosts are not saved: their URLs are printed.

    Raises:
        ConfigurationError: the folder is not writable.
        TrunklineError: a file can't be read.
    """
    for part in parts:
        if part.url and not client.has_origin_of(part.url):
            print_stderr(f"not saved, it is on another host: {part.url}")
            continue
        with create_file(folder, part.filename) as file:
            if part.url:
                async for piece in client.download(part.url):
                    file.write(piece)
            else:
                file.write(part.raw)


@contextmanager
def create_file(folder: Path, name: str) -> Iterator[BinaryIO]:
    """Create a file as `open_new_file` does, and print its path at the end of the block.

    Raises:
        ConfigurationError: the folder is not writable.
    """
    try:
        with open_new_file(folder, _sanitize(name) or "file") as (path, file):
            yield file
    except OSError as error:
        raise ConfigurationError("--save", f"{folder}: {error.strerror or error}") from error
    print_stderr(f"saved {path}")


@contextmanager
def open_new_file(folder: Path, name: str) -> Iterator[tuple[Path, BinaryIO]]:
    """Create a file in a folder, under the name or a similar unused name.

    After an error in the block, the file is deleted.

    Raises:
        OSError: the folder is not writable.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = _unused_path(folder, name)
    with path.open("xb") as file:
        try:
            yield path, file
        except BaseException:
            # Delete a partial file, because it looks like a complete one.
            path.unlink(missing_ok=True)
            raise


def _sanitize(name: str) -> str:
    # Imported here: questions without files need no code that stores them.
    from trunkline.journal.artifacts.references import sanitize_filename

    return sanitize_filename(name)


def _unused_path(folder: Path, name: str) -> Path:
    path, number = folder / name, 1
    # `exists` would follow a link, and a broken one counts as used too.
    while os.path.lexists(path):
        number += 1
        path = folder / f"{Path(name).stem}-{number}{Path(name).suffix}"
    return path
