"""The command `trunkline audit`: filters the audit log."""

from contextlib import AsyncExitStack, aclosing
from fnmatch import fnmatchcase
from typing import Annotated

from trunkline.cli.exits import ExitCode
from trunkline.cli.options import DataOption, JsonLinesOption, flag, load_command_settings, option
from trunkline.cli.terminal import print_stderr
from trunkline.errors import ConfigurationError, InvalidArgumentError


async def audit(
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
    from trunkline.cli.audit import open_audit_reader, print_record
    from trunkline.cli.times import parse_since
    from trunkline.observe.audit import (
        Action,
        AuditQuery,
        format_since,
    )

    if action and not any(fnmatchcase(known, action) for known in Action):
        names = ", ".join(Action)
        raise InvalidArgumentError("--action", f"no such action; there are: {names}")
    start = format_since(parse_since(since)) if since else ""
    query = AuditQuery(since=start, account=account, action=action, task=task, outcome=outcome)
    uses = {"data_dir", "audit_file", "store"}
    settings = load_command_settings({"data_dir": data}, uses=uses)
    damaged, is_empty = 0, True
    async with AsyncExitStack() as stack:
        reader = await stack.enter_async_context(open_audit_reader(settings))
        blocks = await stack.enter_async_context(aclosing(reader.read(follows=follow)))
        async for records in blocks:
            is_empty = False
            for record in records:
                damaged += print_record(record, query, as_json=json)
        if is_empty and not reader.exists():
            problem = "there is no audit log here; give the data directory by --data"
            raise ConfigurationError(reader.place, problem)
    if damaged:
        problem = f"{damaged} lines are no records; a full disk or an edit damaged them"
        print_stderr(f"{reader.place}: {problem}")
    return ExitCode.FAILED if damaged else ExitCode.OK
