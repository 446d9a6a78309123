"""Registries share the traces of a mesh by a log in the database."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1 import trace_pb2

from harness.a2a.sse_client import PATIENCE_S
from harness.journal.postgres_server import PostgresServer, new_database
from harness.logs import find_logged
from harness.polling import wait_for
from trunkline.core.json_values import read_member
from trunkline.core.postgres import PostgresDatabase
from trunkline.errors import TraceNotFoundError
from trunkline.observe import telemetry
from trunkline.observe.traces import SpanStore
from trunkline.observe.traces.shared_traces import SharedTraces
from trunkline.observe.traces.spans import SpanRecord, read_records

DAY_S = 24 * 3600.0


def spans(trace: int, *numbers: int, size: int = 1) -> list[SpanRecord]:
    resource = trace_pb2.ResourceSpans()
    scope = resource.scope_spans.add()
    for number in numbers:
        span = scope.spans.add(
            trace_id=trace.to_bytes(16, "big"),
            span_id=number.to_bytes(8, "big"),
            name="x" * size,
            start_time_unix_nano=4_000_000_000 * 10**9,
            end_time_unix_nano=4_000_000_001 * 10**9,
        )
        span.attributes.add(key=telemetry.TASK_ID).value.string_value = f"task-{trace}"
    return list(read_records([resource]))


@asynccontextmanager
async def open_registry(url: str, path: Path) -> AsyncIterator[SpanStore]:
    async with AsyncExitStack() as stack:
        database = await stack.enter_async_context(PostgresDatabase(url))
        shared = SharedTraces(database, max_traces=1000, retention_s=DAY_S)
        store = stack.enter_context(SpanStore(path, on_stored=shared.put))
        await stack.enter_async_context(shared.run(store))
        yield store


async def wait_for_spans(store: SpanStore, trace: int, count: int) -> list[str]:
    """Return the exporters of the spans of a trace once the store has that many."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            try:
                found = store.get_trace(trace_id=f"{trace:032x}")
            except TraceNotFoundError:
                found = []
            if len(found) == count:
                return [
                    str(read_member(span.attributes, telemetry.EXPORTER) or "") for span in found
                ]
            await asyncio.sleep(0.05)


async def test_each_registry_shows_the_spans_that_others_received(tmp_path: Path) -> None:
    async with new_database() as url:
        async with (
            open_registry(url, tmp_path / "first.db") as first,
            open_registry(url, tmp_path / "second.db") as second,
        ):
            first.add(spans(1, 1, 2))
            second.add(spans(1, 3), "spiffe://mesh/agents/math/-/0123")
            for store in (first, second):
                exporters = await wait_for_spans(store, 1, 3)
                assert sorted(exporters) == ["", "", "spiffe://mesh/agents/math/-/0123"]
                (summary,) = store.list_traces().traces
                assert (summary.span_count, list(summary.task_ids)) == (3, ["task-1"])
        # The folder of one is lost, and another one was away.
        async with open_registry(url, tmp_path / "third.db") as third:
            await wait_for_spans(third, 1, 3)
            third.add(spans(2, 1))
        async with open_registry(url, tmp_path / "second.db") as second:
            await wait_for_spans(second, 2, 1)
            assert await wait_for_spans(second, 1, 3)


async def test_a_database_that_is_away_delays_nothing_and_spans_are_shared_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    server = PostgresServer()
    async with open_registry(server.url, tmp_path / "first.db") as first:
        first.add(spans(1, 1))
        await wait_for_spans(first, 1, 1)
        server.kill()
        first.add(spans(1, 2))
        assert len(first.get_trace(task_id="task-1")) == 2
        await wait_for(lambda: "traces.not_shared" in caplog.messages)
        server.start()
        async with open_registry(server.url, tmp_path / "second.db") as second:
            await wait_for_spans(second, 1, 2)
    server.remove()


async def test_spans_beyond_the_queue_are_dropped_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with open_registry(
            "postgresql://nobody@127.0.0.1:1/none", tmp_path / "a.db"
        ) as store:
            for trace in range(1, 4000):
                store.add(spans(trace, 1, 2, 3, size=2000))
    records = [record for record in find_logged(caplog) if record.message == "traces.dropped"]
    # All of them in the end, and no more.
    assert [vars(record)["count"] for record in records] == [3999]
