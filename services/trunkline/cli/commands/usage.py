"""The command that shows used tokens and costs."""

from trunkline.cli.options import DataOption, JsonOption, load_command_settings
from trunkline.cli.terminal import print_json


def usage(data: DataOption = None, *, json: JsonOption = False) -> None:
    """Show tokens and cost of this day and month, and their budgets."""
    from datetime import UTC, datetime

    from trunkline.cli.budget_report import build_reports, print_reports

    settings = load_command_settings({"data_dir": data}, uses={"data_dir", "limits", "store"})
    reports = build_reports(settings, datetime.now(UTC))
    if json:
        print_json(reports)
    else:
        print_reports(reports)
