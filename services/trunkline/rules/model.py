"""The built-in chat model `rules`: deterministic, offline, driven by the tools' declarations.

It has no knowledge of tools or agents, and reads no prose. A question that a tool's
`trunkline/match` matches becomes a call of that tool. So does a question that names a tool and its
arguments by name. The tools' text is the answer. It answers any other question with its name, the
questions that it takes, and the setting for a model.
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

from trunkline.calls.schema_arguments import split_name, take_arguments, take_one
from trunkline.reasoning.tool_results import plain_result_text
from trunkline.reasoning.toolbox import ToolSpec
from trunkline.reasoning.turn_result import STATUS_KEY, ResultStatus
from trunkline.rules.planner import ADVICE
from trunkline.rules.tool_patterns import (
    QUESTION_LIMIT_CHARS,
    ToolMatch,
    fill_answer,
    match_tools,
)

MATCH_KEY: Final = "trunkline/match"
_DECLARED: Final = {MATCH_KEY: ()}
_MOST_EXAMPLES: Final = 5
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
        question, results = _read_question(messages)
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
        matches = match_tools(question, declarations)
        if results:
            return _build_answer(results, matches)
        if not matches:
            named = _match_name(question, [tool for tool in tools if _can_be_named(tool)])
            if named is None:
                return _build_message(self._explain(tools), ResultStatus.INPUT_REQUIRED)
            if isinstance(named, str):
                return _build_message(named, ResultStatus.INPUT_REQUIRED)
            matches = [named]
        # Ids are deterministic: the same turn gives the same ids.
        calls = [
            tool_call(name=match.tool, args=match.arguments, id=f"rules-{len(messages)}.{number}")
            for number, match in enumerate(matches)
        ]
        return AIMessage(content="", tool_calls=calls)

    def _explain(self, tools: Sequence[ToolSpec]) -> str:
        known = [f'"{example}"' for example in self.examples[:_MOST_EXAMPLES]]
        known += [_outline(tool) for tool in tools if _can_be_named(tool)][:_MOST_EXAMPLES]
        shown = "; ".join(known) or "nothing, since I have no tools"
        return f"I am the built-in rules model, and can't read this. I take: {shown}. Or, {ADVICE}."


def _get_bound_tools(arguments: Mapping[str, object]) -> list[ToolSpec]:
    """Return the tools that bind_tools() put among the call's arguments."""
    tools = arguments.get("tools")
    return tools if isinstance(tools, list) else []


def _read_question(messages: Sequence[BaseMessage]) -> tuple[str, list[ToolMessage]]:
    """Return the latest question, and the tool results for it."""
    positions = [n for n, message in enumerate(messages) if isinstance(message, HumanMessage)]
    latest = positions[-1] if positions else 0
    results = [message for message in messages[latest:] if isinstance(message, ToolMessage)]
    return str(messages[latest].text) if positions else "", results


def _can_be_named(tool: ToolSpec) -> bool:
    # The result tools of the loop have no metadata, and a tool may opt out by `[]`.
    return tool.get("metadata", _DECLARED).get(MATCH_KEY) != [] and "metadata" in tool


def _match_name(question: str, tools: Sequence[ToolSpec]) -> ToolMatch | str | None:
    """Return the call of the tool that a question begins with, or the missing arguments.

    `TOOL name: value, name: value`; a tool with one open argument takes the rest as its value.
    """
    for tool in tools:
        match = _compile_names(tool).match(question)
        if match is None:
            continue
        said, schema = question[match.end() :].strip(), tool["function"].get("parameters") or {}
        taken = take_arguments(said, schema)
        names = [name for name in schema.get("required", ()) if name not in taken.arguments]
        if said and not taken.arguments and not taken.rejected:
            open_names = names or list(schema.get("properties") or {})
            value = take_one(said, open_names[0], schema) if len(open_names) == 1 else None
            if value is None:
                return f"{_find_title(tool)} takes its arguments by name: {_outline(tool)}."
            return ToolMatch(tool["function"]["name"], {open_names[0]: value})
        if taken.missing:
            return f"{_find_title(tool)} needs {', '.join(taken.missing)}: write {_outline(tool)}."
        return ToolMatch(tool["function"]["name"], taken.arguments)
    return None


def _compile_names(tool: ToolSpec) -> re.Pattern[str]:
    full_name = str(tool["function"]["name"])
    names = (full_name, full_name.partition("__")[2], _find_title(tool))
    spelled = (r"[\s_/-]*".join(map(re.escape, split_name(name))) for name in names if name)
    return re.compile(rf"\s*(?:{'|'.join(spelled)})(?:\s*:|(?=\s|$))", re.IGNORECASE)


def _outline(tool: ToolSpec) -> str:
    names = (tool["function"].get("parameters") or {}).get("properties") or {}
    arguments = ", ".join(f"{name}: …" for name in names)
    return f'"{_find_title(tool)} {arguments}"' if arguments else f'"{_find_title(tool)}"'


def _find_title(tool: ToolSpec) -> str:
    return str(tool.get("metadata", {}).get("title") or tool["function"]["name"])


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
