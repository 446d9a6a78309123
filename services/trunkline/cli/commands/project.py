"""The command that creates a project for a new agent."""

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
        Path | None, typer.Argument(metavar="[DIR]", help="The folder to create. [NAME]")
    ] = None,
    *,
    langgraph: Annotated[bool, typer.Option("--langgraph", help="Use a LangGraph graph.")] = False,
    json: JsonOption = False,
) -> None:
    """Create a project for an agent: code, settings, tests, and how to run them."""
    from trunkline.cli import project as command

    finish(lambda: command.create_project(name, folder, with_graph=langgraph, as_json=json))
