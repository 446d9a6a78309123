"""The callbacks of a graph: spans of its nodes, and checks and counts of the models they call."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult
from langgraph.errors import GraphBubbleUp
from opentelemetry import context as otel_context
from opentelemetry.trace import Span, SpanKind

from trunkline.agents.reasoning.models import measure_tokens
from trunkline.agents.reasoning.models.model_spans import (
    Labels,
    describe_reply,
    describe_request,
    is_measured,
    measure_usage,
    record_messages,
)
from trunkline.observe import telemetry
from trunkline.observe.metrics import instruments
from trunkline.tasks.usage_meter import UsageMeter

# Names of LangChain for providers that have another name in our settings.
_PROVIDERS: Final = {"google_genai": "google"}
_UNKNOWN: Final = "unknown"
_PURPOSE: Final = "graph"


def build_model_callbacks(meter: UsageMeter) -> list[BaseCallbackHandler]:
    """Return the callbacks of one turn.

    They are two, because a check may read a file and so must not be inline, and LangChain starts an
    asyncio task for each token of a handler that is not (13 µs). Without limits there is no check.
    """
    calls = _ModelCalls(meter)
    return [calls, _LimitCheck(meter)] if meter.is_limited else [calls]


class _LimitCheck(BaseCallbackHandler):
    """Refuses the call of a chat model if a limit or a budget is used up."""

    raise_error = True
    ignore_llm = True
    ignore_chain = True
    ignore_agent = True
    ignore_retriever = True
    ignore_retry = True
    ignore_custom_event = True

    def __init__(self, meter: UsageMeter) -> None:
        self._meter = meter

    def on_chat_model_start(
        self, serialized: dict[str, Any], messages: list[list[BaseMessage]], **options: object
    ) -> None:
        self._meter.check_blocking(_join_names(*_read_names(options)))


@dataclass(slots=True)
class _Call:
    """A call of a model that has not ended."""

    model: str
    """`provider:name`."""
    messages: Sequence[BaseMessage]
    labels: Labels
    span: Span
    started_s: float = field(default_factory=time.perf_counter)


class _ModelCalls(BaseCallbackHandler):
    """Makes a span of each call, and counts the tokens of its reply, also if that breaks off."""

    run_inline = True
    ignore_chain = True
    ignore_agent = True
    ignore_retriever = True
    ignore_retry = True
    ignore_custom_event = True

    def __init__(self, meter: UsageMeter) -> None:
        self._meter = meter
        self._calls: dict[UUID, _Call] = {}

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        **options: object,
    ) -> None:
        self._start(run_id, [item for batch in messages for item in batch], options)

    def on_llm_start(
        self, serialized: dict[str, Any], prompts: list[str], *, run_id: UUID, **options: object
    ) -> None:
        self._start(run_id, [HumanMessage(text) for text in prompts], options)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_options: object) -> None:
        self._end(run_id, response, "")

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **options: object) -> None:
        # Of a stream that broke off, LangChain passes the beginning.
        response = options.get("response")
        partial = response if isinstance(response, LLMResult) else None
        self._end(run_id, partial, telemetry.error_type(error))

    def _start(
        self, run_id: UUID, messages: Sequence[BaseMessage], options: Mapping[str, object]
    ) -> None:
        if is_measured.get():
            return
        provider, name = _read_names(options)
        labels = (telemetry.CHAT, provider or _UNKNOWN, name or _UNKNOWN)
        span, _ = telemetry.start_span(
            f"{telemetry.CHAT} {name}".rstrip(),
            kind=SpanKind.CLIENT,
            attributes=describe_request(labels, _PURPOSE),
        )
        model = _join_names(provider, name)
        self._calls[run_id] = _Call(model, messages, labels, span)

    def _end(self, run_id: UUID, response: LLMResult | None, error_type: str) -> None:
        call = self._calls.pop(run_id, None)
        if call is None:
            return
        replies = _list_replies(response)
        duration_s = time.perf_counter() - call.started_s
        instruments.MODEL_DURATION.record(duration_s, *call.labels, error_type)
        read, written = measure_tokens(call.messages, replies) if replies else (0, 0)
        measure_usage(call.labels, read, written)
        if replies:
            describe_reply(call.span, replies[0])
            record_messages(call.span, call.messages, replies[0])
            price = self._meter.record(call.model, input_tokens=read, output_tokens=written)
            if price:
                call.span.set_attribute(telemetry.MODEL_COST_MICROS, price)
        if error_type:
            telemetry.mark_error(call.span, error_type)
        call.span.end()


def _list_replies(response: LLMResult | None) -> list[AIMessage]:
    """Return the reply to each prompt. Alternatives to it repeat its usage."""
    if response is None:
        return []
    first = [generations[0] for generations in response.generations if generations]
    return [
        generation.message
        if isinstance(generation, ChatGeneration) and isinstance(generation.message, AIMessage)
        else AIMessage(generation.text)
        for generation in first
    ]


def _read_names(options: Mapping[str, object]) -> tuple[str, str]:
    """Return the provider and the name of a model as in our settings, or "" if unknown."""
    metadata = options.get("metadata")
    if not isinstance(metadata, Mapping):
        return "", ""
    provider = str(metadata.get("ls_provider") or "")
    return _PROVIDERS.get(provider, provider), str(metadata.get("ls_model_name") or "")


def _join_names(provider: str, name: str) -> str:
    return ":".join(filter(None, (provider, name))) or _UNKNOWN


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
