"""The command that shows the log of a mesh."""

from typing import Annotated

import typer

from trunkline.cli.exits import finish
from trunkline.cli.options import DataOption


def logs(
    data: DataOption = None,
    *,
    lines: Annotated[
        int, typer.Option("--lines", "-n", metavar="N", min=1, help="The number of last lines.")
    ] = 50,
    since: Annotated[
        str,
        typer.Option(metavar="TIME", help="Not before: 90s, 30m or a date.", show_default=False),
    ] = "",
    level: Annotated[
        str,
        typer.Option(
            metavar="LEVEL",
            help="At least this: debug, info, warning or error.",
            autocompletion=lambda: ["debug", "info", "warning", "error"],
        ),
    ] = "debug",
    task: Annotated[
        str, typer.Option(metavar="ID", help="Only about this task.", show_default=False)
    ] = "",
    trace: Annotated[
        str, typer.Option(metavar="ID", help="Only of this trace.", show_default=False)
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Also show new lines, until Ctrl-C.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Show the log of the mesh that has its data here. `log_level` says what it logs."""
    from trunkline.cli import log_file as command

    def work() -> int:
        query = command.LogQuery.parse(since=since, level=level, task_id=task, trace_id=trace)
        return command.show_logs(data, query, lines=lines, follow=follow, as_json=json)

    finish(work)
