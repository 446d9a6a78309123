"""The tables of the journals in PostgreSQL.

All journals of a mesh are in one database. The ids of tasks are unique in it, because they begin
with the id of their journal.

`journals` has the fence: each commit locks the row of its journal `FOR KEY SHARE`, and a takeover
locks it `FOR UPDATE` before it increases the epoch. So a commit is finished before the takeover,
which then reads its events, or it finds another epoch and writes nothing. To compare the epoch
without the lock is not enough: at READ COMMITTED, a takeover can be committed between the snapshot
and the end of such a commit.

`leases` is a separate table, so that a renewal does not wait for a takeover of the row that commits
lock. Leases are measured by the clock of the database.

The statements use neither advisory locks nor NOTIFY, triggers, sequences or extensions.
"""

from typing import Final

from trunkline.core.postgres import Schema

_TABLES: Final = (
    """CREATE TABLE journals (
        journal_id text PRIMARY KEY,
        name text NOT NULL UNIQUE,
        epoch bigint NOT NULL,
        created timestamptz NOT NULL DEFAULT now()
    )""",
    # An empty host means that the journal was released.
    """CREATE TABLE leases (
        journal_id text PRIMARY KEY,
        host text NOT NULL,
        lease_until timestamptz NOT NULL,
        lease_s double precision NOT NULL,
        time_ns bigint NOT NULL
    ) WITH (fillfactor = 50)""",
    """CREATE TABLE tasks (
        task_id text PRIMARY KEY,
        journal_id text NOT NULL,
        context_id text NOT NULL,
        account text NOT NULL,
        agent text NOT NULL,
        state smallint NOT NULL,
        status_time_ns bigint NOT NULL,
        create_time_ns bigint NOT NULL,
        parent_task_id text NOT NULL,
        head bigint NOT NULL,
        metadata bytea NOT NULL,
        ended_ns bigint NOT NULL,
        stage smallint NOT NULL DEFAULT 0
    ) WITH (fillfactor = 80)""",
    "CREATE INDEX tasks_by_account ON tasks (journal_id, account, status_time_ns DESC, task_id)",
    """CREATE INDEX tasks_by_context
        ON tasks (journal_id, account, context_id, status_time_ns DESC, task_id)""",
    "CREATE INDEX tasks_unfinished ON tasks (journal_id, create_time_ns) WHERE ended_ns = 0",
    "CREATE INDEX tasks_by_end ON tasks (journal_id, stage, ended_ns) WHERE ended_ns > 0",
    # One row for each batch, under its last sequence.
    """CREATE TABLE events (
        task_id text NOT NULL,
        sequence bigint NOT NULL,
        body bytea NOT NULL,
        PRIMARY KEY (task_id, sequence)
    )""",
    # Sealed batches are often compressed.
    "ALTER TABLE events ALTER COLUMN body SET STORAGE EXTERNAL",
    """CREATE TABLE folds (
        task_id text PRIMARY KEY,
        epoch bigint NOT NULL,
        snapshot bytea NOT NULL,
        forwarded text NOT NULL
    )""",
    """CREATE TABLE submission_keys (
        journal_id text NOT NULL,
        key text NOT NULL,
        content_hash text NOT NULL,
        task_id text NOT NULL,
        expires_ns bigint NOT NULL,
        PRIMARY KEY (journal_id, key)
    )""",
    "CREATE INDEX submission_keys_by_expiry ON submission_keys (journal_id, expires_ns)",
    """CREATE TABLE aliases (
        journal_id text NOT NULL,
        account text NOT NULL,
        alias text NOT NULL,
        task_id text NOT NULL,
        unproven_ns bigint,
        PRIMARY KEY (journal_id, account, alias)
    )""",
    "CREATE INDEX aliases_by_task ON aliases (task_id)",
    "CREATE INDEX aliases_unproven ON aliases (journal_id) WHERE unproven_ns IS NOT NULL",
    """CREATE TABLE webhooks (
        task_id text NOT NULL,
        config_id text NOT NULL,
        journal_id text NOT NULL,
        number bigint NOT NULL,
        state integer NOT NULL,
        content bytea NOT NULL,
        PRIMARY KEY (task_id, config_id)
    )""",
    "CREATE INDEX webhooks_by_number ON webhooks (journal_id, number)",
    """CREATE TABLE orphaned_children (
        task_id text NOT NULL,
        journal_id text NOT NULL,
        account text NOT NULL,
        until_s double precision NOT NULL,
        user_statement text NOT NULL,
        PRIMARY KEY (journal_id, task_id)
    )""",
)

# Any host reads the tasks of all journals.
_MESH_WIDE_READS: Final = (
    "DROP INDEX tasks_by_account",
    "DROP INDEX tasks_by_context",
    "CREATE INDEX tasks_by_account ON tasks (account, status_time_ns DESC, task_id)",
    "CREATE INDEX tasks_by_agent ON tasks (account, agent, status_time_ns DESC, task_id)",
    "CREATE INDEX tasks_by_context ON tasks (account, context_id, status_time_ns DESC, task_id)",
    "CREATE INDEX aliases_by_name ON aliases (account, alias)",
    # The random id by which hosts know that they use the same database.
    "CREATE TABLE store_identity (store_id text PRIMARY KEY)",
    "INSERT INTO store_identity VALUES (gen_random_uuid()::text)",
)

JOURNALS: Final = Schema("journals", (_TABLES, _MESH_WIDE_READS))
"""The tables of all journals of a mesh."""
