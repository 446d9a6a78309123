"""The command `trunkline audit`: filters the audit log."""

from fnmatch import fnmatchcase
from typing import Annotated

from trunkline.cli.exits import ExitCode
from trunkline.cli.options import DataOption, JsonLinesOption, flag, load_command_settings, option
from trunkline.cli.terminal import print_stderr
from trunkline.errors import ConfigurationError, InvalidArgumentError


def audit(
    data: DataOption = None,
    *,
    since: Annotated[str, option("TIME", "Not before: 90s, 30m, 12h, 7d or a date.")] = "",
    account: Annotated[str, option("NAME", "Only of this account.")] = "",
    action: Annotated[str, option("ACTION", "Only these: task.cancel, webhook.*.")] = "",
    task: Annotated[str, option("ID", "Only about this task.")] = "",
    outcome: Annotated[str, option("OUTCOME", "Only: ok, denied or a reason.")] = "",
    follow: Annotated[bool, flag("Also show new records, until Ctrl-C.", "--follow")] = False,
    json: JsonLinesOption = False,
) -> ExitCode:
    """Show who did what to tasks, approvals, webhooks and agents."""
    from trunkline.cli.audit import print_record
    from trunkline.cli.record_lines import report_unreadable
    from trunkline.cli.times import parse_since
    from trunkline.observe.audit import (
        Action,
        AuditQuery,
        audit_path,
        follow_records,
        format_since,
        read_records,
    )

    if action and not any(fnmatchcase(known, action) for known in Action):
        names = ", ".join(Action)
        raise InvalidArgumentError("--action", f"no such action; there are: {names}")
    start = format_since(parse_since(since)) if since else ""
    query = AuditQuery(since=start, account=account, action=action, task=task, outcome=outcome)
    path = audit_path(load_command_settings({"data_dir": data}, uses={"data_dir", "audit_file"}))
    damaged = 0
    with report_unreadable(path):
        if not follow:
            records = list(read_records(path))
            if not records and not path.exists():
                problem = "there is no audit log here; give the data directory by --data"
                raise ConfigurationError(str(path), problem)
            for record in records:
                damaged += print_record(record, query, as_json=json)
        else:
            for followed in follow_records(path):
                if followed is not None:
                    damaged += print_record(followed, query, as_json=json)
    if damaged:
        print_stderr(f"{path}: {damaged} lines are no records; a full disk or an edit damaged them")
    return ExitCode.FAILED if damaged else ExitCode.OK
