"""Calls one model once: streams its reply, applies its time limits, records a span."""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from opentelemetry.trace import SpanKind

from trunkline.agents.reasoning.models.model_errors import ModelCallError, classify_error
from trunkline.agents.reasoning.models.model_spans import (
    describe_reply,
    describe_request,
    is_measured,
    measure_usage,
    record_messages,
)
from trunkline.agents.reasoning.models.providers import Provider
from trunkline.agents.reasoning.models.replies import check_reply, join_chunks, measure_tokens
from trunkline.agents.reasoning.turn_result import STATUS_KEY, ResultStatus
from trunkline.core import runtime
from trunkline.core.settings import ModelSettings
from trunkline.observe import telemetry
from trunkline.observe.metrics import instruments

if TYPE_CHECKING:
    from langchain_core.language_models.base import LanguageModelInput
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
    from langchain_core.runnables import Runnable

    from trunkline.tasks.usage_meter import UsageMeter

OnText = Callable[[str], Awaitable[None]]
"""Called with each piece of an answer."""
OnChunk: TypeAlias = Callable[["AIMessageChunk"], Awaitable[None]]
"""Called with each piece of a reply, including partial tool calls."""


class ModelClient:
    """The client of one model, without fallbacks."""

    def __init__(
        self,
        name: str,
        options: ModelSettings,
        make: "Callable[[], BaseChatModel]",
        provider: Provider | None = None,
    ) -> None:
        """`make` creates the chat model, in a thread. `provider` is None for built-in models."""
        self.name = name
        self.options = options
        self._make = make
        self._provider = provider
        self._chat: BaseChatModel | None = None
        self._sends_traceparent = options.traceparent is not False

    async def load(self) -> "BaseChatModel":
        """Return the chat model, created at the first call.

        Raises:
            ModelCallError: it can't be created.
        """
        if self._chat is None:
            self._chat = await runtime.load_in_thread(self._make)
        return self._chat

    async def ask(  # noqa: PLR0913  independent options
        self,
        messages: "Sequence[BaseMessage]",
        *,
        tools: Sequence[dict[str, Any]],
        tool_choice: str | None,
        on_text: OnText | None,
        on_chunk: "OnChunk | None" = None,
        meter: "UsageMeter | None" = None,
        purpose: str = "answer",
    ) -> "AIMessage":
        """Return the model's reply. `on_text` gets each piece of an answer, `on_chunk` every piece.

        `meter` counts the tokens of the reply, even if only a part of it arrives. The span names
        the `purpose`.

        Raises:
            ModelCallError: there is no reply, or only a part of one.
        """
        provider = self._provider
        model = self.name.partition(":")[2] or self.name
        labels = (telemetry.CHAT, provider.trace_name if provider else self.name, model)
        attributes = describe_request(
            labels,
            purpose,
            max_tokens=self.options.max_tokens,
            temperature=self.options.temperature,
        )
        attributes[telemetry.GEN_AI_REQUEST_STREAM] = True
        name = f"{telemetry.CHAT} {model}"
        failure: ModelCallError | None = None
        error_type = telemetry.CANCELLED
        started_s = time.perf_counter()
        chunks: list[AIMessageChunk] = []
        measured = is_measured.set(True)
        with telemetry.span(name, kind=SpanKind.CLIENT, attributes=attributes) as span:
            try:
                chat = await self.load()
                bound = chat.bind_tools(tools, tool_choice=tool_choice) if tools else chat
                if provider is not None and provider.takes_headers and self._sends_traceparent:
                    bound = bound.bind(extra_headers=telemetry.inject_span(span))
                await self._stream(bound, messages, chunks, on_text, on_chunk, labels)
                reply = join_chunks(chunks)
                describe_reply(span, reply)
                record_messages(span, messages, reply)
                if provider is not None:
                    check_reply(reply, max_tokens=self.options.max_tokens)
                error_type = ""
            except ModelCallError as error:
                # Raised after the span, which would record the exception's class instead of its
                # kind.
                telemetry.mark_error(span, error.kind)
                failure, error_type = error, error.kind
            finally:
                is_measured.reset(measured)
                duration_s = time.perf_counter() - started_s
                instruments.MODEL_DURATION.record(duration_s, *labels, error_type)
                read, written = measure_tokens(messages, chunks) if chunks else (0, 0)
                measure_usage(labels, read, written)
                if chunks and meter is not None:
                    price = meter.record(self.name, input_tokens=read, output_tokens=written)
                    if price:
                        span.set_attribute(telemetry.MODEL_COST_MICROS, price)
        if failure is not None:
            raise failure
        return reply

    async def _stream(
        self,
        model: "Runnable[LanguageModelInput, AIMessage]",
        messages: "Sequence[BaseMessage]",
        chunks: "list[AIMessageChunk]",
        on_text: OnText | None,
        on_chunk: "OnChunk | None",
        labels: tuple[str, str, str],
    ) -> None:
        """Append the pieces of the reply to `chunks`, and measure the first one's time."""
        from langchain_core.messages import AIMessageChunk

        loop = asyncio.get_running_loop()
        end = loop.time() + (self.options.timeout_s or math.inf)
        is_answer = True
        started_s = time.perf_counter()
        # astream() returns a generator. Closing it closes the connection.
        stream = cast("AsyncGenerator[BaseMessage]", model.astream(list(messages)))
        async with aclosing(stream):
            while (chunk := await self._next(stream, end)) is not None:
                if not isinstance(chunk, AIMessageChunk):
                    continue
                if not chunks:
                    waited_s = time.perf_counter() - started_s
                    instruments.MODEL_FIRST_CHUNK.record(waited_s, *labels)
                    telemetry.set_attributes(
                        {telemetry.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK: waited_s}
                    )
                chunks.append(chunk)
                if on_chunk is not None:
                    await on_chunk(chunk)
                is_answer = is_answer and _is_answer(chunk)
                if chunk.text and is_answer and on_text is not None:
                    await on_text(chunk.text)

    async def _next(
        self, stream: "AsyncGenerator[BaseMessage]", end: float
    ) -> "BaseMessage | None":
        """Return the next piece, or None after the last one."""
        first_token_s = self.options.first_token_s or math.inf
        first_token_end = asyncio.get_running_loop().time() + first_token_s
        soonest = min(end, first_token_end)
        limit = asyncio.timeout_at(None if math.isinf(soonest) else soonest)
        try:
            async with limit:
                return await anext(stream, None)
        except Exception as error:
            # Each provider's client raises its own exceptions.
            if limit.expired():
                problem = (
                    f"it sent no token within {first_token_s:g} s; raise first_token_s"
                    if first_token_end < end
                    else f"its reply takes over {self.options.timeout_s:g} s; raise timeout_s"
                )
                raise ModelCallError("timeout", problem) from error
            key = self._provider.key_variable(self.options) if self._provider else ""
            provider = self._provider.name if self._provider else self.name
            raise classify_error(error, provider=provider, key=key) from error


def _is_answer(chunk: "AIMessageChunk") -> bool:
    """Return whether the text is an answer. Providers send no status, so theirs always is."""
    return bool(
        chunk.response_metadata.get(STATUS_KEY, ResultStatus.COMPLETED) == ResultStatus.COMPLETED
    )
