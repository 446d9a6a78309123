"""The commands for the completion of words in shells."""

from typing import Annotated

import typer

from trunkline.cli.declaration import command

group = typer.Typer()


def _declare_script(shell: str, help_text: str) -> None:
    """Add the command that prints the script of a shell."""

    def print_script() -> None:
        from trunkline.cli.completion_scripts import SCRIPTS

        print(SCRIPTS[shell].strip())

    command(group, shell, help=help_text)(print_script)


_declare_script("bash", "For ~/.bashrc: source <(trunkline completion bash).")
_declare_script("zsh", "For ~/.zshrc, after compinit: source <(trunkline completion zsh).")
_declare_script("fish", "For config.fish: trunkline completion fish | source.")


@command(group, "words", hidden=True)
def print_words(
    context: typer.Context,
    words: Annotated[list[str] | None, typer.Argument(show_default=False)] = None,
    *,
    zsh: Annotated[bool, typer.Option("--zsh")] = False,
    fish: Annotated[bool, typer.Option("--fish")] = False,
) -> None:
    """Print what may stand in place of the last word."""
    from trunkline.cli.completion import list_words
    from trunkline.cli.completion_scripts import FILES

    found = list_words(context.find_root().command, words or [])
    if found is None:
        print(FILES)
        return
    for value, help_text in found:
        summary = " ".join(help_text.split())
        if zsh:
            print(f"{value.replace(':', chr(92) + ':')}:{summary}")
        elif fish:
            print(f"{value}\t{summary}")
        else:
            print(value)
