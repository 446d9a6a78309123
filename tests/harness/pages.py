"""The pages of the documentation, and the commands in their fenced blocks."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_FENCE: Final = re.compile(
    r"(?P<mark><!-- run -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_HEADING: Final = re.compile("^#+ (.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: str
    section: str
    """The last heading before it."""
    line: int
    language: str
    text: str
    is_run: bool

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return README.md and the pages of docs/."""
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(language: str) -> list[Block]:
    """Return all blocks of a language."""
    return [block for page in pages() for block in read_blocks(page) if block.language == language]


def read_blocks(page: Path) -> Iterator[Block]:
    """Yield the blocks of a page."""
    text = page.read_text(encoding="utf-8")
    for match in _FENCE.finditer(text):
        yield Block(
            page=page.relative_to(ROOT).as_posix(),
            section=_HEADING.findall(text, 0, match.start())[-1],
            line=text.count("\n", 0, match.start("language")) + 1,
            language=match["language"],
            text=match["text"],
            is_run=match["mark"] is not None,
        )


def commands(block: Block) -> Iterator[tuple[list[str], list[str]]]:
    """Yield each command as words, with the lines of output that follow it."""
    words: list[str] = []
    output: list[str] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            if words:
                yield words, output
            words, output = shlex.split(line[2:], comments=True), []
        elif line:
            output.append(line)
    if words:
        yield words, output


def trunkline_words(words: list[str]) -> list[str] | None:
    """Return what follows `trunkline` in a command, or None for another program."""
    for place, word in enumerate(words):
        if word in {"trunkline", ".venv/bin/trunkline"}:
            return words[place + 1 :]
        if "=" not in word:
            return None
    return None
