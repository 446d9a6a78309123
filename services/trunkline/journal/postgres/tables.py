"""The tables of the journals in PostgreSQL.

All journals of a mesh are in one database. The ids of tasks are unique in it, because they begin
with the id of their journal.

Each opening of a journal increases the epoch in its row, and each write begins with an update of
this row, which compares the epoch; see `PostgresWriter`. So a write is finished before a takeover,
which then reads its events, or it finds another epoch and writes nothing. To compare the epoch
without a lock is not enough: at READ COMMITTED, a takeover can be committed between the snapshot
and the end of such a write. Renewals and other small writes beside the commits lock the row
`FOR KEY SHARE`, which waits for takeovers but not for commits.

Leases end by a clock of their own; see `lease_clock`.

The statements use neither advisory locks nor NOTIFY, triggers, sequences or extensions.
"""

from typing import Final

from trunkline.core.postgres import Schema
from trunkline.journal.postgres.lease_clock import LEASE_CLOCK

_TABLES: Final = (
    """CREATE TABLE trunkline_journals (
        journal_id text PRIMARY KEY,
        name text NOT NULL UNIQUE,
        epoch bigint NOT NULL,
        writes bigint NOT NULL DEFAULT 0,
        created timestamptz NOT NULL DEFAULT now()
    ) WITH (fillfactor = 10)""",
    # An empty host means that the journal was released.
    """CREATE TABLE trunkline_leases (
        journal_id text PRIMARY KEY,
        host text NOT NULL,
        until_s double precision NOT NULL,
        lease_s double precision NOT NULL,
        time_ns bigint NOT NULL
    ) WITH (fillfactor = 50)""",
    "CREATE INDEX trunkline_leases_held ON trunkline_leases (host) WHERE host <> ''",
    *LEASE_CLOCK,
    """CREATE TABLE trunkline_tasks (
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
    # Any host lists the tasks of all journals.
    """CREATE INDEX trunkline_tasks_by_account
        ON trunkline_tasks (account, status_time_ns DESC, task_id)""",
    """CREATE INDEX trunkline_tasks_by_agent
        ON trunkline_tasks (account, agent, status_time_ns DESC, task_id)""",
    """CREATE INDEX trunkline_tasks_by_context
        ON trunkline_tasks (account, context_id, status_time_ns DESC, task_id)""",
    """CREATE INDEX trunkline_tasks_unfinished
        ON trunkline_tasks (journal_id, create_time_ns) WHERE ended_ns = 0""",
    """CREATE INDEX trunkline_tasks_by_end
        ON trunkline_tasks (journal_id, stage, ended_ns) WHERE ended_ns > 0""",
    # One row for each batch, under its last sequence.
    """CREATE TABLE trunkline_events (
        task_id text NOT NULL,
        sequence bigint NOT NULL,
        body bytea NOT NULL,
        PRIMARY KEY (task_id, sequence)
    )""",
    # Sealed batches are often compressed.
    "ALTER TABLE trunkline_events ALTER COLUMN body SET STORAGE EXTERNAL",
    """CREATE TABLE trunkline_folds (
        task_id text PRIMARY KEY,
        epoch bigint NOT NULL,
        snapshot bytea NOT NULL,
        forwarded text NOT NULL
    )""",
    # A key belongs to one task of the mesh, whichever host gets the submission.
    """CREATE TABLE trunkline_submission_keys (
        key text PRIMARY KEY,
        journal_id text NOT NULL,
        content_hash text NOT NULL,
        task_id text NOT NULL,
        expires_ns bigint NOT NULL
    )""",
    "CREATE INDEX trunkline_submission_keys_by_task ON trunkline_submission_keys (task_id)",
    """CREATE INDEX trunkline_submission_keys_by_expiry
        ON trunkline_submission_keys (journal_id, expires_ns)""",
    """CREATE TABLE trunkline_aliases (
        journal_id text NOT NULL,
        account text NOT NULL,
        alias text NOT NULL,
        task_id text NOT NULL,
        unproven_ns bigint,
        PRIMARY KEY (journal_id, account, alias)
    )""",
    "CREATE INDEX trunkline_aliases_by_name ON trunkline_aliases (account, alias)",
    "CREATE INDEX trunkline_aliases_by_task ON trunkline_aliases (task_id)",
    """CREATE INDEX trunkline_aliases_unproven
        ON trunkline_aliases (journal_id) WHERE unproven_ns IS NOT NULL""",
    """CREATE TABLE trunkline_webhooks (
        task_id text NOT NULL,
        config_id text NOT NULL,
        journal_id text NOT NULL,
        number bigint NOT NULL,
        state integer NOT NULL,
        content bytea NOT NULL,
        PRIMARY KEY (task_id, config_id)
    )""",
    "CREATE INDEX trunkline_webhooks_by_number ON trunkline_webhooks (journal_id, number)",
    """CREATE TABLE trunkline_orphaned_children (
        task_id text NOT NULL,
        journal_id text NOT NULL,
        account text NOT NULL,
        until_s double precision NOT NULL,
        user_statement text NOT NULL,
        PRIMARY KEY (journal_id, task_id)
    )""",
    # The random id by which hosts know that they use the same database.
    "CREATE TABLE trunkline_store (store_id text PRIMARY KEY)",
    "INSERT INTO trunkline_store VALUES (gen_random_uuid()::text)",
)

JOURNALS: Final = Schema("journals", (_TABLES,))
"""The tables of all journals of a mesh."""
