"""Declares commands: a function has the words, the help and the arguments of its command."""

import argparse
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

Work: TypeAlias = Callable[..., Awaitable[None]]


class Argument(NamedTuple):
    """An argument or option that only one command has, or a few."""

    names: tuple[str, ...]
    settings: Mapping[str, Any]
    """As argparse takes them."""


@dataclass(frozen=True, slots=True)
class Command:
    """A command of the standard."""

    words: tuple[str, ...]
    help: str
    arguments: tuple[Argument, ...] = ()
    run: Work | None = None
    """It gets the context, and its arguments by their names. None: the parser has the answer."""


def argument(*names: str, **settings: Any) -> Argument:  # noqa: ANN401  argparse's settings
    """Return an argument for `command`, with what argparse takes."""
    return Argument(names, settings)


def command(words: str, help_text: str, *arguments: Argument) -> Callable[[Work], Command]:
    """Make a function the command of some words. Its parameters are the arguments."""

    def declare(work: Work) -> Command:
        return Command(tuple(words.split()), help_text, arguments, work)

    return declare


def count(text: str) -> int:
    """Return a whole number, as the type of an argument."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)


TASK: Final = argument("task", metavar="TASK", help="the id of the task")
CONFIG: Final = argument("config", metavar="CONFIG", help="the id of the config")
HISTORY: Final = argument("--history", metavar="N", type=count, help="with the last N messages")
STREAM: Final = argument(
    "--stream", action="store_true", help="print events as they come (json: one a line)"
)
