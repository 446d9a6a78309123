"""Which tables of a data directory's SQLite files are which tables of the database.

Both selects of a `CopiedTable` return equal rows. So a copy inserts the rows of one side at the
other one, and then compares the rows of both.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from trunkline.conversations.sqlite import CHECKPOINT_TABLES, CONVERSATION_FILE, CONVERSATION_TABLES
from trunkline.core.database import Schema
from trunkline.core.private_files import PRIVATE_FOLDER
from trunkline.journal.sqlite import JOURNAL_FOLDER
from trunkline.messages.postgres_tables import choose_partition
from trunkline.messages.sqlite_tables import SCHEMA as MESSAGE_TABLES
from trunkline.tasks.usage_store import USAGE_TABLES
from trunkline.tools.used_approvals import APPROVAL_TABLES

MESSAGES_FILE: Final = f"{PRIVATE_FOLDER}/messages.db"
CHECKPOINTS: Final = Schema(CHECKPOINT_TABLES)
"""The tables of the checkpoint file of a journal."""
Row: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A table in a SQLite file, and its rows in the database."""

    name: str
    """What the rows are, for people; "" if they are not worth a line."""
    postgres: str
    """The table in the database."""
    from_sqlite: str
    to_sqlite: str
    from_postgres: str
    """In tables of a journal, $1 is the id of the journal, here and in `to_postgres`."""
    to_postgres: str
    extend: Callable[[Row], Row] | None = None
    """Adds the columns that only the database has."""
    claimed: str = ""
    """Reads the first columns of other journals, if they are unique in the database only."""


@dataclass(frozen=True, slots=True)
class CopiedFile:
    """A SQLite file that all processes of a data directory share."""

    path: str
    schema: Schema
    tables: Sequence[CopiedTable]


def _same(  # noqa: PLR0913  The parts of four statements.
    name: str,
    sqlite: str,
    postgres: str,
    columns: str,
    *,
    in_postgres: str = "",
    of_journal: bool = False,
    more: str = "",
    extend: Callable[[Row], Row] | None = None,
) -> CopiedTable:
    """Return the copy of a table whose columns have the same types at both sides.

    `in_postgres` are other names of the columns, and `more` the columns that `extend` adds.
    """
    theirs = in_postgres or columns
    into = ("journal_id, " if of_journal else "") + theirs + (f", {more}" if more else "")
    marks = ", ".join(f"${number + 1}" for number in range(into.count(",") + 1))
    question_marks = ", ".join("?" * (columns.count(",") + 1))
    of_ours = "WHERE journal_id = $1" if of_journal else ""
    return CopiedTable(
        name,
        postgres,
        " ".join(("SELECT", columns, "FROM", sqlite)),
        " ".join(("INSERT INTO", sqlite, f"({columns})", "VALUES", f"({question_marks})")),
        " ".join(("SELECT", theirs, "FROM", postgres, of_ours)),
        " ".join(("INSERT INTO", postgres, f"({into})", "VALUES", f"({marks})")),
        extend,
    )


def _add_partition(row: Row) -> Row:
    _, recipient, _, account, correlation_id, *_ = row
    return (*row, choose_partition(account, recipient, correlation_id))


JOURNAL_TABLES: Final = (
    _same(
        "tasks",
        "tasks",
        "trunkline_tasks",
        "task_id, context_id, account, agent, state, status_time_ns, create_time_ns, "
        "parent_task_id, head, metadata, ended_ns, stage",
        of_journal=True,
    ),
    CopiedTable(
        "batches of events",
        "trunkline_events",
        "SELECT task_id, sequence, body FROM events JOIN tasks ON number = task",
        "INSERT INTO events SELECT number, ?2, ?3 FROM tasks WHERE task_id = ?1",
        "SELECT task_id, sequence, body FROM trunkline_events JOIN trunkline_tasks USING (task_id) "
        "WHERE journal_id = $1",
        "INSERT INTO trunkline_events (task_id, sequence, body) "
        "SELECT $2, $3, $4 WHERE $1::text <> ''",
    ),
    CopiedTable(
        "folds",
        "trunkline_folds",
        "SELECT task_id, epoch, snapshot, forwarded FROM folds JOIN tasks ON number = task",
        "INSERT INTO folds SELECT number, ?2, ?3, ?4 FROM tasks WHERE task_id = ?1",
        "SELECT task_id, epoch, snapshot, forwarded FROM trunkline_folds "
        "JOIN trunkline_tasks USING (task_id) WHERE journal_id = $1",
        "INSERT INTO trunkline_folds (task_id, epoch, snapshot, forwarded) "
        "SELECT $2, $3, $4, $5 WHERE $1::text <> ''",
    ),
    replace(
        _same(
            "submission keys",
            "keys",
            "trunkline_submission_keys",
            "key, content_hash, task_id, expires_ns",
            of_journal=True,
        ),
        claimed="SELECT key FROM trunkline_submission_keys",
    ),
    _same(
        "aliases",
        "aliases",
        "trunkline_aliases",
        "account, alias, task_id, unproven_ns",
        of_journal=True,
    ),
    _same(
        "webhooks",
        "webhooks",
        "trunkline_webhooks",
        "number, task_id, config_id, state, content",
        of_journal=True,
    ),
    CopiedTable(
        "orphaned children",
        "trunkline_orphaned_children",
        "SELECT task_id, account, until_s, CAST(user_statement AS TEXT) FROM orphaned_children",
        "INSERT INTO orphaned_children VALUES (?, ?, ?, CAST(? AS BLOB))",
        "SELECT task_id, account, until_s, user_statement FROM trunkline_orphaned_children "
        "WHERE journal_id = $1",
        "INSERT INTO trunkline_orphaned_children "
        "(journal_id, task_id, account, until_s, user_statement) VALUES ($1, $2, $3, $4, $5)",
    ),
)
"""The tables of a journal's file."""

CHECKPOINT_COPIES: Final = (
    _same(
        "checkpoints",
        "checkpoints",
        "trunkline_checkpoints",
        "thread_id, checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata",
        in_postgres="thread_id, namespace, checkpoint_id, parent_id, kind, body, metadata",
        of_journal=True,
    ),
    _same(
        "writes of checkpoints",
        "writes",
        "trunkline_checkpoint_writes",
        "thread_id, checkpoint_ns, checkpoint_id, task_id, idx, task_path, channel, type, value",
        in_postgres="thread_id, namespace, checkpoint_id, task_id, position, task_path, channel, "
        "kind, body",
        of_journal=True,
    ),
)
"""The tables of the checkpoint file beside a journal."""

SHARED_FILES: Final = (
    CopiedFile(
        f"{JOURNAL_FOLDER}/{CONVERSATION_FILE}",
        Schema(CONVERSATION_TABLES),
        (
            CopiedTable(
                "conversations",
                "trunkline_conversations",
                "SELECT agent, context_id, account, step, kind, body, changed_ns / 1000 "
                "FROM conversations",
                "INSERT INTO conversations VALUES (?, ?, ?, ?, ?, ?, ? * 1000)",
                # The others are rows of open turns without a state.
                "SELECT agent, context_id, account, step, kind, body, "
                "(extract(epoch FROM changed) * 1000000)::bigint "
                "FROM trunkline_conversations WHERE step > 0",
                "INSERT INTO trunkline_conversations (agent, context_id, account, step, kind, "
                "body, changed) VALUES ($1, $2, $3, $4, $5, $6, to_timestamp($7::bigint / 1e6))",
            ),
            CopiedTable(
                "open turns",
                "trunkline_open_turns",
                "SELECT task_id, number, agent, context_id, account, place, request, ancestors, "
                "substr(journal, 1, length(journal) - 3) FROM open_turns",
                "INSERT INTO open_turns (task_id, number, agent, context_id, account, place, "
                "request, ancestors, journal) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ? || '.db')",
                "SELECT task_id, number, agent, context_id, account, place, request, "
                "array_to_string(ancestors, ' '), name "
                "FROM trunkline_open_turns JOIN trunkline_journals USING (journal_id)",
                "INSERT INTO trunkline_open_turns (task_id, number, agent, context_id, account, "
                "place, request, ancestors, journal_id) SELECT $1, $2, $3, $4, $5, $6, $7, "
                "coalesce(string_to_array(nullif($8, ''), ' '), '{}'), journal_id "
                "FROM trunkline_journals WHERE name = $9",
            ),
        ),
    ),
    CopiedFile(
        MESSAGES_FILE,
        MESSAGE_TABLES,
        (
            _same(
                "messages",
                "messages",
                "trunkline_messages",
                "position, account, envelope_id, correlation_id, causation_id, room, type, sender, "
                "recipient, caller, create_ns, content, change",
            ),
            _same(
                "deliveries",
                "deliveries",
                "trunkline_deliveries",
                "position, recipient, lane, account, correlation_id, state, attempt_count, "
                "task_id, not_before, attempts, update_ns",
                more="partition",
                extend=_add_partition,
            ),
            _same(
                "ids of deleted messages",
                "deleted",
                "trunkline_deleted_messages",
                "account, envelope_id, create_ns",
            ),
            _same(
                "members of rooms",
                "members",
                "trunkline_room_members",
                "account, room, member, join_ns",
            ),
            CopiedTable(
                "known agents",
                "trunkline_known_agents",
                "SELECT name, seen_ns / 1000 FROM agents",
                "INSERT INTO agents VALUES (?, ? * 1000)",
                "SELECT name, (extract(epoch FROM seen) * 1000000)::bigint "
                "FROM trunkline_known_agents",
                "INSERT INTO trunkline_known_agents VALUES ($1, to_timestamp($2::bigint / 1e6))",
            ),
            CopiedTable(
                "",
                "trunkline_message_counters",
                "SELECT coalesce(max(CASE name WHEN 'position' THEN value END), 0), "
                "coalesce(max(CASE name WHEN 'change' THEN value END), 0) FROM counters",
                "INSERT INTO counters VALUES ('position', ?), ('change', ?)",
                "SELECT position, change FROM trunkline_message_counters",
                "UPDATE trunkline_message_counters SET position = $1, change = $2, open_count = "
                "(SELECT count(*) FROM trunkline_deliveries WHERE state IN (1, 2))",
            ),
        ),
    ),
    CopiedFile(
        f"{PRIVATE_FOLDER}/usage.db",
        USAGE_TABLES,
        (
            CopiedTable(
                "totals of usage",
                "trunkline_usage",
                "SELECT period, account, caller, model, input_tokens, output_tokens, cost "
                "FROM usage",
                "INSERT INTO usage VALUES (?, ?, ?, ?, ?, ?, ?)",
                # Each host has totals of its own.
                "SELECT period, account, caller, model, sum(input_tokens)::bigint, "
                "sum(output_tokens)::bigint, sum(cost)::bigint "
                "FROM trunkline_usage GROUP BY period, account, caller, model",
                "INSERT INTO trunkline_usage (period, account, caller, model, input_tokens, "
                "output_tokens, cost, host) VALUES ($1, $2, $3, $4, $5, $6, $7, 'copied')",
            ),
        ),
    ),
    CopiedFile(
        f"{PRIVATE_FOLDER}/used-approvals.db",
        APPROVAL_TABLES,
        (
            CopiedTable(
                "used approvals",
                "trunkline_small_files",
                "SELECT digest, CAST(round(used_at * 1000000) AS INTEGER) FROM used_approvals",
                "INSERT INTO used_approvals VALUES (?, ? / 1000000.0)",
                "SELECT split_part(path, '/', 2), (extract(epoch FROM changed) * 1000000)::bigint "
                "FROM trunkline_small_files WHERE path LIKE 'used-approvals/%'",
                "INSERT INTO trunkline_small_files (path, content, changed) "
                "VALUES ('used-approvals/' || $1, '', to_timestamp($2::bigint / 1e6))",
            ),
            CopiedTable(
                "calls that may be continued",
                "trunkline_small_files",
                "SELECT digest, CAST(round(asked_at * 1000000) AS INTEGER) FROM continuations",
                "INSERT INTO continuations VALUES (?, ? / 1000000.0)",
                "SELECT split_part(path, '/', 2), (extract(epoch FROM changed) * 1000000)::bigint "
                "FROM trunkline_small_files WHERE path LIKE 'continuations/%'",
                "INSERT INTO trunkline_small_files (path, content, changed) "
                "VALUES ('continuations/' || $1, '', to_timestamp($2::bigint / 1e6))",
            ),
        ),
    ),
)
"""The files that all processes of a data directory share."""

IDENTITY: Final = "identity"
"""The folder of the records of processes that joined. In a backup it is in DATABASE_FOLDER."""
SMALL_FILES: Final = ("remote-cards", "tool-sign-ins", "webhook.secret", "workflows")
"""The small files, and folders of them, that are below `private` in a data directory."""
SELECT_SMALL_FILES: Final = (
    "SELECT path, content FROM trunkline_small_files "
    "WHERE path = ANY($1) OR split_part(path, '/', 1) = ANY($1) ORDER BY path"
)
SELECT_OTHER_SMALL_FILES: Final = " ".join(
    (
        "SELECT * FROM trunkline_small_files WHERE split_part(path, '/', 1) NOT IN",
        str((*SMALL_FILES, "used-approvals", "continuations", IDENTITY)),
    )
)
"""The small files that this module does not know."""
PASSING: Final = frozenset(
    (
        "trunkline_lease_clock",
        "trunkline_leases",
        "trunkline_store",
        "trunkline_message_processes",
        "trunkline_message_partitions",
        "trunkline_removed_contents",
    )
)
"""The tables whose rows mean nothing after a stop of the mesh."""
OTHERS: Final = frozenset(
    ("trunkline_journals", "trunkline_blobs", "trunkline_blob_chunks", "trunkline_small_files")
)
"""The tables that are copied by code of their own."""
