"""Declares the commands of the standard, and writes their help."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from trunkline.cli.a2a_cli.configuration import ConfigurationSources
from trunkline.cli.a2a_cli.console import Console, DebugLog
from trunkline.cli.a2a_cli.failures import usage
from trunkline.cli.a2a_cli.options import SECRETS, StandardOptions, list_options
from trunkline.cli.a2a_cli.session import CommandContext
from trunkline.cli.declaration import expand_parameters, set_parameters

Work = TypeVar("Work", bound=Callable[..., Awaitable[None]])

_INSECURE: Final = (
    "SECURITY WARNING: TLS certificates are not verified (--insecure); anyone in between can read "
    "what is sent, credentials included"
)
_HELP_COLUMN: Final = 26


class OutputRequest(Exception):  # noqa: N818  not an error
    """The user wants this text instead of the command: its help, or the version."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


@dataclass(slots=True)
class Invocation:
    """What the parser knows beside the arguments."""

    console: Console
    sources: ConfigurationSources
    is_json: bool
    """Failures are printed as JSON."""


class _WithHelp:
    """Raises its help, so that the caller prints it."""

    def get_help_option(self, ctx: Any) -> Any:  # noqa: ANN401  typer has no public names
        found = super().get_help_option(ctx)  # type: ignore[misc]
        if found is not None:
            found.callback = _request_help
        return found

    def format_usage(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        pieces = " ".join(self.collect_usage_pieces(ctx))  # type: ignore[attr-defined]
        formatter.write_usage(ctx.command_path, pieces, prefix="usage: ")


def _request_help(ctx: Any, _parameter: Any, is_wanted: bool) -> None:  # noqa: ANN401, FBT001
    if is_wanted and not ctx.resilient_parsing:
        raise OutputRequest(f"{ctx.get_help()}\n")


class StandardCommand(_WithHelp, TyperCommand):
    """A command, whose options may be configured. It keeps the order of its options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Parse the arguments."""
        if ctx.obj is not None:
            ctx.default_map = ctx.obj.sources.defaults()
        # The values by their names no longer tell in which order the options stood.
        parsed = self.make_parser(ctx).parse_args(args=list(args))
        ctx.meta["order"] = [parameter.name for parameter in parsed[2]]
        return list(super().parse_args(ctx, args))

    def format_help(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        """Write the help, which shows the configured value of each option and its source."""
        own: dict[str, Any] = {parameter.name: parameter for parameter in self.params}
        texts: dict[str, Any] = {
            name: getattr(parameter, "help", None) for name, parameter in own.items()
        }
        for names in list_options():
            if (found := ctx.obj.sources.find(names)) is not None:
                is_hidden = names.field in SECRETS or names.field == "svc_param"
                shown = "set" if is_hidden else found.text
                text = texts[names.field].removesuffix(f" [{names.default_text}]")
                own[names.field].help = f"{text} [{shown}, from {found.source}]"
        super().format_help(ctx, formatter)
        for name, text in texts.items():
            own[name].help = text


class StandardGroup(_WithHelp, TyperGroup):
    """A group of commands. Its help lists the commands in it by all of their words."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401
        """Write the list of commands."""
        prefix = ctx.command_path.split()[2:]
        rows = [
            (" ".join([*prefix, *words]), command.get_short_help_str(limit=100))
            for words, command in list_commands(self)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows, col_max=_HELP_COLUMN)


Words: TypeAlias = tuple[str, ...]


def list_commands(group: Any) -> list[tuple[Words, Any]]:  # noqa: ANN401
    """Return the commands in a group and in the groups in it, with their words."""
    found: list[tuple[Words, Any]] = []
    for name, member in group.commands.items():
        if hasattr(member, "commands"):
            found += [((name, *words), command) for words, command in list_commands(member)]
        else:
            found.append(((name,), member))
    return found


@dataclass(frozen=True, slots=True)
class SplitWords:
    """A command line, split into the words of the command and the other arguments."""

    command: Any
    """The command, or the group that was reached."""
    words: Sequence[str]
    rest: Sequence[str]
    has_unknown_word: bool = False
    """A word is no command of the group."""
    awaits_value: bool = False
    """The last argument is an option whose value comes next."""

    @property
    def is_group(self) -> bool:
        """More words are needed."""
        return hasattr(self.command, "commands")


def split_words(root: Any, argv: Sequence[str]) -> SplitWords:  # noqa: ANN401
    """Split a command line. The options of all commands may stand before its words."""
    with_value = {name for each in list_options() if each.takes_value for name in each.flags}
    words: list[str] = []
    rest: list[str] = []
    command, is_value = root, False
    for number, word in enumerate(argv):
        if not is_value and not word.startswith("-"):
            found = command.commands.get(word)
            if found is None:
                return SplitWords(command, words, [*rest, *argv[number:]], has_unknown_word=True)
            words.append(word)
            command = found
            if not hasattr(command, "commands"):
                return SplitWords(command, words, [*rest, *argv[number + 1 :]])
            continue
        is_value = not is_value and word in with_value
        rest.append(word)
    return SplitWords(command, words, rest, awaits_value=is_value)


def make_group(help_text: str) -> typer.Typer:
    """Return a group of commands."""
    return typer.Typer(
        help=help_text,
        cls=StandardGroup,
        rich_markup_mode=None,
        add_completion=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def command(group: typer.Typer, name: str) -> Callable[[Work], Work]:
    """Add a function to a group, as the command of a name.

    The first parameter of the function is the context. Its other parameters are the arguments and
    options that only this command has, and its docstring is the help. The command itself returns
    the coroutine of the function.
    """

    def declare(work: Work) -> Work:
        _, *own = inspect.signature(work).parameters.values()
        shared = inspect.Parameter(
            "options", inspect.Parameter.KEYWORD_ONLY, annotation=StandardOptions
        )
        typer_context = inspect.Parameter(
            "typer_context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context
        )
        names = [parameter.name for parameter in own]

        @functools.wraps(work)
        def start(typer_context: typer.Context, **values: Any) -> Awaitable[None]:  # noqa: ANN401
            arguments = {each: values.pop(each) for each in names}
            return work(_open_context(typer_context, StandardOptions(**values)), **arguments)

        set_parameters(start, [typer_context, *expand_parameters([*own, shared])])
        start.__doc__ = (work.__doc__ or "").partition("\n")[0]
        group.command(
            name,
            cls=StandardCommand,
            context_settings={"help_option_names": ["-h", "--help"]},
        )(start)
        return work

    return declare


def _open_context(typer_context: typer.Context, options: StandardOptions) -> CommandContext:
    """Return the context of a command, and warn of what its options expose."""
    from importlib import metadata

    invocation: Invocation = typer_context.obj
    order: list[str] = typer_context.meta["order"]
    if options.version:
        raise OutputRequest(f"{metadata.version('trunkline')}\n")
    if "wait" in order:
        if "returns_at_once" in order:
            raise usage("--wait and --async exclude each other")
        # An explicit choice between the two overrides a configured one.
        options = replace(options, returns_at_once=False)
    invocation.is_json = options.is_json
    invocation.console.add_secrets(options.secrets)
    if options.insecure:
        invocation.console.warn(_INSECURE)
    return CommandContext(
        invocation.console, options, invocation.sources, DebugLog(invocation.console), order
    )
