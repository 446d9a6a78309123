"""A chat model with scripted replies. Imports LangChain."""

import json
import re
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from langchain_core.callbacks import CallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.messages.tool import tool_call, tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from pydantic import BaseModel, PrivateAttr

from trunkline.agents.reasoning.model_results import GIVE_RESULT


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call that a scripted model asks for: `Call("add", {"a": 1, "b": 2})`."""

    tool: str
    arguments: dict[str, Any]


_Content: TypeAlias = "str | Call | Sequence[Call] | BaseModel | AIMessage"
ScriptedReply: TypeAlias = "_Content | BaseException | Callable[[Sequence[BaseMessage]], _Content]"


class ScriptedModel(BaseChatModel):
    """A chat model that returns its replies in order and streams texts word by word.

    A reply is a text, one or several tool calls, a pydantic object for `TaskContext.ask_model`, a
    message, an exception to raise, or a function from the request's messages to one of these. A
    request after the last reply raises AssertionError.
    """

    _replies: list[Any] = PrivateAttr(default_factory=list)
    _requests: list[list[BaseMessage]] = PrivateAttr(default_factory=list)
    _tools: list[str] = PrivateAttr(default_factory=list)

    def __init__(self, *replies: ScriptedReply) -> None:
        super().__init__()
        self._replies = list(replies)

    @property
    def requests(self) -> Sequence[Sequence[BaseMessage]]:
        """The messages of each request so far."""
        return self._requests

    @property
    def tools(self) -> Sequence[str]:
        """The names of the tools that were bound last."""
        return self._tools

    @property
    def is_exhausted(self) -> bool:
        """All replies have been used."""
        return len(self._requests) >= len(self._replies)

    def bind_tools(
        self,
        tools: Sequence[Any],
        *,
        tool_choice: str | None = None,
        **kwargs: object,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Record the tools for `tools`; the script alone decides which are called."""
        self._tools = [_get_tool_name(tool) for tool in tools]
        return self

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> ChatResult:
        return ChatResult(generations=[ChatGeneration(message=self._next(messages))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> Iterator[ChatGenerationChunk]:
        reply = self._next(messages)
        for chunk in _chunks(reply):
            generation = ChatGenerationChunk(message=chunk)
            if run_manager:
                run_manager.on_llm_new_token(chunk.text, chunk=generation)
            yield generation

    def _next(self, messages: list[BaseMessage]) -> AIMessage:
        index = len(self._requests)
        self._requests.append(list(messages))
        if index >= len(self._replies):
            problem = f"got request {index + 1}; add a reply to the script"
            raise AssertionError(f"the script has {len(self._replies)} replies but {problem}")
        reply = self._replies[index]
        if callable(reply):
            reply = reply(messages)
        if isinstance(reply, BaseException):
            raise reply
        return _message(reply)


def _message(reply: _Content) -> AIMessage:
    match reply:
        case AIMessage():
            return reply
        case str():
            return AIMessage(reply)
        case Call():
            return _message([reply])
        case BaseModel():
            return _message([Call(GIVE_RESULT, reply.model_dump(mode="json"))])
        case _:
            calls = [
                tool_call(name=call.tool, args=call.arguments, id=f"call-{uuid.uuid4().hex[:8]}")
                for call in reply
            ]
            return AIMessage("", tool_calls=calls)


def _chunks(reply: AIMessage) -> Iterator[AIMessageChunk]:
    """Yield a message as a provider streams it: its words, then the calls."""
    message_id = reply.id or f"scripted-{uuid.uuid4().hex[:12]}"
    for word in re.findall(r"\s*\S+\s*", reply.text) or [""]:
        yield AIMessageChunk(content=word, id=message_id)
    calls = [
        tool_call_chunk(
            name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=index
        )
        for index, call in enumerate(reply.tool_calls)
    ]
    calls += [
        tool_call_chunk(name=call["name"], args=call["args"], id=call["id"], index=index)
        for index, call in enumerate(reply.invalid_tool_calls, start=len(calls))
    ]
    yield AIMessageChunk(
        content="",
        id=message_id,
        tool_call_chunks=calls,
        response_metadata=dict(reply.response_metadata),
        usage_metadata=reply.usage_metadata,
        chunk_position="last",
    )


def _get_tool_name(tool: object) -> str:
    if isinstance(tool, dict):
        return str(tool.get("name") or tool.get("function", {}).get("name", ""))
    return str(getattr(tool, "name", getattr(tool, "__name__", "")))
