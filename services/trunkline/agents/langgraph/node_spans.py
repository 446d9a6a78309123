"""Spans of the nodes of a graph. What a node starts itself is below its span."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langgraph.errors import GraphBubbleUp
from opentelemetry import context as otel_context

from trunkline.observe import telemetry

if TYPE_CHECKING:
    from opentelemetry.trace import Span

# LangGraph's tag of the run of a node, as opposed to the runs within it.
_NODE_TAG: Final = "graph:step:"


class NodeSpans(BaseCallbackHandler):
    """Makes a span of each run of a node.

    LangGraph runs each node in an asyncio task with a copy of the context in which this handler was
    called. So the span is current in the node, also in the threads of nodes that are not `async`.
    """

    run_inline = True
    ignore_llm = True
    ignore_chat_model = True
    ignore_agent = True
    ignore_retriever = True
    ignore_retry = True
    ignore_custom_event = True

    def __init__(self) -> None:
        self._spans: dict[UUID, Span] = {}

    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: dict[str, Any],
        *,
        run_id: UUID,
        tags: Sequence[str] | None = None,
        metadata: Mapping[str, Any] | None = None,
        **_options: object,
    ) -> None:
        """Start the span of a node's run, and make it current."""
        if not any(tag.startswith(_NODE_TAG) for tag in tags or ()):
            return
        node = str((metadata or {}).get("langgraph_node", ""))
        span, context = telemetry.start_span(
            f"{telemetry.RUN_NODE} {node}",
            attributes={
                telemetry.NODE: node,
                telemetry.STEP: int((metadata or {}).get("langgraph_step", 0)),
            },
        )
        self._spans[run_id] = span
        # The asyncio task, and so this context, ends with the node.
        otel_context.attach(context)

    def on_chain_end(self, outputs: dict[str, Any], *, run_id: UUID, **_options: object) -> None:
        """End the span of a node's run."""
        if (span := self._spans.pop(run_id, None)) is not None:
            span.end()

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **_options: object) -> None:
        """End the span of a node's run that failed, was interrupted or was canceled."""
        span = self._spans.pop(run_id, None)
        if span is None:
            return
        # An interrupt or a command for the graph above is no error.
        if not isinstance(error, GraphBubbleUp):
            telemetry.mark_error(span, error)
        span.end()
