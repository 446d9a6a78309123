"""The commands for the folder of a project: its creation, and trust in its settings."""

from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.exits import finish
from trunkline.cli.options import JsonOption

new = typer.Typer(help="Create a project to begin with.", rich_markup_mode=None)


@new.callback()
def _group() -> None:
    """Create a project to begin with."""


@new.command("agent")
def new_agent(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The agent's name.", show_default=False)
    ],
    folder: Annotated[
        Path | None, typer.Argument(metavar="DIR", help="The folder to create. [NAME]")
    ] = None,
    *,
    langgraph: Annotated[bool, typer.Option("--langgraph", help="Use a LangGraph graph.")] = False,
    json: JsonOption = False,
) -> None:
    """Create a project for an agent: code, settings, tests, and how to run them."""
    from trunkline.cli import project as command

    finish(lambda: command.create_project(name, folder, with_graph=langgraph, as_json=json))


def trust(
    folder: Annotated[
        Path | None, typer.Argument(metavar="FOLDER", help="The folder. [the current one]")
    ] = None,
    *,
    show_all: Annotated[bool, typer.Option("--list", help="List the trusted folders.")] = False,
    remove: Annotated[bool, typer.Option("--remove", help="Withdraw the trust.")] = False,
    json: JsonOption = False,
) -> None:
    """Let all commands take agents, tools and models from a folder's trunkline.toml.

    Without trust, only `up` and `serve` do. Trust ends when the file changes.
    """
    from trunkline.cli import trust as command

    if show_all:
        finish(lambda: command.list_folders(as_json=json))
    elif remove:
        finish(lambda: command.remove_folder(folder or Path(), as_json=json))
    else:
        finish(lambda: command.trust_folder(folder or Path(), as_json=json))
