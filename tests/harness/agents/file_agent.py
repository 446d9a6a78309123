"""An agent that makes files of a requested size, and describes the files that it receives."""

import hashlib
import random
from collections.abc import AsyncIterator

from trunkline import TaskContext, agent

PIECE_BYTES = 1_000_000


def pieces(seed: int, count: int) -> AsyncIterator[bytes]:
    """Yield a file in pieces of a million bytes, which compression can't shrink."""

    async def make() -> AsyncIterator[bytes]:
        rng = random.Random(seed)
        for _ in range(count):
            yield rng.randbytes(PIECE_BYTES)

    return make()


@agent(
    name="files",
    description="Makes files and reads files.",
    tags=["file"],
    input_modes=["*/*"],
    output_modes=["*/*"],
    repeatable=True,
)
async def files(task: TaskContext) -> None:
    """Make a file of so many pieces ("file 7 20"). Write size and checksum of received files."""
    artifact = task.artifact("files")
    words = task.text.split()
    if words[:1] == ["file"]:
        seed, count = int(words[1]), int(words[2])
        await artifact.attach(pieces(seed, count), filename="made.bin")
    for part in task.message.parts:
        if part.HasField("text"):
            continue
        digest, size_bytes = hashlib.sha256(), 0
        async with task.open(part) as source:
            async for piece in source:
                digest.update(piece)
                size_bytes += len(piece)
        await artifact.append(f"{size_bytes} {digest.hexdigest()}\n")
    await artifact.close()
