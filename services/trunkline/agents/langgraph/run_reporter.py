"""Reports a graph's run to its task: the answer, tool calls and progress.

Only the end of the run shows which message is the answer. So the artifact holds the text of the
current message, the next message replaces it, and at the end it is made equal to the output of the
graph's state. Readers see each replacement, but most runs have none.
"""

from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage

from trunkline.agents.langgraph.messages import build_data_part, find_messages
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.tasks.writers import ArtifactWriter
from trunkline.v1 import artifact_pb2, event_pb2, part_pb2

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from trunkline.tasks.writers import ToolCall


# The path of names and ids that leads to a subgraph, and a node in it.
NodePath: TypeAlias = tuple[tuple[str, ...], str]

_NAME: Final = "answer"
_BUFFER_CHARS: Final = 256 * 1024
_PROGRESS_CHARS: Final = 300


class AnswerStream:
    """The answer artifact, and the message that is being streamed to it."""

    def __init__(
        self, task: TurnRuntime, nodes: Collection[str] | None, *, artifact_id: str = ""
    ) -> None:
        """`nodes` limits streaming to these nodes and the subgraphs below them.

        `artifact_id` is the artifact of the earlier turn that this turn continues.
        """
        self._task = task
        self._artifact_id = artifact_id
        self._nodes = nodes
        self._is_path_streamed: dict[str, bool] = {}
        self._writer: ArtifactWriter | None = None
        self._written = ""
        self._speaker: str | None = None
        self._node: NodePath | None = None
        # Text of messages that stream concurrently, by message id; None once it was replaced.
        self._others: dict[str, str | None] = {}

    async def add_text(
        self, message: BaseMessage, metadata: dict[str, Any], node: NodePath
    ) -> None:
        """Add a piece of a message, or a whole one, that a model writes in a node."""
        if not isinstance(message, AIMessageChunk | AIMessage):
            return
        text = str(message.text)
        if not text or not self._is_streamed(metadata):
            return
        message_id = message.id or ""
        if message_id == self._speaker:
            await self._append(text)
            return
        buffered = self._others.get(message_id, "")
        if buffered is None:
            return
        text = buffered + text
        if self._node not in (None, node):
            # Another node is streaming. Messages follow one after the other.
            self._others[message_id] = text if len(text) <= _BUFFER_CHARS else None
            return
        if self._speaker is not None:
            self._others[self._speaker] = None
            await self._clear()
        self._speaker, self._node = message_id, node
        self._others.pop(message_id, None)
        await self._append(text)

    def end_node(self, node: NodePath) -> None:
        """End a node: its message is complete, and other messages may stream."""
        if node == self._node:
            self._node = None

    async def discard_as_progress(self, message: AIMessage) -> None:
        """Handle a message with tool calls: its streamed text was progress, not the answer."""
        if self._written and message.id == self._speaker:
            news = self._written.strip()
            await self._clear()
            await self._task.working(
                news if len(news) <= _PROGRESS_CHARS else f"{news[:_PROGRESS_CHARS]}…"
            )

    async def close(self) -> None:
        """Close the artifact, if there is one, when the task asks a question."""
        if self._writer is not None:
            await self._writer.close()

    async def restart(self) -> None:
        """Empty the artifact that an earlier attempt at this turn may have continued."""
        if self._artifact_id and self._task.attempt > 1:
            await self._artifact().replace(artifact_pb2.Artifact(name=_NAME))

    async def clear_for_continuation(self) -> str:
        """Empty the artifact, which the next turn writes anew. Return its id, if it exists."""
        if self._writer is None:
            return self._artifact_id
        await self._clear()
        return self._writer.id

    async def finish(self, text: str, parts: Sequence[part_pb2.Part]) -> None:
        """Make the artifact hold this text and these parts, and close it."""
        if not text.startswith(self._written):
            await self._clear()
        if rest := text[len(self._written) :]:
            await self._append(rest)
        for part in parts:
            await self._artifact().append(part)
        if self._writer is not None:
            await self._writer.close()

    def _is_streamed(self, metadata: dict[str, Any]) -> bool:
        if self._nodes is None:
            return True
        path = str(metadata.get("langgraph_checkpoint_ns", ""))
        known = self._is_path_streamed.get(path)
        if known is None:
            names = {step.partition(":")[0] for step in path.split("|")}
            known = self._is_path_streamed[path] = not names.isdisjoint(self._nodes)
        return known

    async def _append(self, text: str) -> None:
        self._written += text
        await self._artifact().append(text)

    async def _clear(self) -> None:
        if self._written:
            self._written = ""
            await self._artifact().replace(artifact_pb2.Artifact(name=_NAME))

    def _artifact(self) -> ArtifactWriter:
        if self._writer is None:
            self._writer = self._task.artifact_of_kind(
                event_pb2.ARTIFACT_KIND_ANSWER, _NAME, id=self._artifact_id
            )
        return self._writer


STREAM_MODES: Final = ("messages", "updates", "custom")
_INTERRUPT: Final = "__interrupt__"
_SUMMARY_CHARS: Final = 200


class RunReporter:
    """Reports the stream of a graph's run to its task."""

    def __init__(self, task: TurnRuntime, answer: AnswerStream) -> None:
        self._task = task
        self._answer = answer
        self._known: set[str] = set()
        self._calls: dict[str, tuple[AbstractAsyncContextManager[ToolCall], ToolCall]] = {}

    async def report(self, path: tuple[str, ...], mode: str, payload: Any) -> None:  # noqa: ANN401
        """Report an item of the stream, in one of STREAM_MODES, from the graph at `path`."""
        if mode == "messages":
            message, metadata = payload
            node = (path, str(metadata.get("langgraph_node", "")))
            await self._answer.add_text(message, metadata, node)
        elif mode == "custom":
            await self._report_custom(payload)
        elif isinstance(payload, Mapping):
            for name, update in payload.items():
                if name != _INTERRUPT:
                    await self._report_update(update)
                    self._answer.end_node((path, name))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the tool events of calls that have no result, because the graph has stopped."""
        calls, self._calls = self._calls, {}
        for manager, record in calls.values():
            record.summary = "" if error else "it waits for an answer"
            await manager.__aexit__(kind, error, traceback)

    async def _report_custom(self, news: object) -> None:
        match news:
            case str():
                await self._task.working(news)
            case part_pb2.Part():
                await self._task.artifact(news.filename).append(news, last=True)
            case Mapping():
                await self._task.artifact().append(build_data_part(news), last=True)

    async def _report_update(self, update: object) -> None:
        for message in find_messages(update):
            if isinstance(message, AIMessage) and message.tool_calls:
                await self._answer.discard_as_progress(message)
                for call in message.tool_calls:
                    await self._start_call(call["id"] or "", call["name"], call["args"])
            elif isinstance(message, ToolMessage):
                is_error = message.status == "error"
                summary = " ".join(str(message.text).split())[:_SUMMARY_CHARS]
                if await self._finish_call(message.tool_call_id, summary, is_error=is_error):
                    await self._task.working("Processing the results…")

    async def _start_call(self, call_id: str, tool: str, arguments: dict[str, Any]) -> None:
        # A graph repeats the messages of its subgraphs.
        if call_id in self._known:
            return
        self._known.add(call_id)
        await self._task.working(f"Calling {tool}…")
        manager = self._task.tool(tool, arguments)
        self._calls[call_id] = (manager, await manager.__aenter__())

    async def _finish_call(self, call_id: str, summary: str, *, is_error: bool) -> bool:
        """Record the end of a call. Return whether no other call is running."""
        if call_id not in self._calls:
            return False
        manager, record = self._calls.pop(call_id)
        record.summary, record.is_error = summary, is_error
        await manager.__aexit__(None, None, None)
        return not self._calls
