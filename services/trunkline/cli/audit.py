"""Prints records of the audit log, and records the acts of commands."""

from collections.abc import Mapping
from typing import Any

from trunkline.cli.record_lines import print_entry
from trunkline.cli.terminal import print_stderr
from trunkline.core.printable import escape_controls
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError
from trunkline.observe.audit import (
    Action,
    AuditQuery,
    AuditRecord,
    ReadRecord,
    command_actor,
    open_audit_file,
    read_table,
)


def record_act(settings: Settings, action: Action, **objects: str) -> None:
    """Record an act of this command, if its data directory exists. A failure is only reported.

    `settings` must be loaded with `AUDIT_SETTINGS`.
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


def print_record(record: ReadRecord, query: AuditQuery, *, as_json: bool) -> int:
    """Print a record if it is selected; return 1 if the line is none."""
    if record.entry is None:
        return 1
    if query.matches(record.entry):
        print_entry(record.entry, _render_plain, as_json=as_json)
    return 0


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
