"""SQLite files: one place that opens, locks, migrates, checks and copies them.

All durable state of a process is in such files. A store has a `Schema` and opens a `Database`. The
journal and the memory of agents have connections of their own, for their speed.
"""

from trunkline.core.database.connection import (
    Synchronous,
    check_access,
    connect,
    connect_in_memory,
    connect_read_only,
    create_file,
    open_read_only,
    savepoint,
    transaction,
)
from trunkline.core.database.database import Database
from trunkline.core.database.errors import (
    DAMAGED,
    convert_error,
    translate_all_errors,
    translate_errors,
)
from trunkline.core.database.lock import FileLock, find_holder, has_lock, kill_holder
from trunkline.core.database.maintenance import copy_file, find_damage, find_files, is_sound
from trunkline.core.database.schema import Schema, run_script

__all__ = [
    "DAMAGED",
    "Database",
    "FileLock",
    "Schema",
    "Synchronous",
    "check_access",
    "connect",
    "connect_in_memory",
    "connect_read_only",
    "convert_error",
    "copy_file",
    "create_file",
    "find_damage",
    "find_files",
    "find_holder",
    "has_lock",
    "is_sound",
    "kill_holder",
    "open_read_only",
    "run_script",
    "savepoint",
    "transaction",
    "translate_all_errors",
    "translate_errors",
]
