"""What the nodes of the reasoning loop work on during one turn. Imports LangGraph."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage
from langgraph.graph import MessagesState

from trunkline.errors import StepLimitError
from trunkline.reasoning.checkpoints import Thread
from trunkline.reasoning.source import ToolSource
from trunkline.reasoning.toolbox import Toolbox
from trunkline.reasoning.verdict import STATUS_KEY, Status
from trunkline.tasks.turn.context import TaskContext
from trunkline.tasks.turn.writers import ArtifactWriter
from trunkline.v1 import artifact_pb2, event_pb2, part_pb2

MESSAGE_LIMIT = 10
"""Messages that one turn may take: the question, the model's and the tools'."""

_ANSWER = "answer"


@dataclass(slots=True)
class Turn:
    """What the nodes of one run work on."""

    task: TaskContext
    model: BaseChatModel
    model_name: str
    tools: Toolbox
    source: ToolSource
    earlier: int = 0
    """Messages in the state that are older than this turn."""
    history: int = 0
    """Messages of the task's history that are older than this turn's question."""
    thread: Thread | None = None
    """Where the turn's checkpoints are; None: nobody could go on from them."""
    streamed: str = ""
    parts: list[part_pb2.Part] = field(default_factory=list)
    """What tools gave that is no text."""
    _answer: ArtifactWriter | None = None

    async def say(self, text: str) -> None:
        """Stream a piece of the answer."""
        await self._artifact().append(text)
        self.streamed += text

    async def unsay(self, length: int = 0) -> None:
        """Take back what was streamed of the answer behind its first so many characters.

        For what a model says anew: readers are told what remains, and the rest follows it.
        """
        if length >= len(self.streamed):
            return
        self.streamed = self.streamed[:length]
        remains = artifact_pb2.Artifact(name=_ANSWER)
        if self.streamed:
            remains.parts.add(text=self.streamed)
        await self._artifact().replace(remains)

    async def written(self) -> dict[str, int]:
        """Return how much of the answer is in the journal: what a checkpoint may count on."""
        if self._answer is None or not self.streamed:
            return {}
        if self.thread is not None:
            await self.task.settled()
        return {self._answer.id: len(self.streamed)}

    async def finish(self) -> None:
        """Complete the answer with what is no text."""
        answer = self._artifact()
        for part in self.parts:
            await answer.append(part)
        await answer.close()

    def go_on(self, state: Mapping[str, Any]) -> None:
        """Stand where a checkpoint of this turn was made; the answer has been rewound to there."""
        self.parts = [part_pb2.Part.FromString(part) for part in state.get("parts", ())]
        written = state.get("written") or {}
        for artifact in self.task.latest.task.artifacts:
            if length := written.get(artifact.artifact_id):
                text = "".join(part.text for part in artifact.parts)
                self.streamed = text[:length]
                # Whatever stood behind the whole of it was not cut off.
                kept = 0 if length < len(text) else len(artifact.parts) - 1
                del self.parts[: max(0, kept)]

    def _artifact(self) -> ArtifactWriter:
        if self._answer is None:
            kind = event_pb2.ARTIFACT_KIND_ANSWER
            self._answer = self.task.artifact(_ANSWER, kind=kind)
        return self._answer


class State(MessagesState, total=False):
    """What a checkpoint holds of a turn, in types that any serialiser takes."""

    written: dict[str, int]
    """Characters of the turn's artifacts, by their ids."""
    parts: list[bytes]
    approvals: dict[str, str]
    """Ids of approvals by the model's ids of the calls that wait for them."""
    verdict: dict[str, str]


def check_room(turn: Turn, state: State, count: int) -> None:
    """Refuse what would take more messages than a turn may."""
    if len(state["messages"]) - turn.earlier + count > MESSAGE_LIMIT:
        raise StepLimitError(turn.task.agent, str(MESSAGE_LIMIT))


def last_reply(state: State) -> AIMessage:
    """Return what the model said last."""
    reply = state["messages"][-1]
    return reply if isinstance(reply, AIMessage) else AIMessage(reply.text)


def status_of(reply: AIMessage) -> Status:
    """A model that says nothing of it, as those of providers do, has answered."""
    return Status(reply.response_metadata.get(STATUS_KEY, Status.COMPLETED))
