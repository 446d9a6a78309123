"""The journal's store in PostgreSQL, for hosts on many machines, and its catalog."""

from trunkline.journal.postgres.catalog import PostgresCatalog
from trunkline.journal.postgres.reader import PostgresReader
from trunkline.journal.postgres.store import PostgresStore

__all__ = ["PostgresCatalog", "PostgresReader", "PostgresStore"]
