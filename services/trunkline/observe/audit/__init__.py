"""The audit log: the acts on a mesh, by whom, on which objects, and with which outcome."""

from trunkline.observe.audit.audit_file import AuditFile, ReadRecord, follow_records, read_records
from trunkline.observe.audit.audit_log import (
    AuditLog,
    audit_path,
    find_postgres_audit,
    open_audit_file,
    open_audit_log,
    recording,
)
from trunkline.observe.audit.audit_query import (
    AuditPage,
    AuditQuery,
    find_end,
    format_since,
    read_audit_page,
    read_newer_records,
    read_table,
)
from trunkline.observe.audit.audit_store import AuditReader, FileAuditReader, FileAuditWriter
from trunkline.observe.audit.record import (
    DENIED,
    OK,
    READS,
    Action,
    Actor,
    ActorKind,
    AuditRecord,
    command_actor,
    outcome_of,
    process_actor,
)

__all__ = [
    "DENIED",
    "OK",
    "READS",
    "Action",
    "Actor",
    "ActorKind",
    "AuditFile",
    "AuditLog",
    "AuditPage",
    "AuditQuery",
    "AuditReader",
    "AuditRecord",
    "FileAuditReader",
    "FileAuditWriter",
    "ReadRecord",
    "audit_path",
    "command_actor",
    "find_end",
    "find_postgres_audit",
    "follow_records",
    "format_since",
    "open_audit_file",
    "open_audit_log",
    "outcome_of",
    "process_actor",
    "read_audit_page",
    "read_newer_records",
    "read_records",
    "read_table",
    "recording",
]
