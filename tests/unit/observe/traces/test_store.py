"""The span store stores whole traces, finds them by task, and removes the oldest."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from opentelemetry.proto.trace.v1 import trace_pb2

from harness.journal.full_disk import full_disk
from harness.journal.protected import new_key, open_keyring
from harness.polling import wait_for
from trunkline.core.json_values import read_member
from trunkline.core.runtime import run_in_background
from trunkline.errors import InvalidArgumentError, JournalUnavailableError, TraceNotFoundError
from trunkline.observe import telemetry
from trunkline.observe.telemetry import MAX_SPANS_PER_TRACE
from trunkline.observe.traces import SpanStore
from trunkline.observe.traces.spans import SpanRecord, read_records
from trunkline.v1 import trace_service_pb2

NOW_S = 4_000_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SpanStore]:
    with SpanStore(tmp_path / "traces.db", max_traces=100) as opened:
        yield opened


def span(
    trace: int,
    number: int,
    *,
    parent: int = 0,
    at_s: int = 0,
    name: str = "",
    is_error: bool = False,
    is_open: bool = False,
    **attributes: str,
) -> SpanRecord:
    resource = trace_pb2.ResourceSpans()
    new_span = resource.scope_spans.add().spans.add(
        trace_id=trace.to_bytes(16, "big"),
        span_id=number.to_bytes(8, "big"),
        parent_span_id=parent.to_bytes(8, "big") if parent else b"",
        name=name or f"span {number}",
        start_time_unix_nano=(NOW_S + at_s) * 10**9,
        end_time_unix_nano=0 if is_open else (NOW_S + at_s + 1) * 10**9,
    )
    if is_error:
        new_span.status.code = trace_pb2.Status.STATUS_CODE_ERROR
    for key, value in {telemetry.SERVICE: "math", **attributes}.items():
        new_span.attributes.add(key=key.replace("_", ".")).value.string_value = value
    (record,) = read_records([resource])
    return record


def ids(spans: list[trace_service_pb2.Span]) -> list[str]:
    return [trace_span.span_id[-1] for trace_span in spans]


def test_spans_of_a_trace_are_returned_by_start_time_in_any_arrival_order(store: SpanStore) -> None:
    late, early, middle = span(1, 3, parent=2, at_s=30), span(1, 1, at_s=10), span(1, 2, at_s=20)
    store.add([late])
    store.add([middle, early])
    listed = store.get_trace(trace_id=f"{1:032X}")
    assert [trace_span.span_id for trace_span in listed] == [
        trace_span.span_id for trace_span in (early, middle, late)
    ]
    assert [trace_span.start_time.seconds - NOW_S for trace_span in listed] == [10, 20, 30]


def test_an_open_span_is_stored_and_replaced_when_it_has_ended(store: SpanStore) -> None:
    root, child = span(1, 1, name="asked", is_open=True), span(1, 2, parent=1, at_s=3)
    assert store.add([root, child]) == {(child.trace_id, child.span_id)}
    (shown, other) = store.get_trace(trace_id=root.trace_id)
    assert (shown.name, shown.HasField("end_time"), other.HasField("end_time")) == (
        "asked",
        False,
        True,
    )
    assert store.add([root]) == set()
    ended = span(1, 1, name="answered", at_s=9, is_error=True)
    assert store.add([ended, ended]) == {(ended.trace_id, ended.span_id)}
    assert store.add([ended]) == set()
    # Exports may overtake each other: an open span never replaces the ended one.
    assert store.add([root]) == set()
    assert [each.name for each in store.get_trace(trace_id=root.trace_id)] == ["span 2", "answered"]
    (summary,) = store.list_traces().traces
    assert (summary.span_count, summary.error_count, summary.root_name) == (2, 1, "answered")


def test_traces_in_an_old_format_are_replaced(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "traces.db") as old_database:
        old_database.executescript(
            "CREATE TABLE spans (trace_id TEXT, span_id TEXT, start_ns INTEGER, span BLOB);"
            "CREATE TABLE traces (trace_id TEXT); INSERT INTO traces VALUES ('00')"
        )
    old_database.close()
    with SpanStore(tmp_path / "traces.db") as store:
        store.add([span(1, 1)])
        assert [trace.span_count for trace in store.list_traces().traces] == [1]


def test_a_duplicate_span_counts_once(store: SpanStore) -> None:
    first, second, third = ((f"{1:032x}", f"{number:016x}") for number in (1, 2, 3))
    assert store.add([span(1, 1), span(1, 2)]) == {first, second}
    assert store.add([span(1, 2), span(1, 2), span(1, 3)]) == {third}
    (summary,) = store.list_traces().traces
    assert summary.span_count == 3


def test_a_notification_is_stored_in_the_trace_of_a_request_but_not_alone(
    store: SpanStore,
) -> None:
    lone, part = (
        span(trace, 2, parent=parent, name="notifications/cancelled")
        for trace, parent in ((1, 0), (2, 1))
    )
    assert store.add([lone]) == set()
    store.add([lone, part])
    assert [trace.trace_id for trace in store.list_traces().traces] == [part.trace_id]


def test_a_summary_has_root_times_errors_and_tasks(store: SpanStore) -> None:
    store.add([span(1, 2, parent=1, at_s=5, is_error=True, trunkline_task_id="t-1")])
    store.add([span(1, 1, name="SendMessage")])
    (summary,) = store.list_traces().traces
    assert (summary.root_name, summary.root_service) == ("SendMessage", "math")
    assert (summary.span_count, summary.error_count) == (2, 1)
    assert summary.start_time.seconds == NOW_S
    assert summary.end_time.seconds == NOW_S + 6
    assert list(summary.task_ids) == ["t-1"]


def test_a_task_leads_to_the_traces_that_worked_on_it(store: SpanStore) -> None:
    store.add([span(1, 1, at_s=10, trunkline_task_id="t-1")])
    store.add([span(2, 2, at_s=20, trunkline_task_id="t-1", a2a_task_id="t-1")])
    # A span that only refers to the task does not work on it.
    store.add([span(3, 3, at_s=30, a2a_task_id="t-1")])
    store.add([span(4, 4, at_s=30, a2a_task_id="t-2")])
    assert ids(store.get_trace(task_id="t-1")) == ["1", "2"]
    # Without any, the latest that refers to it.
    assert ids(store.get_trace(task_id="t-2")) == ["4"]
    # Of many, the latest ten.
    for number in range(5, 14):
        store.add([span(number, number, at_s=10 * number, trunkline_task_id="t-1")])
    assert len(ids(store.get_trace(task_id="t-1"))) == 10


def test_an_unknown_trace_or_task_is_an_error(store: SpanStore) -> None:
    with pytest.raises(TraceNotFoundError):
        store.get_trace(trace_id="00")
    with pytest.raises(TraceNotFoundError):
        store.get_trace(task_id="t-1")
    with pytest.raises(InvalidArgumentError):
        store.get_trace()


def test_pages_go_through_all_traces_newest_first(store: SpanStore) -> None:
    store.add([span(trace, 1, at_s=trace // 2) for trace in range(1, 26)])
    listed, token = [], ""
    while True:
        page = store.list_traces(page_size=10, page_token=token)
        listed += [int(summary.trace_id, 16) for summary in page.traces]
        token = page.next_page_token
        if not token:
            break
    assert listed == list(reversed(range(1, 26)))


@pytest.mark.parametrize(("size", "token"), [(-1, ""), (101, ""), (0, "nonsense"), (0, "YQ")])
def test_a_bad_page_is_refused(store: SpanStore, size: int, token: str) -> None:
    with pytest.raises(InvalidArgumentError):
        store.list_traces(page_size=size, page_token=token)


def test_the_oldest_traces_are_deleted_beyond_the_limit(store: SpanStore) -> None:
    for trace in range(1, 131):
        store.add([span(trace, 1, at_s=trace, trunkline_task_id=f"t-{trace}")])
    listed, token = [], ""
    for _ in range(2):
        page = store.list_traces(page_size=100, page_token=token)
        listed += [int(summary.trace_id, 16) for summary in page.traces]
    assert min(listed) == 31
    with pytest.raises(TraceNotFoundError):
        store.get_trace(task_id="t-30")
    assert ids(store.get_trace(task_id="t-31")) == ["1"]


def test_traces_that_do_not_fit_on_the_disk_evict_none(store: SpanStore) -> None:
    store.add(span(number, 1, at_s=number) for number in range(1, 91))
    with full_disk(), pytest.raises(JournalUnavailableError):
        store.add(span(number, 1, name="n" * 250) for number in range(1001, 1501))
    store.add([span(91, 1, at_s=91)])
    assert len(store.list_traces(page_size=100).traces) == 91


def test_traces_that_are_too_old_are_deleted(tmp_path: Path) -> None:
    with SpanStore(tmp_path / "traces.db", retention_s=3600) as store:
        store.add([span(1, 1, at_s=-NOW_S)])
        store.add([span(2, 2)])
        assert [trace.trace_id[-1] for trace in store.list_traces().traces] == ["2"]


async def test_traces_become_too_old_also_if_none_are_added(tmp_path: Path) -> None:
    path = tmp_path / "traces.db"
    with SpanStore(path) as store:
        store.add(span(number, 1, at_s=-NOW_S) for number in range(1, 501))
        store.add([span(501, 1)])
    with SpanStore(path, retention_s=3600) as store:
        async with run_in_background(store.delete_old_traces()):
            await wait_for(lambda: len(store.list_traces().traces) == 1)
        assert store.get_trace(trace_id=f"{501:032x}")


def test_an_endless_trace_is_truncated(store: SpanStore) -> None:
    store.add([span(1, number) for number in range(1, MAX_SPANS_PER_TRACE)])
    store.add([span(1, number) for number in range(MAX_SPANS_PER_TRACE, MAX_SPANS_PER_TRACE + 10)])
    assert len(store.get_trace(trace_id=f"{1:032x}")) == MAX_SPANS_PER_TRACE


def test_traces_survive_a_restart(tmp_path: Path) -> None:
    with SpanStore(tmp_path / "traces.db") as store:
        store.add([span(1, 1)])
        change = store.latest_change
    with SpanStore(tmp_path / "traces.db") as store:
        assert ids(store.get_trace(trace_id=f"{1:032x}")) == ["1"]
        assert store.latest_change == change


def test_a_reader_of_changes_sees_each_once(store: SpanStore) -> None:
    store.add([span(1, 1), span(2, 1)])
    store.add([span(3, 1)])
    traces, change = store.list_changed(0, limit=1)
    assert [trace.trace_id[-1] for trace in traces] == ["1", "2"]
    traces, change = store.list_changed(change)
    assert [trace.trace_id[-1] for trace in traces] == ["3"]
    assert store.list_changed(change) == ([], change)


@pytest.mark.parametrize(
    ("content", "advice"),
    [(b"not a database at all", "another data directory"), (None, "not a regular file")],
)
def test_a_file_that_cannot_be_used_is_named(
    tmp_path: Path, content: bytes | None, advice: str
) -> None:
    path = tmp_path / "traces.db"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content * 1000)
    with pytest.raises(JournalUnavailableError, match=advice) as caught:
        SpanStore(path)
    assert str(path) in str(caught.value)


def test_the_file_is_private(tmp_path: Path) -> None:
    with SpanStore(tmp_path / "traces.db") as store:
        store.add([span(1, 1)])
        modes = {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {0o600}


def test_names_of_the_index_are_those_of_our_spans() -> None:
    assert telemetry.TASK_ID == "trunkline.task.id"
    assert telemetry.A2A_TASK_ID == "a2a.task.id"


def test_traces_are_encrypted_once_a_key_is_set(tmp_path: Path) -> None:
    path, secret = tmp_path / "traces.db", "the patient's name"
    with SpanStore(path) as store:
        store.add([span(1, 1, name="from before")])
    with SpanStore(path, keyring=open_keyring(tmp_path, new_key())) as store:
        spans = [span(2, 1, name=secret, note=secret), span(3, 1), span(1, 2, parent=1)]
        store.add(spans, f"spiffe://mesh/agents/{secret}")
        stored = b"".join(file.read_bytes() for file in tmp_path.glob("traces.db*"))
        assert secret.encode() not in stored
        (read,) = store.get_trace(trace_id=f"{2:032x}")
        assert (read.name, read_member(read.attributes, "note")) == (secret, secret)
        assert read_member(read.attributes, telemetry.EXPORTER) == f"spiffe://mesh/agents/{secret}"
        assert ids(store.get_trace(trace_id=f"{1:032x}")) == ["1", "2"]
        names = {trace.trace_id[-1]: trace.root_name for trace in store.list_traces().traces}
        assert names == {"1": "from before", "2": secret, "3": "span 1"}
        with sqlite3.connect(path) as other:
            other.execute(
                "UPDATE spans SET spans = (SELECT spans FROM spans WHERE trace_id = ?)",
                (f"{2:032x}",),
            )
        with pytest.raises(JournalUnavailableError, match="moved from another place"):
            store.get_trace(trace_id=f"{3:032x}")


def test_without_its_root_a_trace_has_the_names_of_its_topmost_span(store: SpanStore) -> None:
    # The client's span is not received. The one below it is exported after its children.
    store.add([span(1, 3, parent=2, name="invoke_agent", at_s=2)])
    top = span(1, 2, parent=9, name="SendMessage", at_s=1).span
    top.attributes.add(key=telemetry.GEN_AI_AGENT_NAME).value.string_value = "teacher"
    scope = trace_pb2.ScopeSpans(spans=[top])
    store.add(read_records([trace_pb2.ResourceSpans(scope_spans=[scope])]))
    store.add([span(1, 4, parent=3, name="execute_tool", at_s=3)])
    (summary,) = store.list_traces().traces
    names = (summary.root_name, summary.root_service, summary.root_agent)
    assert names == ("SendMessage", "math", "teacher")
    store.add([span(1, 9, name="client", at_s=5)])
    assert store.list_traces().traces[0].root_name == "client"
