"""The command `trunkline audit`: filters the audit log."""

from typing import Annotated

import typer

from trunkline.cli.exits import finish
from trunkline.cli.options import DataOption


def audit(
    data: DataOption = None,
    *,
    since: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Not before: 90s, 30m, 12h, 7d or a date.", show_default=False
        ),
    ] = "",
    account: Annotated[
        str, typer.Option(metavar="NAME", help="Only of this account.", show_default=False)
    ] = "",
    action: Annotated[
        str,
        typer.Option(
            metavar="ACTION", help="Only these: task.cancel, webhook.*.", show_default=False
        ),
    ] = "",
    task: Annotated[
        str, typer.Option(metavar="ID", help="Only about this task.", show_default=False)
    ] = "",
    outcome: Annotated[
        str,
        typer.Option(metavar="OUTCOME", help="Only: ok, denied or a reason.", show_default=False),
    ] = "",
    follow: Annotated[
        bool, typer.Option("--follow", help="Also show new records, until Ctrl-C.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object a line.")] = False,
) -> None:
    """Show who did what to tasks, approvals, webhooks and agents."""
    from trunkline.cli import audit as command

    def work() -> int:
        query = command.parse_query(
            since=since, account=account, action=action, task=task, outcome=outcome
        )
        return command.show_audit(data, query, follow=follow, as_json=json)

    finish(work)
