"""A trace tree puts each span below its parent, and marks orphans."""

from trunkline.mesh.client.trace_tree import TraceTree, measure
from trunkline.v1 import trace_service_pb2


def span(
    name: str, parent: str = "", *, at: int = 0, until: int | None = 100
) -> trace_service_pb2.Span:
    new_span = trace_service_pb2.Span(span_id=name, parent_span_id=parent, name=name)
    new_span.start_time.FromMilliseconds(at)
    if until is not None:
        new_span.end_time.FromMilliseconds(until)
    return new_span


def outline(tree: TraceTree) -> list[str]:
    return ["  " * depth + node.span.name for depth, node in tree.walk()]


def test_children_follow_their_parent_by_start_time() -> None:
    spans = [span("c", "a", at=3), span("b", "a", at=2), span("a", at=1), span("d", "b", at=4)]
    tree = TraceTree.build(spans)
    assert outline(tree) == ["a", "  b", "    d", "  c"]
    assert tree.is_complete
    assert tree.orphans == ()


def test_the_root_may_have_a_parent_elsewhere() -> None:
    tree = TraceTree.build([span("a", "caller", at=1), span("b", "a", at=2)])
    assert outline(tree) == ["a", "  b"]
    assert tree.is_complete


def test_a_span_whose_parent_is_missing_is_an_orphan_with_all_below_it() -> None:
    spans = [span("lost", "gone", at=0), span("a", at=1), span("b", "lost", at=2)]
    tree = TraceTree.build(spans)
    assert outline(tree) == ["a", "lost", "  b"]
    assert [node.span.name for node in tree.orphans] == ["lost"]
    assert not tree.is_complete


def test_a_trace_with_an_open_span_is_not_complete_and_has_no_orphan() -> None:
    tree = TraceTree.build([span("a", until=None), span("b", "a", at=1)])
    assert outline(tree) == ["a", "  b"]
    assert not tree.is_complete
    assert tree.orphans == ()


def test_only_the_first_of_several_orphans_is_taken_as_the_root() -> None:
    tree = TraceTree.build([span("late", "y", at=2), span("early", "x", at=1)])
    assert outline(tree) == ["early", "late"]
    assert [node.span.name for node in tree.orphans] == ["late"]


def test_a_cycle_of_parents_loses_no_span() -> None:
    tree = TraceTree.build([span("a"), span("x", "y"), span("y", "x"), span("z", "x")])
    assert sorted(name.strip() for name in outline(tree)) == ["a", "x", "y", "z"]
    assert not tree.is_complete


def test_a_span_that_is_its_own_parent_loses_nothing() -> None:
    assert outline(TraceTree.build([span("a", "a")])) == ["a"]


def test_a_very_deep_trace_is_walked_without_recursion_limit() -> None:
    spans = [span(str(n), str(n - 1) if n else "", at=n) for n in range(1200)]
    tree = TraceTree.build(spans)
    assert [depth for depth, _ in tree.walk()] == list(range(1200))


def test_without_spans_there_is_no_tree() -> None:
    tree = TraceTree.build([])
    assert tree.top_nodes == ()
    assert not tree.is_complete


def critical(*spans: trace_service_pb2.Span) -> set[str]:
    timings = measure(TraceTree.build(spans))
    return {name for name, timing in timings.items() if timing.is_critical}


def self_ms(*spans: trace_service_pb2.Span) -> dict[str, int]:
    timings = measure(TraceTree.build(spans))
    return {name: timing.self_ns // 10**6 for name, timing in timings.items()}


def test_the_critical_path_goes_through_the_child_that_ended_last() -> None:
    root, quick, slow = span("root"), span("q", "root", until=40), span("s", "root", until=90)
    assert critical(root, quick, slow) == {"root", "s"}


def test_children_one_after_the_other_are_all_critical_with_what_they_waited_for() -> None:
    spans = (
        span("root"),
        span("first", "root", at=5, until=30),
        span("beside", "root", at=10, until=60),
        span("last", "root", at=35, until=90),
        span("inner", "last", at=40, until=80),
    )
    assert critical(*spans) == {"root", "first", "last", "inner"}


def test_the_parts_of_the_critical_path_follow_each_other_from_its_end_to_its_start() -> None:
    spans = (
        span("root"),
        span("first", "root", at=5, until=30),
        span("last", "root", at=35, until=90),
        span("inner", "last", at=40, until=90),
    )
    timings = measure(TraceTree.build(spans))
    start = spans[0].start_time.ToNanoseconds()
    parts = {
        name: [((begin - start) // 10**6, (end - start) // 10**6) for begin, end in timing.critical]
        for name, timing in timings.items()
    }
    assert parts == {
        "root": [(90, 100), (30, 35), (0, 5)],
        "last": [(35, 40)],
        "inner": [(40, 90)],
        "first": [(5, 30)],
    }


def test_what_ends_after_its_parent_is_critical_only_if_it_began_before() -> None:
    root = span("root", until=50)
    assert critical(root, span("clock", "root", at=10, until=51)) == {"root", "clock"}
    assert critical(root, span("webhook", "root", at=60, until=90)) == {"root"}


def test_self_time_is_what_no_child_covers() -> None:
    spans = (
        span("root"),
        span("a", "root", at=10, until=50),
        span("b", "root", at=30, until=60),
        span("c", "root", at=80, until=130),
    )
    assert self_ms(*spans) == {"root": 30, "a": 40, "b": 30, "c": 50}


def test_an_open_span_counts_up_to_the_latest_time_of_the_trace() -> None:
    spans = span("root", until=None), span("a", "root", at=20, until=70)
    assert self_ms(*spans) == {"root": 20, "a": 50}
    assert critical(*spans) == {"root", "a"}
