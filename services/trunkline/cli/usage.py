"""Parses the arguments. Prints usage errors on one line, and accepts questions like `-5+3`."""

import re
import sys
from typing import Any

import typer
from typer.core import TyperCommand
from typer.main import get_command

from trunkline.cli.exits import ExitCode
from trunkline.cli.terminal import is_text, print_stderr

UsageError: type[Any] = typer.BadParameter.__mro__[1]
"""The base class of the parser's usage errors, for which typer has no public name."""
_SUGGESTION = re.compile(r"\. Did you mean (.*)\?$")
_OPTION = re.compile(r"--?[A-Za-z][A-Za-z-]*(=.*)?|--?", re.DOTALL)


class QuestionCommand(TyperCommand):
    """A command that reads words which can't be options, like `-5+3`, as arguments."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Parse the arguments."""
        if any(word.startswith("-") and not _OPTION.fullmatch(word) for word in args):
            ctx.ignore_unknown_options = True
            # Without this, the `h` in `-3h` would print the help.
            ctx.help_option_names = ["--help"]
        return super().parse_args(ctx, args)


def parse_and_run(app: typer.Typer) -> int:
    """Run the command of the process arguments; return its exit code.

    A usage error is printed as one line; a group of commands without one prints its help.
    """
    for number, word in enumerate(sys.argv[1:], start=1):
        if not is_text(word):
            return _print_usage_error(f"argument {number} is not UTF-8 text", "trunkline")
    # Calling `app` would replace `sys.excepthook`, by one that fails at the interpreter's end.
    command = get_command(app)
    try:
        return command(prog_name="trunkline", standalone_mode=False) or ExitCode.OK
    except UsageError as error:
        if error.ctx and error.message == "Missing command.":
            print_stderr(error.ctx.get_help())
            return ExitCode.USAGE
        problem = _SUGGESTION.sub(r" (did you mean \1?)", " ".join(error.format_message().split()))
        problem = problem.rstrip(".")
        takes_text = error.ctx and isinstance(error.ctx.command, QuestionCommand)
        if problem.startswith("No such option") and takes_text:
            problem += " (put a text that begins with a dash after `--`)"
        if problem == "No such option: --url" and error.ctx:
            problem += _advise_address(error.ctx.command)
        path = error.ctx.command_path if error.ctx else "trunkline"
        return _print_usage_error(problem[:1].lower() + problem[1:], path)


def _advise_address(command: Any) -> str:  # noqa: ANN401  typer has no public name for it
    """Return what a command without `--url` takes in its place."""
    options = {name for parameter in command.params for name in parameter.opts}
    if "--mesh" in options:
        return " (give --mesh HOST:PORT, the `mesh=` that `trunkline up` prints)"
    if "--data" in options:
        return " (it calls no mesh: give --data DIR, the data directory)"
    return ""


def _print_usage_error(problem: str, command: str) -> int:
    print_stderr(f"error: {problem}; see '{command} --help'")
    return ExitCode.USAGE
