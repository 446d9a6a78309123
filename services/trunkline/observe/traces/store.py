"""The span store: the latest traces of a mesh in a SQLite file.

With an encryption key, spans and the names in summaries are encrypted; ids, times and counts are
not.

Its methods are thread-safe and block. Spans come from the SDK's export thread and, over OTLP, from
other processes. On an event loop, call them through `run_in_thread`.
"""

import base64
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ParamSpec, Self, TypeVar

from trunkline.core.database import Database, Schema
from trunkline.core.encryption import Keyring
from trunkline.core.runtime import sleep_until_tick
from trunkline.core.settings import DEFAULTS
from trunkline.errors import InvalidArgumentError, JournalUnavailableError, TraceNotFoundError
from trunkline.observe import telemetry
from trunkline.observe.traces.edges import EdgeWindow
from trunkline.observe.traces.lost_spans import add_lost_spans
from trunkline.observe.traces.spans import (
    NAME_LIMIT,
    SpanRecord,
    pack_records,
    read_span_ids,
    to_span,
    unpack_records,
)
from trunkline.v1 import trace_service_pb2

logger = logging.getLogger(__name__)

_MAX_TASKS_PER_SUMMARY = 50
_MAX_TRACES_PER_TASK = 10
# The weights of a trace for a task.
_AT_WORK, _REFERRING = 2, 1
_MAX_PRUNED_PER_BATCH = 200
_DELETION_INTERVAL_S = 60.0
_DEFAULT_PAGE_SIZE, _MAX_PAGE_SIZE = 50, 100

# No identity has this byte.
_END_OF_EXPORTER = b"\0"
# Traces of earlier versions are dropped, because reading their format is not worth the code.
_SCHEMA = Schema(
    """
DROP TABLE IF EXISTS spans;
DROP TABLE IF EXISTS traces;
DROP TABLE IF EXISTS tasks;
-- spans: the spans of one trace from one batch, after the identity of the process that sent them,
-- if it joined by a token; see trunkline.observe.traces.spans
CREATE TABLE spans (trace_id TEXT NOT NULL, spans BLOB NOT NULL);
CREATE INDEX spans_by_trace ON spans (trace_id);
-- root_*: of the root, else of the topmost span that was received; top_ns: 0 for a root, else the
-- start of that span
CREATE TABLE traces (
    trace_id TEXT PRIMARY KEY, start_ns INTEGER NOT NULL, end_ns INTEGER NOT NULL,
    span_count INTEGER NOT NULL, error_count INTEGER NOT NULL,
    root_name TEXT NOT NULL, root_service TEXT NOT NULL, root_agent TEXT NOT NULL,
    top_ns INTEGER NOT NULL, change INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX traces_by_start ON traces (start_ns, trace_id);
CREATE INDEX traces_by_change ON traces (change);
-- weight: 2 if a span worked on the task, 1 if it only referred to it
CREATE TABLE tasks (
    task_id TEXT NOT NULL, trace_id TEXT NOT NULL, weight INTEGER NOT NULL,
    PRIMARY KEY (task_id, trace_id)
) WITHOUT ROWID;
CREATE INDEX tasks_by_trace ON tasks (trace_id);
""",
    version=4,
)
_UPSERT_TRACE = """
INSERT INTO traces VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (trace_id) DO UPDATE SET
    start_ns = min(start_ns, excluded.start_ns), end_ns = max(end_ns, excluded.end_ns),
    span_count = span_count + excluded.span_count,
    error_count = error_count + excluded.error_count,
    root_name = iif({is_higher}, excluded.root_name, root_name),
    root_service = iif({is_higher}, excluded.root_service, root_service),
    root_agent = iif({is_higher}, excluded.root_agent, root_agent),
    top_ns = iif({is_higher}, excluded.top_ns, top_ns),
    change = excluded.change
""".format(is_higher="(excluded.top_ns = 0 OR excluded.top_ns <= top_ns)")
_SELECT_TRACES = """
SELECT trace_id, start_ns, end_ns, span_count, error_count, root_name, root_service,
    root_agent FROM traces
"""
_UPSERT_TASK = """
INSERT INTO tasks VALUES (?, ?, ?)
ON CONFLICT DO UPDATE SET weight = max(weight, excluded.weight)
"""

_CREATE_POSITION = """
CREATE TABLE IF NOT EXISTS shared_position (
    one INTEGER PRIMARY KEY, log_id TEXT NOT NULL, position INTEGER NOT NULL
)
"""

_P = ParamSpec("_P")
_T = TypeVar("_T")


@dataclass(slots=True)
class _TraceUpdate:
    """The changes that a batch of spans makes to the summary of one trace."""

    trace_id: str
    spans: Sequence[SpanRecord]
    start_ns: int = 2**62
    end_ns: int = 0
    span_count: int = 0
    error_count: int = 0
    root_name: str = ""
    root_service: str = ""
    root_agent: str = ""
    top_ns: int = 0
    tasks: dict[str, int] = field(default_factory=dict)


class SpanStore:
    """The latest traces of a mesh, limited by number and age. The oldest are removed first."""

    def __init__(
        self,
        path: Path,
        *,
        max_traces: int = DEFAULTS.trace_limit,
        retention_s: float = DEFAULTS.trace_age_s,
        keyring: Keyring | None = None,
        on_stored: Callable[[Sequence[bytes]], None] | None = None,
    ) -> None:
        """Open the store's file, or create it.

        `retention_s` is the longest age of a trace, in seconds. Traces are encrypted if there is a
        keyring, which must have data keys. `on_stored` gets the new spans of each batch, one
        content for each trace, which `add_shared` of another store takes. It is called in the
        thread that added them.

        Raises:
            JournalUnavailableError: the file can't be used.
        """
        self._path = path
        self._limit = max_traces
        self._age_ns = int(retention_s * 1e9)
        self._keyring = keyring
        self._cipher = keyring.cipher("traces", name=str(path)) if keyring is not None else None
        self._on_stored = on_stored
        self._edges = EdgeWindow()
        self._listeners: tuple[Callable[[], object], ...] = ()
        # Traces may be lost when the machine fails. Tasks may not; they are in the journal.
        self._database = Database(path, _SCHEMA, synchronous="off")
        self._connection = self._database.connection
        with self._database.read():
            self._change: int = self._query_number("SELECT coalesce(max(change), 0) FROM traces")
            self._count: int = self._query_number("SELECT count(*) FROM traces")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file. The store can't be used afterwards."""
        self._database.close()

    async def run_in_thread(
        self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Call one of the store's methods from an event loop, in the store's own thread."""
        return await self._database.run(function, *args, **kwargs)

    async def delete_old_traces(self) -> None:
        """Delete traces that are too old, at once and then every minute, until cancelled."""
        while True:
            try:
                while await self.run_in_thread(self._delete_old):
                    pass
            except JournalUnavailableError as error:
                logger.debug("traces.not_deleted", extra={"problem": error.problem})
            await sleep_until_tick(_DELETION_INTERVAL_S)

    @property
    def latest_change(self) -> int:
        """The number of the latest batch of spans: a cursor for `list_changed`."""
        return self._change

    def add(self, records: Iterable[SpanRecord], exporter: str = "") -> set[tuple[str, str]]:
        """Add spans, and return the trace and span ids of new spans that were stored.

        `exporter` is the identity of the process that exported them, if it joined by a token.

        Open spans are stored, but not returned: they are added again when they have ended. A span
        that is already stored is skipped. A notification without a request is skipped too, since
        it would be a trace of one meaningless span.
        """
        stored, contents = self._add(records, exporter)
        if self._on_stored is not None and contents:
            self._on_stored(contents)
        return stored

    def add_shared(self, contents: Iterable[bytes], log_id: str, position: int) -> None:
        """Add the new spans of another store, and store the position in the log that has them."""
        by_exporter: dict[bytes, list[bytes]] = defaultdict(list)
        for content in contents:
            exporter, _, spans = content.partition(_END_OF_EXPORTER)
            by_exporter[exporter].append(spans)
        for exporter, batches in by_exporter.items():
            records = (record for spans in batches for record in unpack_records(spans))
            self._add(records, exporter.decode())
        with self._database.write() as connection:
            connection.execute(_CREATE_POSITION)
            connection.execute(
                "INSERT OR REPLACE INTO shared_position VALUES (1, ?, ?)", (log_id, position)
            )

    def read_position(self, log_id: str) -> int:
        """Return the stored position in a log, or 0 if there is none."""
        with self._database.write() as connection:
            connection.execute(_CREATE_POSITION)
            row = connection.execute(
                "SELECT position FROM shared_position WHERE log_id = ?", (log_id,)
            ).fetchone()
        return 0 if row is None else int(row[0])

    def _add(
        self, records: Iterable[SpanRecord], exporter: str
    ) -> tuple[set[tuple[str, str]], Sequence[bytes]]:
        """Add spans. Return the ids of those that ended, and what was stored."""
        received: dict[str, dict[str, SpanRecord]] = defaultdict(dict)
        for record in records:
            if not _is_lone_notification(record):
                earlier = received[record.trace_id].get(record.span_id)
                if earlier is None or earlier.is_open:
                    received[record.trace_id][record.span_id] = record
        if not received:
            return set(), ()
        with self._transaction():
            if self._keyring is not None:
                self._keyring.refresh()
            self._change += 1
            updates = [self._select_new(trace_id, spans) for trace_id, spans in received.items()]
            contents = self._write([update for update in updates if update.spans], exporter)
            pruned = self._prune()
            for update in updates:
                ended = [span for span in update.spans if not span.is_open]
                self._edges.add(ended, now_s=time.monotonic())
        for listener in self._listeners:
            listener()
        ended_ids = {
            (span.trace_id, span.span_id)
            for update in updates
            for span in update.spans
            if update.trace_id not in pruned and not span.is_open
        }
        return ended_ids, contents

    def get_trace(self, *, trace_id: str = "", task_id: str = "") -> list[trace_service_pb2.Span]:
        """Return the spans of a trace, or of the traces of a task's turns, by start time.

        A turn that answers a question or an approval has a separate trace. Of many turns, the
        latest are returned. Stand-ins take the place of spans that were lost with their processes.

        Raises:
            InvalidArgumentError: both ids are empty.
            TraceNotFoundError: the store has no such trace.
        """
        if not trace_id and not task_id:
            raise InvalidArgumentError("trace_id", "give the id of a trace or of a task")
        with self._database.read():
            lookup_ids = [trace_id.lower()] if trace_id else self._find_trace_ids(task_id)
            contents = [content for each in lookup_ids for content in self._contents(each)]
        if not contents:
            raise TraceNotFoundError(trace_id or task_id)
        found: dict[tuple[str, str], trace_service_pb2.Span] = {}
        for content, exporter in contents:
            for record in unpack_records(content):
                key = record.trace_id, record.span_id
                if key not in found or not found[key].HasField("end_time"):
                    found[key] = to_span(record, exporter)
        return add_lost_spans(found.values())

    def list_traces(
        self, *, page_size: int = 0, page_token: str = ""
    ) -> trace_service_pb2.ListTracesResponse:
        """Return a page of traces, newest first.

        Raises:
            InvalidArgumentError: the page size or the token is invalid.
        """
        if not 0 <= page_size <= _MAX_PAGE_SIZE:
            raise InvalidArgumentError("page_size", f"must be 1 to {_MAX_PAGE_SIZE}")
        size = page_size or _DEFAULT_PAGE_SIZE
        before = _read_token(page_token) if page_token else (2**62, "")
        with self._database.read():
            summaries = self._summaries(
                "WHERE (start_ns, trace_id) < (?, ?) ORDER BY start_ns DESC, trace_id DESC LIMIT ?",
                (*before, size + 1),
            )
        response = trace_service_pb2.ListTracesResponse(traces=summaries[:size])
        if len(summaries) > size:
            response.next_page_token = _make_token(summaries[size - 1])
        return response

    def list_changed(
        self, change: int, *, limit: int = 100
    ) -> tuple[list[trace_service_pb2.TraceSummary], int]:
        """Return traces that changed after a cursor, with the cursor for the next call."""
        with self._database.read():
            # All traces that a batch changed have its number, so a page ends at a whole number.
            rows = self._connection.execute(
                "SELECT change FROM traces WHERE change > ? ORDER BY change LIMIT ?",
                (change, limit),
            ).fetchall()
            if not rows:
                return [], change
            last = int(rows[-1][0])
            where = "WHERE change > ? AND change <= ? ORDER BY change, start_ns"
            return self._summaries(where, (change, last)), last

    def list_edges(self) -> list[trace_service_pb2.Edge]:
        """Return the edges of the last minute, from the spans that arrived in it."""
        with self._database.read():
            return self._edges.list_edges(now_s=time.monotonic())

    @contextmanager
    def subscribe(self, listener: Callable[[], object]) -> Iterator[None]:
        """Call `listener` after every batch inside the block, in the thread that added it."""
        self._listeners = (*self._listeners, listener)
        try:
            yield
        finally:
            self._listeners = tuple(other for other in self._listeners if other is not listener)

    def _select_new(self, trace_id: str, spans: Mapping[str, SpanRecord]) -> _TraceUpdate:
        """Return the spans of a trace that change it, up to the limit of a trace."""
        open_by_id: dict[str, bool] = {}
        for content, _ in self._contents(trace_id):
            for span_id, is_open in read_span_ids(content):
                open_by_id[span_id] = is_open and open_by_id.get(span_id, True)
        if not open_by_id:
            self._count += 1
        free = max(0, telemetry.MAX_SPANS_PER_TRACE - len(open_by_id))
        added = [span for span_id, span in spans.items() if span_id not in open_by_id][:free]
        ended = [
            span
            for span_id, span in spans.items()
            if open_by_id.get(span_id, False) and not span.is_open
        ]
        return _summarise(trace_id, added, ended)

    def _write(self, updates: Sequence[_TraceUpdate], exporter: str) -> list[bytes]:
        """Write new spans, update the summaries of their traces, and return the spans."""
        plain: list[bytes] = []
        contents: list[tuple[str, bytes]] = []
        traces: list[tuple[str | int | bytes, ...]] = []
        tasks: list[tuple[str, str, int]] = []
        for update in updates:
            trace_id = update.trace_id
            content = exporter.encode() + _END_OF_EXPORTER + pack_records(update.spans)
            plain.append(content)
            if self._cipher is not None:
                content = self._cipher.encrypt(content, f"spans {trace_id}")
            contents.append((trace_id, content))
            times = (update.start_ns, update.end_ns)
            counts = (update.span_count, update.error_count)
            names = (update.root_name, update.root_service, update.root_agent)
            root = self._encrypt_root(trace_id, names)
            traces.append((trace_id, *times, *counts, *root, update.top_ns, self._change))
            tasks += [(task_id, trace_id, weight) for task_id, weight in update.tasks.items()]
        self._connection.executemany("INSERT INTO spans VALUES (?, ?)", contents)
        self._connection.executemany(_UPSERT_TRACE, traces)
        self._connection.executemany(_UPSERT_TASK, tasks)
        return plain

    def _contents(self, trace_id: str) -> Iterator[tuple[bytes, str]]:
        """Yield the spans of a trace, each batch with the identity that exported it."""
        rows = self._connection.execute("SELECT spans FROM spans WHERE trace_id = ?", (trace_id,))
        for (stored,) in rows:
            content: bytes = stored
            if self._cipher is not None:
                content = self._cipher.decrypt(content, f"spans {trace_id}")
            exporter, _, spans = content.partition(_END_OF_EXPORTER)
            yield spans, exporter.decode()

    def _encrypt_root(self, trace_id: str, names: Sequence[str]) -> Sequence[str | bytes]:
        """Return the names of a root span, its service and its agent as they are stored."""
        if self._cipher is None:
            return names
        # One ciphertext costs a third of three.
        return self._cipher.encrypt("\0".join(names).encode(), f"root {trace_id}"), "", ""

    def _decrypt_root(self, trace_id: str, name: str | bytes, *others: str) -> Sequence[str]:
        if isinstance(name, str) or self._cipher is None:
            return str(name), *others
        return self._cipher.decrypt(name, f"root {trace_id}").decode().split("\0", 2)

    def _delete_old(self) -> set[str]:
        """Remove a bounded number of traces as `_prune`, and return their ids."""
        with self._transaction():
            return self._prune()

    def _prune(self) -> set[str]:
        """Remove a bounded number of traces beyond the limit or the retention; return their ids."""
        too_many = min(max(0, self._count - self._limit), _MAX_PRUNED_PER_BATCH)
        rows = self._connection.execute(
            "SELECT trace_id FROM traces ORDER BY start_ns LIMIT ?", (too_many,)
        ).fetchall()
        rows += self._connection.execute(
            "SELECT trace_id FROM traces WHERE start_ns < ? ORDER BY start_ns LIMIT ?",
            (time.time_ns() - self._age_ns, _MAX_PRUNED_PER_BATCH),
        ).fetchall()
        pruned = {trace_id for (trace_id,) in rows}
        for table in ("spans", "tasks", "traces"):
            delete = " ".join(("DELETE FROM", table, "WHERE trace_id = ?"))
            self._connection.executemany(delete, [(trace_id,) for trace_id in pruned])
        self._count -= len(pruned)
        return pruned

    def _find_trace_ids(self, task_id: str) -> list[str]:
        """Return the traces that worked on a task; without any, the latest that refers to it."""
        rows = self._connection.execute(
            "SELECT trace_id, weight FROM tasks JOIN traces USING (trace_id) WHERE task_id = ? "
            "ORDER BY weight DESC, start_ns DESC LIMIT ?",
            (task_id, _MAX_TRACES_PER_TASK),
        ).fetchall()
        at_work = [str(trace_id) for trace_id, weight in rows if weight == _AT_WORK]
        return at_work or [str(trace_id) for trace_id, _ in rows[:1]]

    def _summaries(
        self, where: str, values: Sequence[object]
    ) -> list[trace_service_pb2.TraceSummary]:
        # `where` is always one of our constants; input from outside is in `values`.
        rows = self._connection.execute(f"{_SELECT_TRACES} {where}", values).fetchall()
        return [self._summary(row) for row in rows]

    def _summary(self, row: Sequence[Any]) -> trace_service_pb2.TraceSummary:
        trace_id, start_ns, end_ns, span_count, error_count, *root = row
        root_name, root_service, root_agent = self._decrypt_root(trace_id, *root)
        summary = trace_service_pb2.TraceSummary(
            trace_id=trace_id,
            span_count=span_count,
            error_count=error_count,
            root_name=root_name,
            root_service=root_service,
            root_agent=root_agent,
        )
        summary.start_time.FromNanoseconds(start_ns)
        summary.end_time.FromNanoseconds(end_ns)
        tasks = self._connection.execute(
            "SELECT task_id FROM tasks WHERE trace_id = ? LIMIT ?",
            (trace_id, _MAX_TASKS_PER_SUMMARY),
        )
        summary.task_ids.extend(task_id for (task_id,) in tasks)
        return summary

    def _query_number(self, query: str, *values: object) -> int:
        return int(self._connection.execute(query, values).fetchone()[0])

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit everything or nothing. On failure the counters are restored too."""
        # No other thread may count until the counters are restored: a commit fails, too.
        with self._database.read():
            before = self._change, self._count
            try:
                with self._database.write():
                    yield
            except BaseException:
                self._change, self._count = before
                raise


def _summarise(
    trace_id: str, added: Sequence[SpanRecord], ended: Sequence[SpanRecord]
) -> _TraceUpdate:
    """Return the update by spans that are new, and by spans that were stored while open."""
    update = _TraceUpdate(trace_id, [*added, *ended], span_count=len(added))
    for span in update.spans:
        update.start_ns = min(update.start_ns, span.start_ns)
        update.end_ns = max(update.end_ns, span.end_ns or span.start_ns)
        update.error_count += span.is_error and not span.is_open
        for key, task_id in span.tasks:
            weight = _AT_WORK if key == telemetry.TASK_ID else _REFERRING
            update.tasks[task_id] = max(weight, update.tasks.get(task_id, 0))
    if update.spans:
        _name_root(update)
    return update


def _name_root(update: _TraceUpdate) -> None:
    """Set the names of the root, or of the span that began first: spans begin after their parents.

    NUL separates the names, so they have none.
    """
    top = min(update.spans, key=lambda span: (not span.is_root, span.start_ns))
    names = (top.span.name, top.service, top.find_text(telemetry.GEN_AI_AGENT_NAME))
    update.root_name, update.root_service, update.root_agent = (
        name[:NAME_LIMIT].replace("\0", " ") for name in names
    )
    update.top_ns = 0 if top.is_root else max(1, top.start_ns)


def _is_lone_notification(record: SpanRecord) -> bool:
    # MCP's prefix for methods without a response. `notifications/cancelled` has no trace context.
    return record.is_root and record.span.name.startswith("notifications/")


def _make_token(last: trace_service_pb2.TraceSummary) -> str:
    text = f"{last.start_time.ToNanoseconds()} {last.trace_id}"
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read_token(token: str) -> tuple[int, str]:
    try:
        padded = token + "=" * (-len(token) % 4)
        start_ns, trace_id = base64.urlsafe_b64decode(padded).decode().split(" ")
        return int(start_ns), trace_id
    except ValueError:
        raise InvalidArgumentError("page_token", "is not a token from ListTraces") from None
