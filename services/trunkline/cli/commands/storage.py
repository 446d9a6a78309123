"""The commands that read and maintain the data directory: `trunkline data` and `usage`."""

from pathlib import Path
from typing import Annotated

import typer

from trunkline.cli.exits import finish
from trunkline.cli.options import DataOption, JsonOption

data = typer.Typer(help="Check, back up, restore, prune and rekey the data directory.")


def usage(data: DataOption = None, *, json: JsonOption = False) -> None:
    """Show tokens and cost of this day and month, and their budgets."""
    from trunkline.cli import budget_report as command

    finish(lambda: command.show_usage(data, as_json=json))


@data.command("check")
def data_check(data: DataOption = None, *, json: JsonOption = False) -> None:
    """Check every journal. The mesh may be running. Exits 1 if one is damaged."""
    from trunkline.cli import storage as command

    finish(lambda: command.check_data(data, as_json=json))


@data.command("backup")
def data_backup(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="A new folder for the copy.", show_default=False)
    ],
    data: DataOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Copy journals, checkpoints and traces. The mesh may be running."""
    from trunkline.cli import storage as command

    finish(lambda: command.back_up_data(folder, data, as_json=json))


@data.command("restore")
def data_restore(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The backup.", show_default=False)],
    data: DataOption = None,
    *,
    json: JsonOption = False,
) -> None:
    """Restore a backup into an empty or new data directory."""
    from trunkline.cli import storage as command

    finish(lambda: command.restore_data(folder, data, as_json=json))


@data.command("prune")
def data_prune(
    data: DataOption = None,
    *,
    older_than: Annotated[
        float | None,
        typer.Option(metavar="DAYS", min=0, help="Delete tasks that ended longer ago. [retain_s]"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Compact and delete tasks that ended long ago. The mesh must be stopped."""
    from trunkline.cli import storage as command

    finish(lambda: command.prune_data(data, older_than_days=older_than, as_json=json))


@data.command("rekey")
def data_rekey(
    data: DataOption = None,
    *,
    new_data_key: Annotated[
        bool, typer.Option("--new-data-key", help="Also encrypt new data under a new data key.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Encrypt the data keys under the configured keys. The mesh may be running."""
    from trunkline.cli import storage as command

    finish(lambda: command.rekey_data(data, with_new_data_key=new_data_key, as_json=json))
