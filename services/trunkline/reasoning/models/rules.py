"""The built-in chat model `rules`: deterministic, offline, driven by the tools' declarations.

It has no knowledge of tools or agents. A question that matches some tool's `trunkline/match`
becomes a call of that tool. Questions joined by "and" become one call each. A question without a
match may fit a tool that declares no patterns, by its description. The tools' text is the answer.
For any other question, and if it is greeted, it lists examples that work.
"""

import asyncio
import json
import math
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Final

from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
from langchain_core.language_models.base import LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    ToolMessage,
)
from langchain_core.messages.tool import tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable

from trunkline.phrasing import asks_for_introduction
from trunkline.reasoning.models.description_matching import (
    DescribedMatch,
    match_descriptions,
)
from trunkline.reasoning.models.tool_matching import (
    QUESTION_LIMIT_CHARS,
    ToolMatch,
    fill_answer,
    match_tools,
)
from trunkline.reasoning.tool_results import plain_result_text
from trunkline.reasoning.toolbox import ToolSpec
from trunkline.reasoning.turn_result import STATUS_KEY, ResultStatus

MATCH_KEY = "trunkline/match"
_DECLARED: Final = {MATCH_KEY: ()}
_DECLARE: Final = (
    "Name one and what it needs. Who runs the mesh may also declare patterns for it, in the file "
    "of MCP servers."
)
# Values that are still missing are asked for so many times before the first request is forgotten.
_ROUNDS_LIMIT: Final = 4
# An answer of any length streams in at most this many pieces.
_PIECES = 500
# Not the default threads of the process: patterns of tools may be slow.
_THREADS: Final = ThreadPoolExecutor(4, thread_name_prefix="trunkline-rules")


class RulesModel(BaseChatModel):
    """Answers by the declarations of its bound tools."""

    examples: tuple[str, ...] = ()
    """Example questions, shown when a question does not match."""

    @property
    def _llm_type(self) -> str:
        return "rules"

    def bind_tools(
        self, tools: Sequence[Any], *, tool_choice: str | None = None, **kwargs: object
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return the model with these tools, given as a Toolbox's specs with metadata."""
        return self.bind(tools=list(tools), **kwargs)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> ChatResult:
        reply = self._build_reply(messages, _get_bound_tools(kwargs))
        return ChatResult(generations=[ChatGeneration(message=reply)])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> Iterator[ChatGenerationChunk]:
        for chunk in _split_reply(self._build_reply(messages, _get_bound_tools(kwargs))):
            yield ChatGenerationChunk(message=chunk)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> AsyncIterator[ChatGenerationChunk]:
        # In a thread: RE2 releases the interpreter lock while a slow pattern of a tool runs.
        loop, context, tools = asyncio.get_running_loop(), copy_context(), _get_bound_tools(kwargs)
        reply = await loop.run_in_executor(
            _THREADS, lambda: context.run(self._build_reply, messages, tools)
        )
        for chunk in _split_reply(reply):
            yield ChatGenerationChunk(message=chunk)

    def _build_reply(self, messages: Sequence[BaseMessage], tools: Sequence[ToolSpec]) -> AIMessage:
        question, results, answers = _read_question(messages)
        if len(question.strip()) > QUESTION_LIMIT_CHARS:
            text = (
                f"The question has {len(question)} characters, and at most "
                f"{QUESTION_LIMIT_CHARS} are read. Ask it more briefly."
            )
            return _build_message(text, ResultStatus.INPUT_REQUIRED)
        declarations = {
            tool["function"]["name"]: rules
            for tool in tools
            if isinstance(rules := tool.get("metadata", {}).get(MATCH_KEY), list)
        }
        matches = match_tools(question, declarations, answers)
        if results:
            return _build_answer(results, matches)
        if asks_for_introduction(question) and all(match.is_fallback for match in matches):
            return _build_message(self._describe_abilities(tools), ResultStatus.COMPLETED)
        if not matches:
            # The result tools of the loop have no metadata, and a tool may opt out by `[]`.
            undeclared = [
                tool for tool in tools if MATCH_KEY not in tool.get("metadata", _DECLARED)
            ]
            described = _match_descriptions(messages, question, undeclared)
            if described is None or described.problem:
                text = described.problem if described else self._build_suggestion(tools)
                if described is None and undeclared and not self.examples:
                    text = f"{text} {_DECLARE}"
                return _build_message(text, ResultStatus.INPUT_REQUIRED)
            matches = [ToolMatch(described.tool, described.arguments, "")]
        # Ids are deterministic: the same turn gives the same ids.
        calls = [
            tool_call(name=match.tool, args=match.arguments, id=f"rules-{len(messages)}.{number}")
            for number, match in enumerate(matches)
        ]
        return AIMessage(content="", tool_calls=calls)

    def _build_suggestion(self, tools: Sequence[ToolSpec]) -> str:
        return f"I can't answer that. {self._describe_abilities(tools)}"

    def _describe_abilities(self, tools: Sequence[ToolSpec]) -> str:
        if self.examples:
            examples = ", ".join(f'"{example}"' for example in self.examples[:5])
            return f"Questions I can answer: {examples}."
        titles = [tool.get("metadata", {}).get("title") for tool in tools]
        names = ", ".join(title for title in titles if title)
        return f"My tools are: {names}." if names else "I have no tools."


def _get_bound_tools(arguments: Mapping[str, object]) -> list[ToolSpec]:
    """Return the tools that bind_tools() put among the call's arguments."""
    tools = arguments.get("tools")
    return tools if isinstance(tools, list) else []


def _read_question(messages: Sequence[BaseMessage]) -> tuple[str, list[ToolMessage], list[str]]:
    """Return the latest question, the tool results for it, and the earlier answers."""
    positions = [n for n, message in enumerate(messages) if isinstance(message, HumanMessage)]
    if not positions:
        return "", [message for message in messages if isinstance(message, ToolMessage)], []
    latest = positions[-1]
    results = [message for message in messages[latest:] if isinstance(message, ToolMessage)]
    answers = [
        str(message.text)
        for message in messages[:latest]
        if isinstance(message, AIMessage) and _is_answer(message)
    ]
    return str(messages[latest].text), results, answers


def _match_descriptions(
    messages: Sequence[BaseMessage], question: str, tools: Sequence[ToolSpec]
) -> DescribedMatch | None:
    """Return the first match that can be called, else the first one.

    The question is read alone, and behind those before it that were answered by a question, back
    to the one that names a tool.
    """
    said = [message for message in messages if isinstance(message, HumanMessage | AIMessage)]
    match = first_match = match_descriptions(question, tools)
    rounds = list(zip(said[-3::-2], said[-2::-2], strict=False))[:_ROUNDS_LIMIT]
    for earlier, reply in rounds:
        if match is not None and not match.problem:
            return match
        if not (isinstance(earlier, HumanMessage) and _is_question(reply)):
            break
        question = f"{earlier.text}\n{question}"
        match = match_descriptions(question, tools)
        first_match = first_match or match
        if match_descriptions(str(earlier.text), tools):
            break
    return match if match is not None and not match.problem else first_match


def _is_question(reply: BaseMessage) -> bool:
    is_reply = isinstance(reply, AIMessage) and not reply.tool_calls
    return is_reply and reply.response_metadata.get(STATUS_KEY) == ResultStatus.INPUT_REQUIRED


def _is_answer(reply: AIMessage) -> bool:
    """Return whether a reply answers a question. Questions, failures and tool calls do not."""
    status = reply.response_metadata.get(STATUS_KEY, ResultStatus.COMPLETED)
    return status == ResultStatus.COMPLETED and not reply.tool_calls and bool(reply.text)


def _build_answer(results: Sequence[ToolMessage], matches: Sequence[ToolMatch]) -> AIMessage:
    failures = [result for result in results if result.status == "error"]
    if failures:
        is_mendable = all((result.artifact or {}).get("is_mendable") for result in failures)
        status = ResultStatus.INPUT_REQUIRED if is_mendable else ResultStatus.ERROR
        return _build_message("\n".join(result.text for result in failures), status)
    sources: Sequence[ToolMatch | None] = (
        matches if len(matches) == len(results) else [None] * len(results)
    )
    texts = [_render_result(result, match) for result, match in zip(results, sources, strict=True)]
    return _build_message("\n".join(texts), ResultStatus.COMPLETED)


def _render_result(result: ToolMessage, match: ToolMatch | None) -> str:
    result_data = (result.artifact or {}).get("structured") or {}
    answer = fill_answer(match.answer, result_data) if match and match.answer else None
    return answer or plain_result_text(result)


def _build_message(text: str, status: ResultStatus) -> AIMessage:
    return AIMessage(content=text, response_metadata={STATUS_KEY: status.value})


def _split_reply(reply: AIMessage) -> Iterator[AIMessageChunk]:
    """Yield a reply as a provider would stream it: calls and status first, then the words."""
    calls = [
        tool_call_chunk(
            name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=index
        )
        for index, call in enumerate(reply.tool_calls)
    ]
    yield AIMessageChunk(
        content="", tool_call_chunks=calls, response_metadata=dict(reply.response_metadata)
    )
    least = max(1, math.ceil(len(reply.text) / _PIECES))
    for piece in re.findall(rf"(?s).{{1,{least}}}\S{{0,99}}\s{{0,99}}", reply.text):
        yield AIMessageChunk(content=piece)
