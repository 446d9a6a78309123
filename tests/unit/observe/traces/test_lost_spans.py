"""Spans whose parents were lost with a killed process get stand-ins below the root."""

from trunkline.core.json_values import read_member
from trunkline.observe import telemetry
from trunkline.observe.traces.lost_spans import NAME, add_lost_spans
from trunkline.v1 import trace_service_pb2

Span = trace_service_pb2.Span
SERVER = trace_service_pb2.SPAN_KIND_SERVER


def span(name: str, parent: str = "", *, at: int = 0, service: str = "math") -> Span:
    made = Span(trace_id="t", span_id=name, parent_span_id=parent, name=name, service=service)
    made.start_time.FromSeconds(at)
    made.end_time.FromSeconds(at + 1)
    return made


def stand_ins(*spans: Span) -> list[tuple[str, str]]:
    """Return the ids of the stand-ins, each with the id of its parent."""
    added = [each for each in add_lost_spans(spans) if read_member(each.attributes, telemetry.LOST)]
    assert all(each.name == NAME and not each.HasField("end_time") for each in added)
    return [(each.span_id, each.parent_span_id) for each in added]


def test_a_missing_parent_gets_one_stand_in_below_the_root() -> None:
    spans = [span("late", "gone", at=7), span("early", "gone", at=5), span("root", at=1)]
    assert stand_ins(*spans) == [("gone", "root")]
    assert [each.span_id for each in add_lost_spans(spans)] == ["root", "early", "gone", "late"]


def test_a_whole_trace_gets_none() -> None:
    assert stand_ins(span("root"), span("child", "root", at=1)) == []


def test_the_caller_of_the_mesh_is_not_missing() -> None:
    assert stand_ins(span("request", "caller"), span("again", "caller", at=2)) == []
    first, second = (span(name, name.upper(), service="bridge") for name in ("first", "second"))
    second.kind = SERVER
    assert stand_ins(first, second) == []


def test_the_first_span_is_the_root_if_the_root_was_lost() -> None:
    assert stand_ins(span("a", "x"), span("b", "y", at=1)) == [("y", "a")]


def test_each_trace_is_completed_on_its_own() -> None:
    other = Span(trace_id="u", span_id="other", parent_span_id="root")
    assert stand_ins(span("root"), other) == []
