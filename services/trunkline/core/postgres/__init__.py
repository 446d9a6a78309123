"""PostgreSQL: one place that connects, translates errors, and keeps the versions of the tables.

A process has one `PostgresDatabase`, which all of its stores share. Each store has a `Schema`.
"""

from trunkline.core.postgres.database import (
    ERRORS,
    UNREPLICATED,
    Connection,
    PostgresDatabase,
    begin,
)
from trunkline.core.postgres.schema import Schema

__all__ = [
    "ERRORS",
    "UNREPLICATED",
    "Connection",
    "PostgresDatabase",
    "Schema",
    "begin",
]
