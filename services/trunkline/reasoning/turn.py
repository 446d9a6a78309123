"""What the nodes of the reasoning loop work on during one turn. Imports LangGraph."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.graph import MessagesState

from trunkline.errors import StepLimitError
from trunkline.reasoning.checkpoint_files import TurnCheckpoints
from trunkline.reasoning.message_repair import build_feedback, repair_messages
from trunkline.reasoning.models import Model
from trunkline.reasoning.tool_source import ToolSource
from trunkline.reasoning.toolbox import Toolbox, ToolSpec
from trunkline.reasoning.turn_result import RESULT_TOOLS, STATUS_KEY, ResultStatus
from trunkline.tasks.context import TaskContext
from trunkline.tasks.writers import ArtifactWriter
from trunkline.v1 import artifact_pb2, event_pb2, part_pb2

MESSAGE_LIMIT = 10
"""Messages that one turn may take: the question, the model's replies, what tools answered."""

_ANSWER = "answer"
# A reply that calls tools, what they answer, and what comes of it.
_ROUND = 3
_LAST = (
    "This is your last message, and you can't call tools any more: answer now with what you know, "
    "and say what is missing."
)


@dataclass(slots=True)
class ReasoningTurn:
    """What the nodes of one run work on."""

    task: TaskContext
    model: Model
    tools: Toolbox
    source: ToolSource
    checker: Model | None = None
    """Judges whether an answer helps; None: answers are taken as they are."""
    earlier_messages: Sequence[BaseMessage] = ()
    """What the model is shown ahead of the turn: its instructions, and what was said earlier."""
    earlier_count: int = 0
    """Messages of the task's history that are older than this turn's question."""
    checkpoints: TurnCheckpoints | None = None
    """Where the turn's checkpoints are; None: nobody could go on from them."""
    streamed: str = ""
    parts: list[part_pb2.Part] = field(default_factory=list)
    """What tools gave that is no text."""
    _answer: ArtifactWriter | None = None

    def model_messages(self, state: "ReasoningState") -> list[BaseMessage]:
        """Return what the model is shown: whatever was cut off in it is repaired."""
        messages = repair_messages([*self.earlier_messages, *state["messages"]])
        return [*messages, build_feedback(_LAST)] if self.is_last_round(state) else messages

    def tool_specs(self, state: "ReasoningState") -> list[ToolSpec]:
        """Return the tools that are bound to the model, which may only end the turn at last."""
        own = [] if self.is_last_round(state) else self.tools.specs(with_metadata=True)
        return [*own, *RESULT_TOOLS]

    def is_last_round(self, state: "ReasoningState") -> bool:
        """Whether tools would leave no room for an answer, so that this had better be one."""
        return not self.model.is_rules and remaining_messages(state) < _ROUND

    async def append_answer(self, text: str) -> None:
        """Stream a piece of the answer."""
        await self._artifact().append(text)
        self.streamed += text

    async def truncate_answer(self, length: int = 0) -> None:
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

    async def save_written_length(self) -> dict[str, int]:
        """Return how much of the answer is in the journal: what a checkpoint may count on."""
        if self._answer is None or not self.streamed:
            return {}
        if self.checkpoints is not None:
            await self.task.flush()
        return {self._answer.id: len(self.streamed)}

    async def close_answer(self) -> None:
        """Complete what was written, if anything was, though it is no answer."""
        if self._answer is not None:
            await self._answer.close()

    async def pause_answer(self) -> None:
        """Give what there is, before the turn ends to go on in another one."""
        if self.parts:
            await self.finish_answer()
            self.parts = []
        else:
            await self.close_answer()

    async def finish_answer(self) -> None:
        """Complete the answer with what is no text."""
        answer = self._artifact()
        for part in self.parts:
            await answer.append(part)
        await answer.close()

    def restore(self, state: Mapping[str, Any]) -> None:
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


class ReasoningState(MessagesState, total=False):
    """What a checkpoint holds of a turn, in types that any serialiser takes."""

    written: dict[str, int]
    """Characters of the turn's artifacts, by their ids."""
    parts: list[bytes]
    approvals: dict[str, str]
    """Ids of approvals by the model's ids of the calls that wait for them."""
    result: dict[str, str]


def remaining_messages(state: ReasoningState) -> int:
    """Return how many messages there is room for; the answers to one reply's calls are one."""
    messages = state["messages"]
    answers = sum(
        isinstance(one, ToolMessage) and isinstance(before, ToolMessage)
        for before, one in itertools.pairwise(messages)
    )
    return MESSAGE_LIMIT - (len(messages) - answers)


def check_message_limit(turn: ReasoningTurn, state: ReasoningState) -> None:
    """Refuse what would take more messages than a turn may.

    Raises:
        StepLimitError: there is no room for another one.
    """
    if remaining_messages(state) < 1:
        raise StepLimitError(turn.task.agent, str(MESSAGE_LIMIT))


def get_last_reply(state: ReasoningState) -> AIMessage:
    """Return what the model said last."""
    reply = state["messages"][-1]
    return reply if isinstance(reply, AIMessage) else AIMessage(reply.text)


def build_agent_message(text: str, status: ResultStatus) -> AIMessage:
    """Return what the agent said, as a message that is no answer unless it is completed."""
    return AIMessage(text, response_metadata={STATUS_KEY: status.value})


def reply_status(reply: AIMessage) -> ResultStatus:
    """A model that says nothing of it, as those of providers do, has answered."""
    return ResultStatus(reply.response_metadata.get(STATUS_KEY, ResultStatus.COMPLETED))
