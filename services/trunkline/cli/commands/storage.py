"""The groups of commands about what a mesh keeps on disk: its data, and documents."""

from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.exits import finish
from trunkline.cli.options import Data, Json
from trunkline.cli.usage import QuestionCommand

data = typer.Typer(help="Check, copy, bring back and trim what a mesh keeps on disk.")


@data.command("check")
def data_check(data: Data = None, *, json: Json = False) -> None:
    """Check every journal, also of a mesh that runs. Exits 1 if one is damaged."""
    from trunkline.cli import storage as command

    finish(lambda: command.check_data(data, as_json=json))


@data.command("backup")
def data_backup(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A new folder for the copy.", show_default=False)
    ],
    data: Data = None,
    *,
    json: Json = False,
) -> None:
    """Copy journals, checkpoints and traces, also of a mesh that runs."""
    from trunkline.cli import storage as command

    finish(lambda: command.back_up_data(folder, data, as_json=json))


@data.command("restore")
def data_restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The backup.", show_default=False)],
    data: Data = None,
    *,
    json: Json = False,
) -> None:
    """Bring a backup back, where nothing is kept yet."""
    from trunkline.cli import storage as command

    finish(lambda: command.restore_data(folder, data, as_json=json))


@data.command("prune")
def data_prune(
    data: Data = None,
    *,
    older_than: Annotated[
        float | None,
        typer.Option(metavar="DAYS", min=0, help="Forget what ended longer ago. [retain_s]"),
    ] = None,
    json: Json = False,
) -> None:
    """Compact and forget tasks that ended long ago. The mesh must be stopped."""
    from trunkline.cli import storage as command

    finish(lambda: command.prune_data(data, older_than_days=older_than, as_json=json))


docs = typer.Typer(help="Keep the documents that the agent `research` answers from.")

DocPaths = Annotated[
    list[Path],
    typer.Argument(
        metavar="PATH...", help="Files, and folders with all below.", show_default=False
    ),
]


@docs.command("add")
def docs_add(paths: DocPaths, data: Data = None, *, json: Json = False) -> None:
    """Add Markdown, text, HTML and PDF; what was added before is replaced. Exits 1 if one fails."""
    from trunkline_agents.research import commands as command

    finish(lambda: command.add(paths, data, as_json=json))


@docs.command("list")
def docs_list(data: Data = None, *, json: Json = False) -> None:
    """List the documents."""
    from trunkline_agents.research import commands as command

    finish(lambda: command.list_all(data, as_json=json))


@docs.command("remove")
def docs_remove(paths: DocPaths, data: Data = None, *, json: Json = False) -> None:
    """Remove documents, or all below a folder; the files stay. Exits 1 if there is none."""
    from trunkline_agents.research import commands as command

    finish(lambda: command.remove(paths, data, as_json=json))


@docs.command("search", cls=QuestionCommand)
def docs_search(
    words: Annotated[
        list[str], typer.Argument(metavar="QUERY...", help="What to find.", show_default=False)
    ],
    data: Data = None,
    *,
    limit: Annotated[int, typer.Option(min=1, max=20, help="How many passages.")] = 5,
    json: Json = False,
) -> None:
    """Show the passages that the agent would be given. Exits 1 if nothing fits."""
    from trunkline_agents.research import commands as command

    finish(lambda: command.search_passages(" ".join(words), data, limit=limit, as_json=json))
