"""Prints records of the audit log, and records the acts of commands."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any, Final

from trunkline.cli.record_lines import print_entry
from trunkline.cli.terminal import print_stderr
from trunkline.core.printable import escape_controls
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError, JournalUnavailableError
from trunkline.observe.audit import (
    Action,
    AuditQuery,
    AuditReader,
    AuditRecord,
    FileAuditReader,
    ReadRecord,
    audit_path,
    command_actor,
    find_postgres_audit,
    open_audit_file,
    read_table,
)
from trunkline.processes.database import open_database

_PROCESS: Final = "cli"


def record_act(settings: Settings, action: Action, **objects: str) -> None:
    """Record an act of this command. A failure is only reported.

    Without a database, nothing is recorded if the data directory does not exist. `settings` must be
    loaded with `AUDIT_SETTINGS`.
    """
    if not settings.audit or not (settings.store or settings.data_dir.is_dir()):
        return
    record = AuditRecord(action=action, actor=command_actor(), objects=objects)
    try:
        # Some commands run on an event loop.
        with ThreadPoolExecutor(max_workers=1) as thread:
            thread.submit(asyncio.run, _append(settings, record)).result()
    except (ConfigurationError, JournalUnavailableError, OSError) as error:
        print_stderr(f"not recorded in the audit log: {error}")


async def _append(settings: Settings, record: AuditRecord) -> None:
    async with open_database(settings, waits=False) as database:
        if (stored := find_postgres_audit(settings, database)) is not None:
            await stored.append([record], _PROCESS)
            return
    file = open_audit_file(settings)
    try:
        file.append(record.to_line(_PROCESS))
    finally:
        file.close()


@asynccontextmanager
async def open_audit_reader(settings: Settings) -> AsyncIterator[AuditReader]:
    """Yield the reader of the audit log that processes with these settings write.

    Raises:
        ConfigurationError: the settings are wrong, or there is no log.
    """
    async with open_database(settings, waits=False) as database:
        if (stored := find_postgres_audit(settings, database)) is not None:
            yield stored
            return
        path = audit_path(settings)
        reader = FileAuditReader(path)
        yield reader


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
