"""Agents with random but predictable output: the seed in the request determines it."""

import asyncio
import random
from collections.abc import Sequence
from dataclasses import dataclass

from trunkline import TaskContext, agent, run

# Texts that break careless escaping, splitting and joining.
_ALPHABET = ("a", "b ", "\n", '"', "\\", "é", "🚂", "\u2028", "{", "⟦", "data: ", "\x00", "")


@dataclass(frozen=True, slots=True)
class Piece:
    """One append: the number of the artifact, the text, and True if it is the artifact's last."""

    artifact: int
    text: str
    is_last: bool
    pause_s: float | None


def script_of(seed: int) -> Sequence[Piece]:
    """Return the appends of an agent with this seed."""
    rng = random.Random(seed)
    remaining = {number: rng.randrange(1, 12) for number in range(rng.randrange(1, 4))}
    pieces = []
    while remaining:
        number = rng.choice(list(remaining))
        remaining[number] -= 1
        is_last = remaining[number] == 0
        if is_last:
            del remaining[number]
        text = "".join(rng.choices(_ALPHABET, k=rng.randrange(6)))
        pause_s = rng.choice([None, None, 0.0, 0.0, 0.001, 0.003])
        pieces.append(Piece(number, text, is_last and rng.random() < 0.7, pause_s))
    return pieces


def texts_of(seed: int) -> dict[str, str]:
    """The whole text of each artifact, by its name."""
    texts: dict[str, str] = {}
    for piece in script_of(seed):
        name = f"{seed}.{piece.artifact}"
        texts[name] = texts.get(name, "") + piece.text
    return texts


async def act(task: TaskContext, seed: int) -> None:
    """Run the script of the seed."""
    artifacts = {}
    for piece in script_of(seed):
        if piece.artifact not in artifacts:
            artifacts[piece.artifact] = task.artifact(f"{seed}.{piece.artifact}")
        if piece.pause_s is not None:
            await asyncio.sleep(piece.pause_s)
        await artifacts[piece.artifact].append(piece.text, last=piece.is_last)


@agent(
    name="leaf",
    description="Writes what its seed says.",
    tags=["leaf"],
    repeatable=True,
)
async def leaf(task: TaskContext) -> None:
    """Run `SEED`."""
    await act(task, int(task.text))


if __name__ == "__main__":
    run(leaf)
