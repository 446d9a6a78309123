"""The tables of the message store in PostgreSQL, and what reads them without a lock."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

from trunkline.core.postgres import Schema
from trunkline.messages.sqlite_tables import build_conditions
from trunkline.messages.store import EnvelopeFilter, QueuedDelivery, StoredEnvelope
from trunkline.messages.stored_form import Codec, add_delivery

if TYPE_CHECKING:
    import asyncpg

    from trunkline.core.postgres import Connection

PARTITIONS: Final = 16
"""The shares of deliveries. So at most so many processes make deliveries at once."""

SCHEMA: Final = Schema(
    "messages",
    [
        [
            # Every write locks this row first. So writes of all processes are made one after
            # another, and positions and changes are dense, in the order of commits.
            "CREATE TABLE trunkline_message_counters (one integer PRIMARY KEY CHECK (one = 1), "
            "position bigint NOT NULL, change bigint NOT NULL, open_count bigint NOT NULL) "
            "WITH (fillfactor = 10)",
            "INSERT INTO trunkline_message_counters VALUES (1, 0, 0, 0)",
            # commits: the number of the process's last write, which tells whether a write was
            # stored whose answer was lost
            # renewals: of its lease; 0 if it makes no deliveries
            "CREATE TABLE trunkline_message_processes (process text PRIMARY KEY, "
            "commits bigint NOT NULL DEFAULT 0, renewals bigint NOT NULL DEFAULT 0, "
            "changed timestamptz NOT NULL DEFAULT now()) WITH (fillfactor = 50)",
            # epoch: changes with the owner
            "CREATE TABLE trunkline_message_partitions (partition integer PRIMARY KEY, "
            "owner text NOT NULL DEFAULT '', epoch bigint NOT NULL DEFAULT 0)",
            "INSERT INTO trunkline_message_partitions (partition) "
            f"SELECT generate_series(0, {PARTITIONS - 1})",
            # The columns of these tables are those of the local store; see `sqlite_tables`.
            "CREATE TABLE trunkline_messages (position bigint PRIMARY KEY, account text NOT NULL, "
            "envelope_id text NOT NULL, correlation_id text NOT NULL, causation_id text NOT NULL, "
            "room text NOT NULL, type text NOT NULL, sender text NOT NULL, "
            "recipient text NOT NULL, caller text NOT NULL, create_ns bigint NOT NULL, "
            "content bytea NOT NULL, change bigint NOT NULL) WITH (fillfactor = 80)",
            "CREATE UNIQUE INDEX trunkline_messages_by_id ON trunkline_messages (account, "
            "envelope_id)",
            "CREATE INDEX trunkline_messages_by_account ON trunkline_messages (account, position)",
            "CREATE INDEX trunkline_messages_by_correlation ON trunkline_messages (account, "
            "correlation_id, position)",
            "CREATE INDEX trunkline_messages_by_causation ON trunkline_messages (account, "
            "causation_id) WHERE causation_id <> ''",
            "CREATE INDEX trunkline_messages_by_room ON trunkline_messages (account, room, "
            "position) WHERE room <> ''",
            "CREATE INDEX trunkline_messages_by_time ON trunkline_messages (create_ns)",
            "CREATE INDEX trunkline_messages_by_change ON trunkline_messages (change)",
            # partition: by account, recipient and conversation
            "CREATE TABLE trunkline_deliveries (position bigint, recipient text, lane integer NOT "
            "NULL, partition integer NOT NULL, account text NOT NULL, correlation_id text NOT "
            "NULL, state integer NOT NULL, attempt_count integer NOT NULL, task_id text NOT NULL, "
            "not_before double precision NOT NULL, attempts bytea NOT NULL, update_ns bigint NOT "
            "NULL, PRIMARY KEY (position, recipient)) WITH (fillfactor = 70)",
            "CREATE INDEX trunkline_open_deliveries ON trunkline_deliveries (recipient, lane, "
            "position) WHERE state IN (1, 2)",
            "CREATE INDEX trunkline_open_conversations ON trunkline_deliveries "
            "(account, correlation_id, recipient, position) WHERE state IN (1, 2)",
            "CREATE TABLE trunkline_deleted_messages (account text, envelope_id text, "
            "create_ns bigint NOT NULL, PRIMARY KEY (account, envelope_id))",
            "CREATE TABLE trunkline_room_members (account text, room text, member text, "
            "join_ns bigint NOT NULL, PRIMARY KEY (account, room, member))",
            "CREATE TABLE trunkline_known_agents (name text PRIMARY KEY, "
            "seen timestamptz NOT NULL DEFAULT now())",
        ]
    ],
)


@dataclass(frozen=True, slots=True)
class ClaimedDelivery(QueuedDelivery):
    """A delivery of a partition that this process has."""

    partition: int = 0
    epoch: int = 0
    """The epoch of the partition. Writes under another one are refused."""


def choose_partition(account: str, recipient: str, correlation_id: str) -> int:
    """Return the partition of a delivery: one for all of a conversation to a recipient."""
    names = "\0".join((account, recipient, correlation_id))
    digest = hashlib.blake2b(names.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % PARTITIONS


def attempts_place(position: int, recipient: str) -> str:
    """Return the place to which the attempts of a delivery are bound."""
    return f"attempts {position} {recipient}"


def message_place(position: int) -> str:
    """Return the place to which the content of a message is bound."""
    return f"message {position}"


def number_conditions(account: str, query: EnvelopeFilter) -> tuple[str, list[object]]:
    """Return the SQL conditions for a filter with numbered marks from $1 on, and their values."""
    conditions, values = build_conditions(account, query, prefix="trunkline_")
    numbers = count(1)
    parts = conditions.split("?")
    numbered = "".join(f"{part}${next(numbers)}" for part in parts[:-1]) + parts[-1]
    return numbered, values


async def load_messages(
    connection: "Connection", positions: Sequence[int], codec: Codec
) -> list[StoredEnvelope]:
    """Return messages with their deliveries, in the order of `positions`, if they exist."""
    if not positions:
        return []
    rows = await connection.fetch(
        "SELECT position, account, caller, content FROM trunkline_messages WHERE position = "
        "ANY($1)",
        positions,
    )
    found: dict[int, StoredEnvelope] = {}
    for position, account, caller, content in rows:
        stored = StoredEnvelope(account=account, caller=caller, position=position)
        stored.envelope.CopyFrom(codec.decode_envelope(content, message_place(position)))
        found[position] = stored
    deliveries = await connection.fetch(
        "SELECT position, recipient, state, attempt_count, not_before, attempts, update_ns "
        "FROM trunkline_deliveries WHERE position = ANY($1) ORDER BY position, recipient",
        positions,
    )
    for row in deliveries:
        if (message := found.get(row["position"])) is not None:
            _add_delivery(message, row, codec)
    return [found[position] for position in positions if position in found]


def _add_delivery(stored: StoredEnvelope, row: "asyncpg.Record", codec: Codec) -> None:
    recipient = row["recipient"]
    add_delivery(
        stored,
        recipient,
        row["state"],
        attempt_count=row["attempt_count"],
        update_ns=row["update_ns"],
        not_before=row["not_before"],
        attempts=codec.decode_attempts(row["attempts"], attempts_place(stored.position, recipient)),
    )
