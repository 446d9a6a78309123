"""The commands for the completion of words in shells."""

from typing import Annotated

import typer

from trunkline.cli.exits import finish

completion = typer.Typer(
    help="Print the script that completes words in bash, zsh or fish.",
    rich_markup_mode=None,
)


@completion.command("bash")
def print_bash_script() -> None:
    """For ~/.bashrc: source <(trunkline completion bash)."""
    _print_script("bash")


@completion.command("zsh")
def print_zsh_script() -> None:
    """For ~/.zshrc, after compinit: source <(trunkline completion zsh)."""
    _print_script("zsh")


@completion.command("fish")
def print_fish_script() -> None:
    """For config.fish: trunkline completion fish | source."""
    _print_script("fish")


@completion.command("words", hidden=True)
def print_words(
    context: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(show_default=False)] = None,
    *,
    zsh: Annotated[bool, typer.Option("--zsh")] = False,
    fish: Annotated[bool, typer.Option("--fish")] = False,
) -> None:
    """Print what may stand in place of the last word."""
    from trunkline.cli import completion as command

    shell = "zsh" if zsh else "fish" if fish else "bash"
    root = context.find_root().command
    finish(lambda: command.print_words(root, words or [], shell=shell))


def _print_script(shell: str) -> None:
    from trunkline.cli import completion as command

    finish(lambda: command.print_script(shell))
