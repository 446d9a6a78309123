"""Copies a whole store between a data directory and a database, and compares the copy.

A backup of a database is a data directory, so `trunkline data backup`, `restore` and `copy` are two
functions: `back_up_store` and `restore_store`.
"""

from trunkline.processes.store_copy.backup import back_up_store, check_store, restore_store
from trunkline.processes.store_copy.copying import CopyReport

__all__ = ["CopyReport", "back_up_store", "check_store", "restore_store"]
