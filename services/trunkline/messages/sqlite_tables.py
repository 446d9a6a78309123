"""The tables of the local store of messages, and the conditions of their queries."""

from typing import Final

from trunkline.core.database import Schema
from trunkline.messages.store import EnvelopeFilter

SCHEMA: Final = Schema("""
-- content: the serialised envelope
-- change: the number of the change that accepted it, or ended one of its deliveries
CREATE TABLE IF NOT EXISTS messages (
    position INTEGER PRIMARY KEY, account TEXT NOT NULL, envelope_id TEXT NOT NULL,
    correlation_id TEXT NOT NULL, causation_id TEXT NOT NULL, room TEXT NOT NULL,
    type TEXT NOT NULL, sender TEXT NOT NULL, recipient TEXT NOT NULL, caller TEXT NOT NULL,
    create_ns INTEGER NOT NULL, content BLOB NOT NULL, change INTEGER NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS messages_by_id ON messages (account, envelope_id);
CREATE INDEX IF NOT EXISTS messages_by_correlation ON messages (account, correlation_id);
CREATE INDEX IF NOT EXISTS messages_by_causation ON messages (account, causation_id)
    WHERE causation_id != '';
CREATE INDEX IF NOT EXISTS messages_by_room ON messages (account, room) WHERE room != '';
CREATE INDEX IF NOT EXISTS messages_by_time ON messages (create_ns);
CREATE INDEX IF NOT EXISTS messages_by_change ON messages (change);
-- lane: the number of the delivery's queue, which is the priority of the first open message of the
-- conversation when this message was accepted
-- attempts: a JSON list of [task id, start, end, problem, traceparent]
CREATE TABLE IF NOT EXISTS deliveries (
    position INTEGER NOT NULL, recipient TEXT NOT NULL, lane INTEGER NOT NULL,
    account TEXT NOT NULL, correlation_id TEXT NOT NULL, state INTEGER NOT NULL,
    attempt_count INTEGER NOT NULL, task_id TEXT NOT NULL, not_before REAL NOT NULL,
    attempts BLOB NOT NULL, update_ns INTEGER NOT NULL,
    PRIMARY KEY (position, recipient)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS open_deliveries ON deliveries (recipient, lane, position)
    WHERE state IN (1, 2);
CREATE INDEX IF NOT EXISTS open_conversations
    ON deliveries (account, correlation_id, recipient, position) WHERE state IN (1, 2);
CREATE INDEX IF NOT EXISTS dead_deliveries ON deliveries (position) WHERE state = 4;
-- The ids of deleted messages, until they may be used again.
CREATE TABLE IF NOT EXISTS deleted (
    account TEXT NOT NULL, envelope_id TEXT NOT NULL, create_ns INTEGER NOT NULL,
    PRIMARY KEY (account, envelope_id)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS members (
    account TEXT NOT NULL, room TEXT NOT NULL, member TEXT NOT NULL, join_ns INTEGER NOT NULL,
    PRIMARY KEY (account, room, member)
) WITHOUT ROWID;
-- The agents that were on the mesh.
CREATE TABLE IF NOT EXISTS agents (name TEXT PRIMARY KEY, seen_ns INTEGER NOT NULL) WITHOUT ROWID;
-- The last position and change, which outlive deleted messages.
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
""")
_HAS_DELIVERY: Final = (
    "EXISTS (SELECT 1 FROM {prefix}deliveries d WHERE d.position = messages.position"
)


def _clamp(nanoseconds: int) -> int:
    """Return the nearest number that SQLite has: its integers end in the year 2262."""
    return min(max(nanoseconds, -(2**63)), 2**63 - 1)


def build_conditions(
    account: str, query: EnvelopeFilter, *, prefix: str = ""
) -> tuple[str, list[object]]:
    """Return the SQL conditions for a filter, and their values.

    `prefix` begins the names of the tables. The table of messages has the alias `messages`.
    """
    has_delivery = _HAS_DELIVERY.format(prefix=prefix)
    columns: list[tuple[str, object]] = [
        ("account = ?", account),
        ("envelope_id = ?", query.envelope_id),
        ("correlation_id = ?", query.correlation_id),
        ("causation_id = ?", query.causation_id),
        ("room = ?", query.room),
        ("type = ?", query.type),
    ]
    chosen = [column for column in columns if column[1]]
    if query.HasField("start_time"):
        chosen.append(("create_ns >= ?", _clamp(query.start_time.ToNanoseconds())))
    if query.HasField("end_time"):
        chosen.append(("create_ns < ?", _clamp(query.end_time.ToNanoseconds())))
    conditions = [condition for condition, _ in chosen]
    values = [value for _, value in chosen]
    if query.recipient:
        conditions.append(f"(recipient = ? OR {has_delivery} AND d.recipient = ?))")
        values += [query.recipient] * 2
    if query.participant:
        conditions.append(f"(? IN (sender, recipient) OR {has_delivery} AND d.recipient = ?))")
        values += [query.participant] * 2
    if query.states:
        marks = ", ".join("?" * len(query.states))
        conditions.append(f"{has_delivery} AND d.state IN ({marks}))")
        values += query.states
    return " AND ".join(conditions), values
