"""Builds the tree of a trace from its spans."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trunkline.v1 import trace_service_pb2


@dataclass(frozen=True, slots=True)
class SpanNode:
    """A span with its children in order of start time."""

    span: trace_service_pb2.Span
    children: "tuple[SpanNode, ...]"
    is_orphan: bool = False
    """Its parent is not in the trace, and the trace has another root."""

    def walk(self, depth: int = 0) -> "Iterator[tuple[int, SpanNode]]":
        """Yield this node and its descendants with their depths, parents first."""
        # Without recursion, since a trace may be deeper than Python's stack.
        pending = [(depth, self)]
        while pending:
            level, node = pending.pop()
            yield level, node
            pending += [(level + 1, child) for child in reversed(node.children)]


@dataclass(frozen=True, slots=True)
class TraceTree:
    """A trace as a tree: the root first, then any orphans, each with its descendants."""

    top_nodes: tuple[SpanNode, ...]

    @classmethod
    def build(cls, spans: Iterable[trace_service_pb2.Span]) -> "TraceTree":
        """Build the tree.

        The root is the span without a parent. If there is none, it is the first span whose parent
        is missing: the parent may belong to a caller with its own tracing backend. Every other span
        with a missing parent is an orphan.
        """
        known = {span.span_id: span for span in sorted(spans, key=_order)}
        children_by_id: dict[str, list[trace_service_pb2.Span]] = defaultdict(list)
        tops: list[trace_service_pb2.Span] = []
        for span in known.values():
            if span.parent_span_id in known and not _is_in_cycle(span, known):
                children_by_id[span.parent_span_id].append(span)
            else:
                tops.append(span)
        tops.sort(key=lambda span: (bool(span.parent_span_id), *_order(span)))
        roots = [span for span in tops if not span.parent_span_id] or tops[:1]
        nodes = _nodes(tops, children_by_id)
        root_ids = {span.span_id for span in roots}
        return cls(
            tuple(
                SpanNode(node.span, node.children, is_orphan=node.span.span_id not in root_ids)
                for node in nodes
            )
        )

    @property
    def orphans(self) -> tuple[SpanNode, ...]:
        """Spans whose parent was not received."""
        return tuple(node for node in self.top_nodes if node.is_orphan)

    @property
    def is_complete(self) -> bool:
        """True if the trace has exactly one root, no orphan, and no span that is open."""
        return (
            len(self.top_nodes) == 1
            and not self.top_nodes[0].is_orphan
            and all(node.span.HasField("end_time") for _, node in self.walk())
        )

    def walk(self) -> Iterator[tuple[int, SpanNode]]:
        """Yield every node with its depth, parents first."""
        for node in self.top_nodes:
            yield from node.walk()


@dataclass(frozen=True, slots=True)
class SpanTiming:
    """The time of a span without its children, and its part in the time of the trace."""

    self_ns: int
    """The time in which no child of the span ran, in nanoseconds."""
    critical: tuple[tuple[int, int], ...]
    """The parts of the critical path in this span, as Unix times in nanoseconds, the latest first.

    A span without parts is not on the path: the trace would take as long without the span.
    """

    @property
    def is_critical(self) -> bool:
        """True if it is on the critical path."""
        return bool(self.critical)


def measure(tree: TraceTree) -> dict[str, SpanTiming]:
    """Return the timing of each span, by span id.

    The critical path leads backwards from the end of the root. It goes through the child that ended
    last, then through the child that ended last before that child began, and so on. A child that
    its parent did not wait for is not on the path. An open span counts up to the latest time in the
    trace.
    """
    nodes = [node for _, node in tree.walk()]
    latest_ns = max((_interval(node.span, 0)[1] for node in nodes), default=0)
    roots = [node for node in tree.top_nodes if not node.is_orphan]
    critical = _find_critical(roots, latest_ns)
    return {
        node.span.span_id: SpanTiming(
            _self_ns(node, latest_ns), tuple(critical.get(node.span.span_id, ()))
        )
        for node in nodes
    }


def _find_critical(
    roots: Iterable[SpanNode], latest_ns: int
) -> dict[str, Sequence[tuple[int, int]]]:
    """Return the parts of the critical path of each span that is on it, by span id."""
    critical: dict[str, Sequence[tuple[int, int]]] = {}
    # Spans with the time at which something began to wait for them to end.
    pending = [(node, _interval(node.span, latest_ns)[1]) for node in roots]
    while pending:
        node, until_ns = pending.pop()
        parts: list[tuple[int, int]] = []
        critical[node.span.span_id] = parts
        start_ns = _interval(node.span, latest_ns)[0]
        intervals = [(child, *_interval(child.span, latest_ns)) for child in node.children]
        # A child may end a little after its parent, for example by the clocks of two machines.
        clipped = [(child, begin, min(end, until_ns)) for child, begin, end in intervals]
        for child, begin_ns, end_ns in sorted(clipped, key=lambda each: each[1:][::-1])[::-1]:
            if end_ns <= until_ns and begin_ns < until_ns and end_ns > start_ns:
                pending.append((child, end_ns))
                if end_ns < until_ns:
                    parts.append((end_ns, until_ns))
                until_ns = max(begin_ns, start_ns)
        parts.append((start_ns, until_ns))
    return critical


def _self_ns(node: SpanNode, latest_ns: int) -> int:
    """Return the time of a span that no child covers."""
    start_ns, end_ns = _interval(node.span, latest_ns)
    self_ns, covered_ns = 0, start_ns
    for child in node.children:
        begin, end = _interval(child.span, latest_ns)
        self_ns += max(0, min(begin, end_ns) - covered_ns)
        covered_ns = max(covered_ns, min(end, end_ns))
    return self_ns + max(0, end_ns - covered_ns)


def _interval(span: trace_service_pb2.Span, latest_ns: int) -> tuple[int, int]:
    """Return the start and end of a span, in nanoseconds. An open span ends at the latest time."""
    start_ns = span.start_time.ToNanoseconds()
    end_ns = span.end_time.ToNanoseconds() if span.HasField("end_time") else latest_ns
    return start_ns, max(start_ns, end_ns)


def _nodes(
    tops: Sequence[trace_service_pb2.Span], children_by_id: dict[str, list[trace_service_pb2.Span]]
) -> list[SpanNode]:
    """Build nodes from the leaves up, without recursion."""
    order = list(tops)
    for span in order:
        order += children_by_id[span.span_id]
    nodes: dict[str, SpanNode] = {}
    for span in reversed(order):
        children = tuple(nodes[child.span_id] for child in children_by_id[span.span_id])
        nodes[span.span_id] = SpanNode(span, children)
    return [nodes[span.span_id] for span in tops]


def _is_in_cycle(span: trace_service_pb2.Span, known: dict[str, trace_service_pb2.Span]) -> bool:
    """Return True if the span is its own ancestor, which malformed input can cause."""
    seen = {span.span_id}
    parent = known.get(span.parent_span_id)
    while parent is not None:
        if parent.span_id in seen:
            return parent.span_id == span.span_id
        seen.add(parent.span_id)
        parent = known.get(parent.parent_span_id)
    return False


def _order(span: trace_service_pb2.Span) -> tuple[int, str]:
    return span.start_time.ToNanoseconds(), span.span_id
