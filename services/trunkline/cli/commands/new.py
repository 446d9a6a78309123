"""The commands that make something to begin with."""

from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.exits import finish
from trunkline.cli.options import Json

new = typer.Typer(help="Make a project to begin with.", rich_markup_mode=None)


@new.callback()
def _group() -> None:
    """Make a project to begin with."""


@new.command("agent")
def new_agent(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the agent.", show_default=False)],
    folder: Annotated[
        Path | None, typer.Argument(metavar="[DIR]", help="Make it there. [NAME]")
    ] = None,
    *,
    langgraph: Annotated[bool, typer.Option("--langgraph", help="Of a LangGraph graph.")] = False,
    json: Json = False,
) -> None:
    """Make an agent of one's own: code, settings, tests, and how to run them."""
    from trunkline.cli import project as command

    finish(lambda: command.create_project(name, folder, with_graph=langgraph, as_json=json))
