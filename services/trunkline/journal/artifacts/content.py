"""Reads content in chunks, and runs blocking file operations in threads."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Final, ParamSpec, TypeAlias, TypeVar

FileContent: TypeAlias = bytes | Path | AsyncIterator[bytes]
"""Bytes, a file, or chunks as they arrive."""

CHUNK_BYTES: Final = 256 * 1024
"""The size of one read, write or message of ArtifactService."""

_P = ParamSpec("_P")
_Result = TypeVar("_Result")


async def iter_chunks(content: FileContent) -> AsyncGenerator[bytes]:
    """Yield content in chunks of at most CHUNK_BYTES.

    Raises:
        OSError: the file can't be read.
    """
    if isinstance(content, bytes):
        for offset in range(0, len(content), CHUNK_BYTES):
            yield content[offset : offset + CHUNK_BYTES]
    elif isinstance(content, Path):
        # Opened on the loop: if a thread opened it, cancellation would lose the open file.
        with content.open("rb") as file:
            while chunk := await run_in_thread(file.read, CHUNK_BYTES):
                yield chunk
    else:
        async for piece in content:
            for offset in range(0, len(piece), CHUNK_BYTES):
                yield piece[offset : offset + CHUNK_BYTES]


async def run_in_thread(
    work: Callable[_P, _Result], *args: _P.args, **kwargs: _P.kwargs
) -> _Result:
    """Run a blocking function in a thread. Cancellation takes effect after it has returned."""
    loop = asyncio.get_running_loop()
    running = loop.run_in_executor(None, partial(work, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([running])
        raise
