"""The context and the state of one turn in the reasoning loop. Imports LangGraph."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.graph import MessagesState

from trunkline.agents.calls.tool_source import ToolSource
from trunkline.agents.reasoning.message_repair import build_feedback, repair_messages
from trunkline.agents.reasoning.models import Model
from trunkline.agents.reasoning.tool_results import render_sources
from trunkline.agents.reasoning.toolbox import Toolbox, ToolSpec
from trunkline.agents.reasoning.turn_checkpoints import TurnCheckpoints
from trunkline.agents.reasoning.turn_result import RESULT_TOOLS, STATUS_KEY, ResultStatus
from trunkline.errors import StepLimitError
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.tasks.writers import ArtifactWriter
from trunkline.v1 import artifact_pb2, event_pb2, part_pb2

MESSAGE_LIMIT = 10
"""The messages that one turn may take: the question, replies and tool results."""

_ANSWER = "answer"
# A reply with tool calls, the results, and the next reply.
_ROUND_MESSAGES = 3
_LAST_ROUND_NOTE = (
    "This is your last message, and you can't call tools any more: answer now with what you know, "
    "and say what is missing."
)


@dataclass(slots=True)
class ReasoningTurn:
    """The context of one run, which all nodes share. It is not saved in checkpoints."""

    task: TurnRuntime
    model: Model
    tools: Toolbox
    source: ToolSource
    checkpoints: TurnCheckpoints
    checker: Model | None = None
    """The model that checks answers. Without it, answers are not checked."""
    earlier_messages: Sequence[BaseMessage] = ()
    """The messages before the turn: the system prompt, and the earlier conversation."""
    earlier_count: int = 0
    """The number of messages in the task's history before this turn's question."""
    streamed_text: str = ""
    parts: list[part_pb2.Part] = field(default_factory=list)
    """Tool content that is not text."""
    _answer: ArtifactWriter | None = None
    is_finished: bool = False
    """True once readers have the whole answer, closed."""

    def model_messages(self, state: "ReasoningState") -> list[BaseMessage]:
        """Return the messages to send to the model, repaired."""
        messages = repair_messages([*self.earlier_messages, *state["messages"]])
        return (
            [*messages, build_feedback(_LAST_ROUND_NOTE)] if self.is_last_round(state) else messages
        )

    def tool_specs(self, state: "ReasoningState") -> list[ToolSpec]:
        """Return the tools for the model. In the last round it can only end the turn."""
        own = [] if self.is_last_round(state) else self.tools.specs(with_metadata=True)
        return [*own, *RESULT_TOOLS]

    def is_last_round(self, state: "ReasoningState") -> bool:
        """Return whether tool calls would leave no room for an answer."""
        return not self.model.is_rules and remaining_messages(state) < _ROUND_MESSAGES

    async def append_answer(self, text: str) -> None:
        """Stream a piece of the answer."""
        await self._open_artifact().append(text)
        self.streamed_text += text

    async def truncate_answer(self, length: int = 0) -> None:
        """Shorten the streamed answer to its first `length` characters.

        Used when a model answers anew. Readers get the rest of the artifact as a replacement.
        """
        if length >= len(self.streamed_text):
            return
        self.streamed_text = self.streamed_text[:length]
        remains = artifact_pb2.Artifact(name=_ANSWER)
        if self.streamed_text:
            remains.parts.add(text=self.streamed_text)
        await self._open_artifact().replace(remains)

    async def save_written_length(self) -> dict[str, int]:
        """Flush the answer to the journal and return its length, for the checkpoint."""
        if self._answer is None or not self.streamed_text:
            return {}
        await self.task.flush()
        return {self._answer.id: len(self.streamed_text)}

    async def close_answer(self) -> None:
        """Close the artifact if one was started. Its text does not count as an answer."""
        if self._answer is not None:
            await self._answer.close()

    async def pause_answer(self) -> None:
        """Publish the text so far, because another turn continues the answer."""
        if self.parts:
            await self.finish_answer()
            self.parts = []
        else:
            await self.close_answer()

    async def finish_answer(self, messages: Sequence[BaseMessage] = ()) -> None:
        """Append the sources in the turn's messages and the parts that are not text, and close it.

        Does nothing if the answer is finished.
        """
        if self.is_finished:
            return
        self.is_finished = True
        answer = self._open_artifact()
        sources = render_sources(
            [*self.earlier_messages, *messages],
            self.streamed_text,
            earlier=len(self.earlier_messages),
        )
        if messages and sources:
            await answer.append(sources)
        for part in self.parts:
            await answer.append(part)
        await answer.close()

    async def withdraw_answer(self) -> None:
        """Empty the finished answer, because the model answers anew under the same id."""
        self.is_finished = False
        self.streamed_text = ""
        await self._open_artifact().replace(artifact_pb2.Artifact(name=_ANSWER))

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restore the position of a checkpoint, to which the answer has been rewound."""
        self.parts = [part_pb2.Part.FromString(part) for part in state.get("parts", ())]
        lengths = state.get("written") or {}
        for artifact in self.task.latest.task.artifacts:
            if length := lengths.get(artifact.artifact_id):
                text = "".join(part.text for part in artifact.parts)
                self.streamed_text = text[:length]
                # If the text was not cut, the parts after it are still in the artifact.
                present_count = 0 if length < len(text) else len(artifact.parts) - 1
                del self.parts[: max(0, present_count)]

    def _open_artifact(self) -> ArtifactWriter:
        if self._answer is None:
            kind = event_pb2.ARTIFACT_KIND_ANSWER
            self._answer = self.task.artifact_of_kind(kind, _ANSWER)
        return self._answer


class ReasoningState(MessagesState, total=False):
    """The state of a turn in its checkpoints, in types that every serializer supports."""

    written: dict[str, int]
    """The lengths of the turn's artifacts in characters, keyed by artifact id."""
    parts: list[bytes]
    approvals: dict[str, str]
    """Approval ids, keyed by the model's ids of the waiting calls."""
    questions: dict[str, Any]
    """Questions of tools, each a PendingQuestion, keyed by the model's ids of the calls."""
    result: dict[str, str]


def remaining_messages(state: ReasoningState) -> int:
    """Return the number of messages that still fit. All results of one reply count as one."""
    messages = state["messages"]
    further_results = sum(
        isinstance(message, ToolMessage) and isinstance(previous, ToolMessage)
        for previous, message in itertools.pairwise(messages)
    )
    return MESSAGE_LIMIT - (len(messages) - further_results)


def check_message_limit(turn: ReasoningTurn, state: ReasoningState) -> None:
    """Check that the turn has room for another message.

    Raises:
        StepLimitError: the limit is reached.
    """
    if remaining_messages(state) < 1:
        raise StepLimitError(turn.task.agent, str(MESSAGE_LIMIT))


def get_last_reply(state: ReasoningState) -> AIMessage:
    """Return the model's last reply."""
    reply = state["messages"][-1]
    return reply if isinstance(reply, AIMessage) else AIMessage(reply.text)


def build_agent_message(text: str, status: ResultStatus) -> AIMessage:
    """Build an agent message. Only a completed one counts as an answer."""
    return AIMessage(text, response_metadata={STATUS_KEY: status.value})


def reply_status(reply: AIMessage) -> ResultStatus:
    """Return a reply's status. Replies of providers carry none and are completed."""
    return ResultStatus(reply.response_metadata.get(STATUS_KEY, ResultStatus.COMPLETED))
