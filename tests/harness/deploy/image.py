"""The container file of `deploy/`, as far as processes need it."""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[3]
CONTAINERFILE: Final = ROOT / "deploy/Containerfile"


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """The settings of a container's processes, from the last stage of a container file."""

    entrypoint: Sequence[str]
    command: Sequence[str]
    """The arguments of a container that is started without any."""
    healthcheck: Sequence[str]
    environment: Mapping[str, str]
    labels: Mapping[str, str]
    user: str
    folder: str
    """The current folder of the processes."""
    volumes: frozenset[str]
    ports: frozenset[int]


def read_image(file: Path = CONTAINERFILE) -> Image:
    """Return the image of a container file."""
    stage: list[tuple[str, str]] = []
    for name, words in _instructions(file.read_text(encoding="utf-8")):
        if name == "FROM":
            stage = []
        stage.append((name, words))
    last = dict(stage)
    return Image(
        entrypoint=json.loads(last["ENTRYPOINT"]),
        command=json.loads(last["CMD"]),
        healthcheck=json.loads(last["HEALTHCHECK"].partition(" CMD ")[2]),
        environment=_pairs(words for name, words in stage if name == "ENV"),
        labels=_pairs(words for name, words in stage if name == "LABEL"),
        user=last["USER"],
        folder=last["WORKDIR"],
        volumes=frozenset(words for name, words in stage if name == "VOLUME"),
        ports=frozenset(
            int(word) for name, words in stage if name == "EXPOSE" for word in words.split()
        ),
    )


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).splitlines():
        if line.strip():
            name, _, words = line.partition(" ")
            yield name, words.strip()


def _pairs(lines: Iterator[str]) -> dict[str, str]:
    pairs = (word.partition("=") for line in lines for word in shlex.split(line))
    return {name: value for name, _, value in pairs}
