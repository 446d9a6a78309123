"""Builds the tree of a trace from its spans."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from trunkline.v1 import trace_service_pb2


@dataclass(frozen=True, slots=True)
class SpanNode:
    """A span and what hangs below it, by start time."""

    span: trace_service_pb2.Span
    children: "tuple[SpanNode, ...]"
    is_orphan: bool = False
    """Its parent isn't in the trace although the trace has a root."""

    def walk(self, depth: int = 0) -> "Iterator[tuple[int, SpanNode]]":
        """Yield this node and all below it with their depths, parents first."""
        # By hand: a trace may be deeper than Python's stack.
        pending = [(depth, self)]
        while pending:
            level, node = pending.pop()
            yield level, node
            pending += [(level + 1, child) for child in reversed(node.children)]


@dataclass(frozen=True, slots=True)
class TraceTree:
    """A trace as a tree: its root first, then orphans, if any, with what hangs below them."""

    top_nodes: tuple[SpanNode, ...]

    @classmethod
    def build(cls, spans: Iterable[trace_service_pb2.Span]) -> "TraceTree":
        """Build the tree.

        The root is a span without a parent, or else the first whose parent isn't there: it may be
        a caller's who keeps traces elsewhere. Every other span without its parent is an orphan.
        """
        known = {span.span_id: span for span in sorted(spans, key=_order)}
        below: dict[str, list[trace_service_pb2.Span]] = defaultdict(list)
        tops: list[trace_service_pb2.Span] = []
        for span in known.values():
            if span.parent_span_id in known and not _is_in_circle(span, known):
                below[span.parent_span_id].append(span)
            else:
                tops.append(span)
        tops.sort(key=lambda span: (bool(span.parent_span_id), *_order(span)))
        roots = [span for span in tops if not span.parent_span_id] or tops[:1]
        nodes = _nodes(tops, below)
        root_ids = {span.span_id for span in roots}
        return cls(
            tuple(
                SpanNode(node.span, node.children, is_orphan=node.span.span_id not in root_ids)
                for node in nodes
            )
        )

    @property
    def orphans(self) -> tuple[SpanNode, ...]:
        """Spans whose parents haven't come, or never will."""
        return tuple(node for node in self.top_nodes if node.is_orphan)

    @property
    def is_complete(self) -> bool:
        """Whether there is exactly one root, and no orphan."""
        return len(self.top_nodes) == 1 and not self.top_nodes[0].is_orphan

    def walk(self) -> Iterator[tuple[int, SpanNode]]:
        """Yield every node with its depth, parents first."""
        for node in self.top_nodes:
            yield from node.walk()


def _nodes(
    tops: Sequence[trace_service_pb2.Span], below: dict[str, list[trace_service_pb2.Span]]
) -> list[SpanNode]:
    """Make nodes from the leaves up."""
    order = list(tops)
    for span in order:
        order += below[span.span_id]
    made: dict[str, SpanNode] = {}
    for span in reversed(order):
        children = tuple(made[child.span_id] for child in below[span.span_id])
        made[span.span_id] = SpanNode(span, children)
    return [made[span.span_id] for span in tops]


def _is_in_circle(span: trace_service_pb2.Span, known: dict[str, trace_service_pb2.Span]) -> bool:
    """Whether following the parents leads back to the span: only nonsense does."""
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
