"""The command `trunkline docs`. The code that it runs is loaded when a command is run."""

from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.exits import finish
from trunkline.cli.options import DataOption, JsonOption
from trunkline.cli.usage import QuestionCommand

docs = typer.Typer(
    help="Keep the documents that the agent `research` answers from.", rich_markup_mode=None
)

Paths = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH...", help="Files, and folders with all below.", show_default=False
    ),
]


@docs.command("add")
def add(paths: Paths, data: DataOption = None, *, json: JsonOption = False) -> None:
    """Add Markdown, text, HTML and PDF; what was added before is replaced. Exits 1 if one fails."""
    from trunkline_agents.research import document_commands

    finish(lambda: document_commands.add(paths, data, as_json=json))


@docs.command("list")
def list_all(data: DataOption = None, *, json: JsonOption = False) -> None:
    """List the documents."""
    from trunkline_agents.research import document_commands

    finish(lambda: document_commands.list_all(data, as_json=json))


@docs.command("remove")
def remove(paths: Paths, data: DataOption = None, *, json: JsonOption = False) -> None:
    """Remove documents, or all below a folder; the files stay. Exits 1 if there is none."""
    from trunkline_agents.research import document_commands

    finish(lambda: document_commands.remove(paths, data, as_json=json))


@docs.command("search", cls=QuestionCommand)
def search(
    words: Annotated[
        list[str], typer.Argument(metavar="QUERY...", help="What to find.", show_default=False)
    ],
    data: DataOption = None,
    *,
    limit: Annotated[int, typer.Option(min=1, max=20, help="How many passages.")] = 5,
    json: JsonOption = False,
) -> None:
    """Show the passages that the agent would be given. Exits 1 if nothing fits."""
    from trunkline_agents.research import document_commands

    finish(lambda: document_commands.search(" ".join(words), data, limit=limit, as_json=json))
