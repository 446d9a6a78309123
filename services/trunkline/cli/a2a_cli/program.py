"""Runs a command of `trunkline a2a`: parses, configures, and reports the failure."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Final

from typer.main import get_command

from trunkline.cli.a2a_cli import (
    cards,
    chat,
    conformance,
    demo_server,
    login,
    push_configs,
    sending,
    tasks,
)
from trunkline.cli.a2a_cli.configuration import ConfigurationSources, describe_settings
from trunkline.cli.a2a_cli.console import Console
from trunkline.cli.a2a_cli.declaration import (
    Invocation,
    OutputRequest,
    SplitWords,
    command,
    make_group,
    split_words,
)
from trunkline.cli.a2a_cli.failures import CommandError, StandardExit, to_failure, usage
from trunkline.cli.a2a_cli.options import list_options
from trunkline.cli.a2a_cli.output import ResultPrinter
from trunkline.cli.a2a_cli.session import CommandContext
from trunkline.cli.a2a_cli.text_format import PROGRAM
from trunkline.cli.completion_scripts import SCRIPTS
from trunkline.cli.exits import ExitCode, discard_stdout
from trunkline.cli.options import argument
from trunkline.cli.terminal import is_text
from trunkline.cli.usage import UsageError

_HELP: Final = (
    "The command line of A2A's standard, for any A2A 1.x agent. `help COMMAND` shows the options."
)
_HELP_FLAGS: Final = frozenset({"-h", "--help"})
_VERSION_FLAGS: Final = frozenset({"-v", "--version"})


class Shell(StrEnum):
    """The shells that complete words."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


async def show_configuration(context: CommandContext) -> None:
    """Show each setting and where it comes from."""
    given = frozenset(context.option_order)
    reports = describe_settings(context.options, context.sources, given)
    rows = [{"name": each.name, "value": each.value, "source": each.source} for each in reports]
    fields: list[tuple[str, object]] = [
        (each.name, f"{each.text} ({each.source})".lstrip()) for each in reports
    ]
    ResultPrinter(context).fields({"settings": rows}, fields)


async def print_script(
    context: CommandContext, *, shell: Annotated[Shell, argument("SHELL", "bash, zsh or fish.")]
) -> None:
    """Print a completion script. It is the script of `trunkline`."""
    context.console.write_text(f"{SCRIPTS[shell].strip()}\n")


async def show_help(
    context: CommandContext,
    *,
    words: Annotated[list[str] | None, argument("COMMAND", "The command to explain.")] = None,
) -> None:
    """Show usage."""
    # The parser answers `help`.


_GROUPS: Final[Mapping[str, str]] = {
    "task": "Tasks of an agent.",
    "task push-config": "Webhooks of a task.",
    "card": "Cards of agents.",
    "auth": "Credentials of agents.",
    "config": "The configuration.",
}
# By their words, in the order in which help lists them.
_COMMANDS: Final[Mapping[str, Callable[..., Awaitable[None]]]] = {
    "send": sending.send,
    "task get": tasks.get,
    "task list": tasks.list_tasks,
    "task cancel": tasks.cancel,
    "task subscribe": tasks.subscribe,
    "task download": tasks.download,
    "task push-config create": push_configs.create,
    "task push-config get": push_configs.get,
    "task push-config list": push_configs.list_configs,
    "task push-config delete": push_configs.delete,
    "task push-config listen": push_configs.listen,
    "card get": cards.get,
    "auth login": login.log_in,
    "config show": show_configuration,
    "chat": chat.chat,
    "conformance": conformance.check_agent,
    "demo-server": demo_server.run_demo_server,
    "completion": print_script,
    "help": show_help,
}


@lru_cache(maxsize=1)
def build_commands() -> Any:  # noqa: ANN401  typer has no public name for it
    """Return the parser of all commands."""
    groups = {"": make_group(_HELP)}
    for words, help_text in _GROUPS.items():
        parent, _, name = words.rpartition(" ")
        groups[words] = make_group(help_text)
        groups[parent].add_typer(groups[words], name=name)
    for words, work in _COMMANDS.items():
        parent, _, name = words.rpartition(" ")
        command(groups[parent], name)(work)
    return get_command(groups[""])


def main(argv: Sequence[str]) -> int:
    """Run a command in this process; return its exit code."""
    console = Console.standard()
    try:
        return asyncio.run(run(argv, console))
    except KeyboardInterrupt:
        return ExitCode.CANCELED
    except BrokenPipeError:
        discard_stdout()
        return StandardExit.FAILED


async def run(argv: Sequence[str], console: Console) -> int:
    """Run a command; return its exit code. A failure is printed as the output format wants it."""
    is_json = _wants_json(argv, console)
    invocation: Invocation | None = None
    try:
        if not all(map(is_text, argv)):
            raise usage("an argument is not UTF-8 text")
        sources = ConfigurationSources(console.environment, console.folder, _config_file(argv))
        is_json = is_json or _wants_json_by_file(argv, sources)
        for warning in sources.warnings:
            console.warn(warning)
        invocation = Invocation(console, sources, is_json)
        await _parse(argv, invocation)
    except OutputRequest as request:
        console.write_text(request.text)
        return StandardExit.OK
    except BrokenPipeError:
        raise
    except Exception as error:  # noqa: BLE001  every failure is reported in the same form
        is_json = invocation.is_json if invocation else is_json
        return _report(error, console, is_json=is_json, is_debug="--debug" in argv)
    return StandardExit.OK


def _parse(argv: Sequence[str], invocation: Invocation) -> Awaitable[None]:
    """Return the work of a command line.

    Raises:
        OutputRequest: the user wants help or the version.
        CommandError: the arguments are wrong.
    """
    root = build_commands()
    split = split_words(root, argv)
    if list(split.words) == ["help"]:
        split = split_words(root, [*split.rest, "--help"])
    try:
        arguments = _complete(split)
        with root.make_context(PROGRAM, arguments, obj=invocation) as context:
            work: Awaitable[None] = root.invoke(context)
            return work
    except UsageError as error:
        path = error.ctx.command_path if error.ctx else PROGRAM
        message = " ".join(error.format_message().split())
        raise usage(message[:1].lower() + message[1:], f"see {path} --help") from None


def _complete(split: SplitWords) -> list[str]:
    """Return the arguments with the words of the command first."""
    wants_help = _HELP_FLAGS.intersection(split.rest) or (split.words and not split.rest)
    if split.is_group and wants_help:
        return [*split.words, "--help"]
    if split.is_group and _VERSION_FLAGS.intersection(split.rest):
        return ["help", "--version"]
    return [*split.words, *split.rest]


def _report(error: Exception, console: Console, *, is_json: bool, is_debug: bool) -> int:
    """Print a failure: as JSON to stdout, where the result would be, else to stderr."""
    failure = to_failure(error)
    failure.message = console.redact(failure.message)
    if is_debug and not isinstance(error, CommandError):
        import traceback

        console.warn("".join(traceback.format_exception(error)))
    if is_json:
        console.write_json(failure.to_json())
    else:
        console.warn(f"Error: {failure.code}")
        console.warn(f"Message: {' '.join(failure.message.split())}")
        if failure.hint:
            console.warn(f"Hint: {failure.hint}")
    return failure.exit_code


def _flag_text(argv: Sequence[str], *names: str) -> str:
    """Return the value of a flag before the arguments are parsed, or "" without the flag."""
    for number, word in enumerate(argv):
        for name in names:
            if word == name and number + 1 < len(argv):
                return argv[number + 1]
            if word.startswith(f"{name}="):
                return word.partition("=")[2]
    return ""


def _config_file(argv: Sequence[str]) -> Path | None:
    text = _flag_text(argv, "--config")
    return Path(text).expanduser() if text else None


def _wants_json(argv: Sequence[str], console: Console) -> bool:
    """Return whether failures before the configuration is known are to be printed as JSON."""
    text = _flag_text(argv, "-o", "--output") or ("json" if "-ojson" in argv else "")
    return (text or console.environment.get("A2ACLI_OUTPUT", "")) == "json"


def _wants_json_by_file(argv: Sequence[str], sources: ConfigurationSources) -> bool:
    if _flag_text(argv, "-o", "--output") or "-otext" in argv:
        return False
    (option,) = (each for each in list_options() if each.field == "output")
    found = sources.find(option)
    return found is not None and found.text == "json"
