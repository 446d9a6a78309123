"""Spans and measurements of the calls of models, also of models that a graph calls itself."""

import json
from contextvars import ContextVar
from typing import TYPE_CHECKING, Final, TypeAlias

from opentelemetry.trace import Span

from trunkline.agents.reasoning.models.replies import finish_reason
from trunkline.observe import telemetry
from trunkline.observe.metrics import instruments
from trunkline.observe.span_content import SpokenText, current_capture, record_chat

if TYPE_CHECKING:
    from collections.abc import Sequence

    from langchain_core.messages import AIMessage, BaseMessage
    from opentelemetry.util.types import AttributeValue

Labels: TypeAlias = tuple[str, str, str]
"""The operation, the provider and the model of a call, as the GenAI conventions have them."""

is_measured: Final[ContextVar[bool]] = ContextVar("is_measured", default=False)
"""True in a call that makes its span and counts its tokens itself, also in the node of a graph."""

# The mesh sends and takes texts only.
_MODALITY: Final = "text"
# LangChain gives ids to replies, as providers do.
_OWN_IDS: Final = ("run-", "lc_")
_ROLES: Final = {"human": "user", "ai": "assistant"}


def describe_request(
    labels: Labels,
    purpose: str,
    *,
    max_tokens: int | None = None,
    temperature: float | None = None,
) -> "dict[str, AttributeValue]":
    """Return the attributes of a call, and count it for the span of the turn."""
    operation, provider, model = labels
    attributes: dict[str, AttributeValue] = {
        telemetry.GEN_AI_OPERATION_NAME: operation,
        telemetry.GEN_AI_PROVIDER_NAME: provider,
        telemetry.GEN_AI_REQUEST_MODEL: model,
        telemetry.MODEL_PURPOSE: purpose,
    }
    turn = telemetry.current_turn.get()
    if turn is not None:
        turn.model_calls += 1
    options = {
        telemetry.GEN_AI_CONVERSATION_ID: turn.conversation_id if turn else None,
        telemetry.GEN_AI_REQUEST_MAX_TOKENS: max_tokens,
        telemetry.GEN_AI_REQUEST_TEMPERATURE: temperature,
    }
    attributes.update({key: value for key, value in options.items() if value is not None})
    return attributes


def measure_usage(labels: Labels, read: int, written: int) -> None:
    """Count the tokens of a call; 0 of one without a reply, so that all calls are counted."""
    instruments.INPUT_TOKENS.add(read, *labels, _MODALITY)
    instruments.OUTPUT_TOKENS.add(written, *labels, _MODALITY)
    if read or written:
        instruments.INPUT_TOKENS_OF_CALLS.record(read, *labels)
        instruments.OUTPUT_TOKENS_OF_CALLS.record(written, *labels)


def describe_reply(span: Span, reply: "AIMessage") -> None:
    """Set the attributes of a reply: its id, model, tokens, and the reason of its end."""
    if reply.id and not reply.id.startswith(_OWN_IDS):
        span.set_attribute(telemetry.GEN_AI_RESPONSE_ID, reply.id)
    if reason := finish_reason(reply):
        span.set_attribute(telemetry.GEN_AI_RESPONSE_FINISH_REASONS, [reason])
    if model := reply.response_metadata.get("model_name"):
        span.set_attribute(telemetry.GEN_AI_RESPONSE_MODEL, str(model))
    if usage := reply.usage_metadata:
        span.set_attribute(telemetry.GEN_AI_USAGE_INPUT_TOKENS, usage["input_tokens"])
        span.set_attribute(telemetry.GEN_AI_USAGE_OUTPUT_TOKENS, usage["output_tokens"])
        read, written = usage.get("input_token_details"), usage.get("output_token_details")
        details = {
            telemetry.GEN_AI_USAGE_CACHE_READ_TOKENS: read.get("cache_read") if read else None,
            telemetry.GEN_AI_USAGE_CACHE_WRITE_TOKENS: read.get("cache_creation") if read else None,
            telemetry.GEN_AI_USAGE_REASONING_TOKENS: written.get("reasoning") if written else None,
        }
        span.set_attributes({key: tokens for key, tokens in details.items() if tokens})


def record_messages(span: Span, messages: "Sequence[BaseMessage]", reply: "AIMessage") -> None:
    """Record the messages and the reply, if content is captured."""
    if current_capture() is not None:
        record_chat(span, [_spoken(message) for message in messages], _shown(reply))


def _spoken(message: "BaseMessage") -> SpokenText:
    return SpokenText(_ROLES.get(message.type, message.type), _shown(message))


def _shown(message: "BaseMessage") -> str:
    """Return the text of a message, and the tools that it calls."""
    calls = getattr(message, "tool_calls", ())
    lines = [str(message.text), *(f"{call['name']}({json.dumps(call['args'])})" for call in calls)]
    return "\n".join(filter(None, lines))
