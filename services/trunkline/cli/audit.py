"""`trunkline audit`: shows the audit log. Also records the acts of other commands."""

import json
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from trunkline.audit import (
    Action,
    AuditQuery,
    AuditRecord,
    ReadRecord,
    audit_path,
    command_actor,
    follow_records,
    format_since,
    open_audit_file,
    read_records,
    read_table,
)
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import load_command_settings
from trunkline.cli.terminal import print_stderr
from trunkline.cli.times import parse_since
from trunkline.errors import ConfigurationError, InvalidArgumentError
from trunkline.printable import escape_controls, escape_json_controls
from trunkline.settings import Settings

USED_SETTINGS: Final = frozenset(
    {"data_dir", "audit", "audit_file", "audit_size_bytes", "audit_age_s", "audit_files"}
)
"""The settings that a command needs for recording an act."""


def parse_query(*, since: str, account: str, action: str, task: str, outcome: str) -> AuditQuery:
    """Return the query of a command's options.

    Raises:
        InvalidArgumentError: `since` is no time, or no action matches.
    """
    if action and not any(fnmatchcase(known, action) for known in Action):
        names = ", ".join(Action)
        raise InvalidArgumentError("--action", f"no such action; there are: {names}")
    start = format_since(parse_since(since)) if since else ""
    return AuditQuery(since=start, account=account, action=action, task=task, outcome=outcome)


def show_audit(data: Path | None, query: AuditQuery, *, follow: bool, as_json: bool) -> ExitCode:
    """Print the selected records, the oldest first. With `follow`, go on until Ctrl-C.

    The exit code is not 0 if the log has lines that are no records.

    Raises:
        ConfigurationError: there is no audit log, or it can't be read.
    """
    path = audit_path(_load(data))
    render = _render_json if as_json else _render_plain
    damaged = 0
    try:
        if not follow:
            records = list(read_records(path))
            if not records and not path.exists():
                problem = "there is no audit log here; give the data directory by --data"
                raise ConfigurationError(str(path), problem)
            for record in records:
                damaged += _print(record, query, render)
        else:
            for followed in follow_records(path):
                if followed is not None:
                    damaged += _print(followed, query, render)
    except BrokenPipeError:
        # The reader of the output, such as `head`, has left.
        raise
    except OSError as error:
        problem = f"can't be read: {error.strerror or error}"
        raise ConfigurationError(str(path), problem) from error
    if damaged:
        print_stderr(f"{path}: {damaged} lines are no records; a full disk or an edit damaged them")
    return ExitCode.FAILED if damaged else ExitCode.OK


def record_act(settings: Settings, action: Action, **objects: str) -> None:
    """Record an act of this command, if its data directory exists. A failure is only reported.

    `settings` must be loaded with `USED_SETTINGS`.
    """
    if not settings.audit or not settings.data_dir.is_dir():
        return
    record = AuditRecord(action=action, actor=command_actor(), objects=objects)
    try:
        file = open_audit_file(settings)
        try:
            file.append(record.to_line("cli"))
        finally:
            file.close()
    except (ConfigurationError, OSError) as error:
        print_stderr(f"not recorded in the audit log: {error}")


def _load(data: Path | None) -> Settings:
    return load_command_settings({"data_dir": data}, uses={"data_dir", "audit_file"})


def _print(
    record: ReadRecord, query: AuditQuery, render: Callable[[Mapping[str, Any]], str]
) -> int:
    """Print a record if it is selected; return 1 if the line is none."""
    if record.entry is None:
        return 1
    if query.matches(record.entry):
        print(f"{render(record.entry)}\n", end="", flush=True)
    return 0


def _render_json(entry: Mapping[str, Any]) -> str:
    return escape_json_controls(json.dumps(entry, ensure_ascii=False))


def _render_plain(entry: Mapping[str, Any]) -> str:
    actor, objects = read_table(entry, "actor"), read_table(entry, "object")
    name = "/".join(str(actor[key]) for key in ("account", "name") if actor.get(key))
    who = " ".join(
        text
        for text in (
            str(actor.get("kind", "")),
            name,
            f"({actor['key_id']})" if actor.get("key_id") else "",
            f"for {actor['user']}" if actor.get("user") else "",
            f"from {actor['address']}" if actor.get("address") else "",
        )
        if text
    )
    details = [f"{kind}={text}" for kind, text in objects.items()]
    details += [f"{key}={entry[key]}" for key in ("decision", "count") if key in entry]
    line = (
        f"{str(entry.get('time', '')).partition('.')[0]}Z  {entry.get('action', ''):<19} "
        f"{entry.get('outcome', ''):<8} {who}  {' '.join(details)}"
    )
    return escape_controls(line.rstrip())
