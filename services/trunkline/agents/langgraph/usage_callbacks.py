"""Callbacks that check and count the models which the nodes of a graph call."""

from collections.abc import Mapping, Sequence
from typing import Any, Final
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langchain_core.outputs import ChatGeneration, LLMResult

from trunkline.reasoning.models import measure_tokens
from trunkline.tasks.usage_meter import UsageMeter

# Names of LangChain for providers that have another name in our settings.
_PROVIDERS: Final = {"google_genai": "google"}
_UNKNOWN: Final = "unknown"


def build_usage_callbacks(meter: UsageMeter) -> list[BaseCallbackHandler]:
    """Return the callbacks of one turn.

    They are two, because a check may read a file and so must not be inline, and LangChain starts an
    asyncio task for each token of a handler that is not (13 µs). Without limits there is no check.
    """
    counter = _UsageCounter(meter)
    return [counter, _LimitCheck(meter)] if meter.is_limited else [counter]


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
        self._meter.check_blocking(_read_name(options))


class _UsageCounter(BaseCallbackHandler):
    """Counts the tokens of each reply, also of one that breaks off."""

    run_inline = True
    ignore_chain = True
    ignore_agent = True
    ignore_retriever = True
    ignore_retry = True
    ignore_custom_event = True

    def __init__(self, meter: UsageMeter) -> None:
        self._meter = meter
        self._calls: dict[UUID, tuple[str, Sequence[BaseMessage]]] = {}

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        **options: object,
    ) -> None:
        self._calls[run_id] = (_read_name(options), [item for batch in messages for item in batch])

    def on_llm_start(
        self, serialized: dict[str, Any], prompts: list[str], *, run_id: UUID, **options: object
    ) -> None:
        self._calls[run_id] = (_read_name(options), [HumanMessage(text) for text in prompts])

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **_options: object) -> None:
        self._count(run_id, response)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **options: object) -> None:
        # Of a stream that broke off, LangChain passes the beginning.
        response = options.get("response")
        self._count(run_id, response if isinstance(response, LLMResult) else None)

    def _count(self, run_id: UUID, response: LLMResult | None) -> None:
        call = self._calls.pop(run_id, None)
        replies = _list_replies(response)
        if call is None or not replies:
            return
        model, messages = call
        read, written = measure_tokens(messages, replies)
        self._meter.record(model, input_tokens=read, output_tokens=written)


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


def _read_name(options: Mapping[str, object]) -> str:
    """Return the name of a model as in our settings, `provider:name`."""
    metadata = options.get("metadata")
    if not isinstance(metadata, Mapping):
        return _UNKNOWN
    provider = str(metadata.get("ls_provider") or "")
    name = str(metadata.get("ls_model_name") or "")
    return ":".join(filter(None, (_PROVIDERS.get(provider, provider), name))) or _UNKNOWN
