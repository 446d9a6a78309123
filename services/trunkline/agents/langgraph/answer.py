"""What a graph's models say, as the one artifact that is the answer.

Which message is the answer shows only at the end. So the artifact holds the text of the message
that is being said now: the next one takes its place, and in the end it is made what the graph's
state has. Readers are told of each such change; mostly there is none.
"""

from collections.abc import Collection, Sequence
from typing import Any, Final, TypeAlias

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

from trunkline.tasks.context import TaskContext
from trunkline.tasks.writers import ArtifactWriter
from trunkline.v1 import artifact_pb2, event_pb2, part_pb2

# A graph within the graph, by the names and ids that lead to it; and a node there.
Node: TypeAlias = tuple[tuple[str, ...], str]

_NAME: Final = "answer"
_HELD_CHARS: Final = 256 * 1024
_NEWS_CHARS: Final = 300


class Answer:
    """The artifact, and who is speaking."""

    def __init__(self, task: TaskContext[Any], nodes: Collection[str] | None) -> None:
        """Only what models say in these `nodes`, or in graphs below them, is streamed."""
        self._task = task
        self._nodes = nodes
        self._is_heard: dict[str, bool] = {}
        self._writer: ArtifactWriter | None = None
        self._written = ""
        self._speaker: str | None = None
        self._node: Node | None = None
        # What is said beside the speaker, by the ids of the messages; None: it had its turn.
        self._others: dict[str, str | None] = {}

    async def hear(self, message: BaseMessage, metadata: dict[str, Any], node: Node) -> None:
        """Take in a piece of a message that a model says in a node, or a whole one."""
        if not isinstance(message, AIMessageChunk | AIMessage):
            return
        text = str(message.text)
        if not text or not self._hears(metadata):
            return
        said_by = message.id or ""
        if said_by == self._speaker:
            await self._append(text)
            return
        held = self._others.get(said_by, "")
        if held is None:
            return
        text = held + text
        if self._node not in (None, node):
            # Somebody speaks elsewhere: one after the other.
            self._others[said_by] = text if len(text) <= _HELD_CHARS else None
            return
        if self._speaker is not None:
            self._others[self._speaker] = None
            await self._clear()
        self._speaker, self._node = said_by, node
        self._others.pop(said_by, None)
        await self._append(text)

    def leave(self, node: Node) -> None:
        """Take in that a node has ended: what it said is said, and others may speak."""
        if node == self._node:
            self._node = None

    async def called(self, message: AIMessage) -> None:
        """Take in that a message calls tools: then its text was no answer, but news."""
        if self._written and message.id == self._speaker:
            news = self._written.strip()
            await self._clear()
            await self._task.working(news if len(news) <= _NEWS_CHARS else f"{news[:_NEWS_CHARS]}…")

    async def close(self) -> None:
        """Close the artifact as it is, if there is one: it stands beside a question."""
        if self._writer is not None:
            await self._writer.close()

    async def finish(self, text: str, parts: Sequence[part_pb2.Part]) -> None:
        """Make the artifact hold this text, and then these parts, and close it."""
        if not text.startswith(self._written):
            await self._clear()
        if rest := text[len(self._written) :]:
            await self._append(rest)
        for part in parts:
            await self._artifact().append(part)
        if self._writer is not None:
            await self._writer.close()

    def _hears(self, metadata: dict[str, Any]) -> bool:
        if self._nodes is None:
            return True
        path = str(metadata.get("langgraph_checkpoint_ns", ""))
        known = self._is_heard.get(path)
        if known is None:
            names = {step.partition(":")[0] for step in path.split("|")}
            known = self._is_heard[path] = not names.isdisjoint(self._nodes)
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
            self._writer = self._task.artifact(_NAME, kind=event_pb2.ARTIFACT_KIND_ANSWER)
        return self._writer
