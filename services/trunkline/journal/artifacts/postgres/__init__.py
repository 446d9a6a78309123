"""Files of tasks in PostgreSQL, shared by the hosts of many machines."""

from trunkline.journal.artifacts.postgres.store import PostgresBlobStore

__all__ = ["PostgresBlobStore"]
