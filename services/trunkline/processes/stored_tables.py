"""All tables of a mesh in PostgreSQL, and their change by `trunkline data migrate`."""

import re
from dataclasses import dataclass
from typing import Final

from trunkline.conversations.postgres import CONVERSATIONS
from trunkline.core.postgres import PostgresDatabase, Schema
from trunkline.core.postgres.document_tables import DOCUMENTS
from trunkline.core.postgres.small_files import SMALL_FILES
from trunkline.errors import JournalUnavailableError
from trunkline.journal.artifacts.postgres.tables import FILES
from trunkline.journal.postgres.tables import JOURNALS
from trunkline.messages.postgres_tables import SCHEMA as MESSAGES
from trunkline.observe.audit.postgres_audit import AUDIT
from trunkline.observe.traces.shared_traces import SPANS
from trunkline.tasks.postgres_usage import USAGE

SCHEMAS: Final[tuple[Schema, ...]] = (
    JOURNALS,
    # Its tables refer to those of the journals.
    CONVERSATIONS,
    FILES,
    MESSAGES,
    SMALL_FILES,
    USAGE,
    AUDIT,
    SPANS,
    DOCUMENTS,
)
"""The tables of all stores, in the order in which they can be created."""
_FILLS: Final = re.compile(r"\s*INSERT INTO (\w+)")
_CREATES: Final = re.compile(r"\s*CREATE TABLE (?:IF NOT EXISTS )?(\w+)")


@dataclass(frozen=True, slots=True)
class Migration:
    """The change of the tables of one store."""

    part: str
    before: int
    """The version of the tables; 0 if there were none."""
    after: int
    script: list[str]
    """The statements; none if the tables are up to date."""


async def plan_migrations(database: PostgresDatabase) -> list[Migration]:
    """Return the change that each store needs, without making it.

    Raises:
        JournalUnavailableError: a later version of trunkline has changed the tables, or the
            database can't be reached.
    """
    migrations: list[Migration] = []
    for schema in SCHEMAS:
        version = await database.run(schema.read_version)
        if problem := schema.find_problem(version):
            raise JournalUnavailableError(database.name, problem)
        script = schema.build_script(version)
        migrations.append(Migration(schema.part, version, schema.version, script))
    return migrations


async def migrate(database: PostgresDatabase) -> list[Migration]:
    """Bring the tables of all stores to the version of this program; return what was done.

    Each store is changed in one transaction. Of several processes, one makes the change.

    Raises:
        JournalUnavailableError: a later version of trunkline has changed the tables, the role may
            not change them, or the database can't be reached.
    """
    migrations = await plan_migrations(database)
    for schema, migration in zip(SCHEMAS, migrations, strict=True):
        # A role without the right to create tables may find them up to date.
        if migration.script:
            await database.run(schema.migrate)
    return migrations


def list_filled_tables() -> frozenset[str]:
    """Return the names of the tables that have rows from their creation."""
    statements = [text for schema in SCHEMAS for step in schema.steps for text in step]
    found = (_FILLS.match(text) for text in statements)
    return frozenset(match[1] for match in found if match)


def list_tables() -> list[str]:
    """Return the names of the tables of all stores, in the order of their creation."""
    statements = [text for schema in SCHEMAS for step in schema.steps for text in step]
    found = (_CREATES.match(text) for text in statements)
    return [match[1] for match in found if match]
