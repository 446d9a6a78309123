"""Parses the arguments by argparse, which keeps the order of part flags, and writes the help."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from trunkline.cli.a2a_cli.commands import COMMANDS, HELP
from trunkline.cli.a2a_cli.declaration import Command
from trunkline.cli.a2a_cli.failures import usage
from trunkline.cli.a2a_cli.options import OPTIONS, OptionSpec
from trunkline.cli.a2a_cli.text_format import PROGRAM

_ONLY_HELP: Final = argparse.SUPPRESS


class HelpRequest(Exception):  # noqa: N818  not an error
    """The user wants this text instead of the command."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


class _Parser(argparse.ArgumentParser):
    """A parser that raises its errors, and never colours its help."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401  argparse's options
        super().__init__(
            add_help=False,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            **options,
        )
        self.color = False

    def error(self, message: str) -> NoReturn:
        raise usage(message, f"see {self.prog} --help")


class _Help(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        raise HelpRequest(parser.format_help())


_BY_WORDS: Final[Mapping[tuple[str, ...], Command]] = {each.words: each for each in COMMANDS}


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    """A parsed command line."""

    command: Command
    flags: Mapping[str, Any]
    """The values of the options of all commands, only those that were given."""
    arguments: Mapping[str, Any]
    """The command's own arguments."""
    wants_version: bool
    """Only the version is to be printed."""


def parse_arguments(argv: Sequence[str], effective: Mapping[str, str]) -> ParsedCommand:
    """Parse a command line. `effective` has the values that help shows for unset options.

    Raises:
        HelpRequest: the user wants help.
        CommandError: the arguments are wrong.
    """
    words, rest = split_words(argv)
    if words not in _BY_WORDS:
        wants_help = not rest or "-h" in rest or "--help" in rest
        if words and wants_help and any(spec.words[: len(words)] == words for spec in COMMANDS):
            raise HelpRequest(format_help(words, effective))
        if not words and ("-h" in argv or "--help" in argv):
            raise HelpRequest(format_help((), effective))
        name = " ".join(words) or (rest[0] if rest else "")
        raise usage(f"there is no command {name!r}" if name else "no command is given", _SEE_HELP)
    values = vars(build_parser(_BY_WORDS[words], effective).parse_args(rest))
    values.pop("config_file", None)
    wants_version = values.pop("version", False)
    flags = {option.key: values.pop(option.key) for option in OPTIONS if option.key in values}
    if words == HELP.words:
        raise HelpRequest(format_help(tuple(values["command"]), effective))
    return ParsedCommand(_BY_WORDS[words], flags, values, wants_version)


_SEE_HELP: Final = f"see {PROGRAM} --help"


def split_words(argv: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    """Return the words of the command so far, and the other arguments. Options may come before."""
    takes_value = {
        flag for option in OPTIONS if option.kind != "flag" for flag in _flags_of(option)
    } | {"--config"}
    words: list[str] = []
    rest: list[str] = []
    is_value = False
    for number, argument in enumerate(argv):
        longer = (*words, argument)
        if is_value:
            is_value = False
        elif argument.startswith("-"):
            is_value = argument in takes_value
        elif any(spec.words[: len(longer)] == longer for spec in COMMANDS):
            words.append(argument)
            continue
        else:
            return tuple(words), [*rest, *argv[number:]]
        rest.append(argument)
        if tuple(words) in _BY_WORDS:
            return tuple(words), [*rest, *argv[number + 1 :]]
    return tuple(words), rest


def _flags_of(option: OptionSpec) -> list[str]:
    names = [option.name, *option.aliases]
    return [*([option.short] if option.short else []), *(f"--{name}" for name in names)]


def format_help(words: tuple[str, ...], effective: Mapping[str, str]) -> str:
    """Return the help of a command, of a group of commands, or of all.

    Raises:
        CommandError: there is no such command.
    """
    if spec := _BY_WORDS.get(words):
        return build_parser(spec, effective).format_help()
    members = [spec for spec in COMMANDS if spec.words[: len(words)] == words]
    if not members:
        raise usage(f"there is no command {' '.join(words)!r}", _SEE_HELP)
    parser = _Parser(
        prog=" ".join((PROGRAM, *words)),
        usage="%(prog)s COMMAND [ARGUMENTS] [OPTIONS]",
        description="The command line of A2A's standard, for any A2A 1.x agent.",
        epilog="\n".join(
            ["Commands:", *(f"  {' '.join(spec.words):26}{spec.help}" for spec in members)]
        ),
    )
    _add_options(parser, effective)
    return parser.format_help()


def build_parser(spec: Command, effective: Mapping[str, str]) -> argparse.ArgumentParser:
    """Return the parser of a command's arguments. `effective`: see `parse_arguments`."""
    parser = _Parser(prog=" ".join((PROGRAM, *spec.words)), description=spec.help)
    for names, settings in spec.arguments:
        parser.add_argument(*names, **settings)
    _add_options(parser, effective)
    return parser


def _add_options(parser: argparse.ArgumentParser, effective: Mapping[str, str]) -> None:
    group = parser.add_argument_group("options of all commands")
    for option in OPTIONS:
        current = effective.get(option.key) or option.default
        text = option.help + (f" [{current}]" if current else "")
        common: dict[str, Any] = {
            "dest": option.key,
            "default": _ONLY_HELP,
            "help": text.replace("%", "%%"),
        }
        if option.kind == "flag":
            group.add_argument(*_flags_of(option), action="store_true", **common)
        elif option.kind == "list":
            group.add_argument(
                *_flags_of(option), action="append", metavar=option.metavar, **common
            )
        else:
            choices = option.choices or None
            group.add_argument(
                *_flags_of(option), metavar=option.metavar, choices=choices, **common
            )
    group.add_argument(
        "--config",
        dest="config_file",
        metavar="FILE",
        default=_ONLY_HELP,
        help="Read this .env file, not the local one.",
    )
    group.add_argument("-h", "--help", action=_Help, nargs=0, default=_ONLY_HELP, help="Show this.")
    group.add_argument(
        "-v", "--version", action="store_true", default=_ONLY_HELP, help="Print the version."
    )
