"""The commands that show and check settings."""

from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.exits import finish
from trunkline.cli.options import JsonOption

config = typer.Typer(
    help="Show the effective settings, check files, print schemas for editors.",
    rich_markup_mode=None,
)


@config.command("show")
def show_settings(
    *,
    only_set: Annotated[
        bool, typer.Option("--set", help="Only settings that do not have their default.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show the settings that `up` takes in this folder, and where each comes from."""
    from trunkline.cli import config as command

    finish(lambda: command.show_settings(only_set=only_set, as_json=json))


@config.command("check")
def check_files(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FILE",
            help="Settings, or MCP servers if it ends in .json. [those that `up` takes here]",
            show_default=False,
        ),
    ] = None,
    *,
    json: JsonOption = False,
) -> None:
    """Check files of settings, with the agents they name, and MCP servers. Nothing is started."""
    from trunkline.cli import config as command

    finish(lambda: command.check_files(files or [], as_json=json))


@config.command("schema")
def print_schema(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND",
            help="settings: trunkline.toml; mcp: mcpServers files; workflow: workflow files.",
            autocompletion=lambda: ["settings", "mcp", "workflow"],
        ),
    ] = "settings",
) -> None:
    """Print a JSON schema, by which editors complete and check files."""
    from trunkline.cli import config as command

    finish(lambda: command.print_schema(kind))
