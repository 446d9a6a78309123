"""Copies a whole store between a data directory and a database, and compares the copy.

A backup of a database is a data directory, so `trunkline data backup`, `restore` and `copy` are two
functions: `copy_to_folder` and `copy_to_database`.
"""

from trunkline.processes.store_copy.copying import (
    CopyReport,
    check_journals,
    copy_to_database,
    copy_to_folder,
)
from trunkline.processes.store_copy.tables import OTHER_FOLDER

__all__ = ["OTHER_FOLDER", "CopyReport", "check_journals", "copy_to_database", "copy_to_folder"]
