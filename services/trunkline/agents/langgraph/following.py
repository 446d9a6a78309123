"""Follows a graph while it runs: its words, its calls of tools, its own news."""

from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from langchain_core.messages import AIMessage, ToolMessage

from trunkline.agents.langgraph.answer import Answer
from trunkline.agents.langgraph.messages import messages_in
from trunkline.tasks.context import TaskContext
from trunkline.v1 import part_pb2

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from trunkline.tasks.writers import ToolCall

MODES: Final = ("messages", "updates", "custom")
_INTERRUPT: Final = "__interrupt__"
_SUMMARY_CHARS: Final = 200


class Following:
    """What a task tells of a run of its graph, as LangGraph streams it."""

    def __init__(self, task: TaskContext[Any], answer: Answer) -> None:
        self._task = task
        self._answer = answer
        self._known: set[str] = set()
        self._calls: dict[str, tuple[AbstractAsyncContextManager[ToolCall], ToolCall]] = {}

    async def take(self, path: tuple[str, ...], mode: str, payload: Any) -> None:  # noqa: ANN401
        """Take in what LangGraph streams of the graph that `path` leads to, in one of MODES."""
        if mode == "messages":
            message, metadata = payload
            node = (path, str(metadata.get("langgraph_node", "")))
            await self._answer.hear(message, metadata, node)
        elif mode == "custom":
            await self._tell(payload)
        elif isinstance(payload, Mapping):
            for name, update in payload.items():
                if name != _INTERRUPT:
                    await self._update(update)
                    self._answer.leave((path, name))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Give an end to the calls that have none: their graph has stopped."""
        calls, self._calls = self._calls, {}
        for manager, record in calls.values():
            record.summary = "" if error else "it waits for an answer"
            await manager.__aexit__(kind, error, traceback)

    async def _tell(self, news: object) -> None:
        match news:
            case str():
                await self._task.working(news)
            case part_pb2.Part():
                await self._task.artifact(news.filename).append(news, last=True)

    async def _update(self, update: object) -> None:
        for message in messages_in(update):
            if isinstance(message, AIMessage) and message.tool_calls:
                await self._answer.called(message)
                for call in message.tool_calls:
                    await self._begin(call["id"] or "", call["name"], call["args"])
            elif isinstance(message, ToolMessage):
                is_error = message.status == "error"
                summary = " ".join(str(message.text).split())[:_SUMMARY_CHARS]
                if await self._finish(message.tool_call_id, summary, is_error=is_error):
                    await self._task.working("Processing the results…")

    async def _begin(self, call_id: str, tool: str, arguments: dict[str, Any]) -> None:
        # A graph passes on what the one below it has said.
        if call_id in self._known:
            return
        self._known.add(call_id)
        await self._task.working(f"Calling {tool}…")
        manager = self._task.tool(tool, arguments)
        self._calls[call_id] = (manager, await manager.__aenter__())

    async def _finish(self, call_id: str, summary: str, *, is_error: bool) -> bool:
        """Record the end of a call; return whether it was the last one under way."""
        if call_id not in self._calls:
            return False
        manager, record = self._calls.pop(call_id)
        record.summary, record.is_error = summary, is_error
        await manager.__aexit__(None, None, None)
        return not self._calls
