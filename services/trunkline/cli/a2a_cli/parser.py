"""The commands and their arguments, parsed by argparse, which keeps the order of part flags."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from trunkline.cli.a2a_cli.failures import usage
from trunkline.cli.a2a_cli.messages import PartFlag
from trunkline.cli.a2a_cli.oauth import CLIENT_CREDENTIALS, DEVICE_CODE
from trunkline.cli.a2a_cli.options import OPTIONS, OptionSpec
from trunkline.cli.a2a_cli.text_format import PROGRAM

SHELLS: Final = ("bash", "zsh", "fish")
_LEVELS: Final = ("must", "should", "may")
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


class _AddPart(argparse.Action):
    """Appends a part, in the order of the flags."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,  # noqa: ANN401  argparse's type
        option_string: str | None = None,
    ) -> None:
        parts = _parts_of(namespace)
        if option_string == "--media-type":
            if not parts:
                raise usage("--media-type must follow --text, --file or --data")
            parts[-1].media_type = values
        else:
            parts.append(PartFlag(self.dest.removeprefix("part_"), values))  # type: ignore[arg-type]


def _parts_of(namespace: argparse.Namespace) -> list[PartFlag]:
    if not hasattr(namespace, "parts"):
        namespace.parts = []
    parts: list[PartFlag] = namespace.parts
    return parts


@dataclass(frozen=True, slots=True)
class CommandSpec:
    """A command: its words, its help and its own arguments."""

    words: tuple[str, ...]
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]


def _nothing(_: argparse.ArgumentParser) -> None:
    """Add no arguments."""


def _send(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("message", nargs="?", help="a text, the first part of the message")
    for name, metavar, text in (
        ("text", "TEXT", "add a text part"),
        ("file", "PATH|URL", "add a file: its bytes, or a URL that the agent fetches"),
        ("data", "PATH|-", "add a JSON file, or JSON from stdin"),
    ):
        parser.add_argument(
            f"--{name}", action=_AddPart, dest=f"part_{name}", metavar=metavar, help=text
        )
    parser.add_argument(
        "--media-type", action=_AddPart, metavar="TYPE", help="the type of the part before it"
    )
    _stream(parser)


def _stream(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--stream", action="store_true", help="print events as they come (json: one a line)"
    )


def _task(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("task", metavar="TASK", help="the id of the task")


def _history(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--history", metavar="N", type=_count, help="with the last N messages")


def _task_get(parser: argparse.ArgumentParser) -> None:
    _task(parser)
    _history(parser)


def _task_list(parser: argparse.ArgumentParser) -> None:
    _history(parser)
    parser.add_argument("--status", metavar="STATE", help="only tasks in this state")
    parser.add_argument("--page-size", metavar="N", type=_count, help="tasks of a page")
    parser.add_argument("--page-token", metavar="TOKEN", help="the page to show")
    parser.add_argument("--all", action="store_true", help="all pages")
    parser.add_argument("--artifacts", action="store_true", help="with their artifacts")
    parser.add_argument("--stream", action="store_true", help="json: one task a line")


def _task_subscribe(parser: argparse.ArgumentParser) -> None:
    _task(parser)
    _stream(parser)


def _task_download(parser: argparse.ArgumentParser) -> None:
    _task(parser)
    parser.add_argument("--dir", default=".", metavar="DIR", help="the folder (default: .)")


def _push_create(parser: argparse.ArgumentParser) -> None:
    _task(parser)
    parser.add_argument("url", metavar="URL", help="the webhook")
    parser.add_argument("--id", default="", metavar="ID", help="the id of the config")
    parser.add_argument("--token", default="", metavar="TOKEN", help="sent with each notification")
    parser.add_argument(
        "--auth", default="", metavar="'SCHEME CREDENTIALS'", help="for the webhook"
    )


def _push_config(parser: argparse.ArgumentParser) -> None:
    _task(parser)
    parser.add_argument("config", metavar="CONFIG", help="the id of the config")


def _push_listen(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen", default="127.0.0.1:0", metavar="HOST:PORT", help="(default: a free port here)"
    )
    parser.add_argument("--token", default="", metavar="TOKEN", help="refuse posts without it")
    parser.add_argument("--count", metavar="N", type=_count, help="stop after N notifications")


def _card_get(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--extended", action="store_true", help="the card for authenticated callers"
    )
    parser.add_argument("--validate", action="store_true", help="check it against A2A's schema")


def _auth_login(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scheme", default="", metavar="NAME", help="the scheme of the card")
    parser.add_argument("--flow", default="", choices=(DEVICE_CODE, CLIENT_CREDENTIALS))
    parser.add_argument("--scope", default="", metavar="SCOPES", help="separated by spaces")


def _demo_server(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--listen", default="127.0.0.1:9999", metavar="HOST:PORT", help="(default: 127.0.0.1:9999)"
    )
    parser.add_argument(
        "--grpc-listen", default="", metavar="HOST:PORT", help="(default: any port)"
    )


def _conformance(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tck", default="", metavar="DIR", help="a checkout of the TCK")
    parser.add_argument("--level", default="must", choices=_LEVELS, help="(default: must)")


def _completion(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=SHELLS)


def _help_words(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="the command to explain")


COMMANDS: Final = (
    CommandSpec(("send",), "Send a message; start or continue a task.", _send),
    CommandSpec(("task", "get"), "Show a task; --wait polls it until it ends.", _task_get),
    CommandSpec(("task", "list"), "List tasks.", _task_list),
    CommandSpec(("task", "cancel"), "Cancel a task.", _task),
    CommandSpec(("task", "subscribe"), "Follow a task's events.", _task_subscribe),
    CommandSpec(("task", "download"), "Save a task's artifacts.", _task_download),
    CommandSpec(("task", "push-config", "create"), "Create a webhook of a task.", _push_create),
    CommandSpec(("task", "push-config", "get"), "Show a webhook of a task.", _push_config),
    CommandSpec(("task", "push-config", "list"), "List the webhooks of a task.", _task),
    CommandSpec(("task", "push-config", "delete"), "Delete a webhook of a task.", _push_config),
    CommandSpec(("task", "push-config", "listen"), "Receive notifications.", _push_listen),
    CommandSpec(("card", "get"), "Show an agent's card.", _card_get),
    CommandSpec(("auth", "login"), "Log in with OAuth or OpenID Connect.", _auth_login),
    CommandSpec(("config", "show"), "Show each setting and where it comes from.", _nothing),
    CommandSpec(("chat",), "Talk with an agent, line by line.", _nothing),
    CommandSpec(("conformance",), "Check an agent with A2A's TCK.", _conformance),
    CommandSpec(("demo-server",), "Run an agent to practise on.", _demo_server),
    CommandSpec(("completion",), "Print a completion script.", _completion),
    CommandSpec(("help",), "Show usage.", _help_words),
)
_BY_WORDS: Final[Mapping[tuple[str, ...], CommandSpec]] = {spec.words: spec for spec in COMMANDS}


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number")
    return int(text)


@dataclass(frozen=True, slots=True)
class ParsedCommand:
    """A parsed command line."""

    words: tuple[str, ...]
    flags: Mapping[str, Any]
    """The values of the options of all commands, only those that were given."""
    arguments: argparse.Namespace
    """The command's own arguments."""


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
    parser = build_parser(_BY_WORDS[words], effective)
    namespace = parser.parse_args(rest)
    values = vars(namespace)
    flags = {option.key: values.pop(option.key) for option in OPTIONS if option.key in values}
    if values.get("message") is not None:
        _parts_of(namespace).insert(0, PartFlag("text", values["message"]))
    if words == ("help",):
        raise HelpRequest(format_help(tuple(namespace.command), effective))
    return ParsedCommand(words, flags, namespace)


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


def build_parser(spec: CommandSpec, effective: Mapping[str, str]) -> argparse.ArgumentParser:
    """Return the parser of a command's arguments. `effective`: see `parse_arguments`."""
    parser = _Parser(prog=" ".join((PROGRAM, *spec.words)), description=spec.help)
    spec.add_arguments(parser)
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
        metavar="FILE",
        default=_ONLY_HELP,
        help="Read this .env file, not the local one.",
    )
    group.add_argument("-h", "--help", action=_Help, nargs=0, default=_ONLY_HELP, help="Show this.")
    group.add_argument(
        "-v", "--version", action="store_true", default=_ONLY_HELP, help="Print the version."
    )
