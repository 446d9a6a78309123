"""Tool calls that an earlier attempt at a turn started. Only safe ones are repeated."""

from collections.abc import Sequence
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from trunkline.errors import (
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnavailableError,
    ToolServerUnavailableError,
    TrunklineError,
)
from trunkline.reasoning.turn import ReasoningTurn
from trunkline.tasks.content import to_struct
from trunkline.tasks.turn_runtime import HOST_STOPPED
from trunkline.v1 import snapshot_pb2, tool_service_pb2

# Errors of calls that reached the tool, or may have.
_INTERRUPTIONS: Final = (
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnavailableError,
    ToolServerUnavailableError,
)
SUMMARY_CHARS: Final = 200
"""The length of a tool result's summary in the journal."""
MAY_HAVE_RUN: Final = "It may have taken effect: check before you request it again."


class InterruptedCalls:
    """The calls that earlier attempts at this turn started, from the journal."""

    def __init__(self, turn: ReasoningTurn, messages: Sequence[BaseMessage]) -> None:
        task = turn.task
        self._calls: list[snapshot_pb2.ToolCallInfo] = []
        if task.attempt > 1:
            self._calls = list(task.latest.tool_calls[len(task.snapshot.tool_calls) :])
        self._drop_answered(turn, messages)

    def pop_match(
        self, tool: tool_service_pb2.Tool, arguments: dict[str, object], approval_id: str
    ) -> snapshot_pb2.ToolCallInfo | None:
        """Remove and return an earlier call with the same arguments or approval, or None."""
        label = f"{tool.server}/{tool.name}"
        # The journal rounds large numbers, so round the arguments in the same way to compare them.
        rounded_arguments = to_struct(arguments) if self._calls else None
        for call in self._calls:
            start = call.started
            is_match = start.tool == label and start.arguments == rounded_arguments
            if approval_id:
                is_match = start.call_id.partition("/")[0] == approval_id
            if is_match:
                self._calls.remove(call)
                return call
        return None

    def _drop_answered(self, turn: ReasoningTurn, messages: Sequence[BaseMessage]) -> None:
        """Drop calls whose results the model has: it may request the same call again."""
        if not self._calls:
            return
        result_ids = {
            message.tool_call_id for message in messages if isinstance(message, ToolMessage)
        }
        for message in messages:
            for call in message.tool_calls if isinstance(message, AIMessage) else ():
                tool = turn.tools.find(call["name"])
                if tool is not None and call["id"] in result_ids:
                    self.pop_match(tool, call["args"], "")


def is_safe_to_repeat(tool: tool_service_pb2.Tool) -> bool:
    """Return whether repeating a call has no further effect."""
    return tool.read_only or tool.idempotent


def may_have_run(tool: tool_service_pb2.Tool, error: TrunklineError) -> bool:
    """Return whether a failed call may have had an effect that must not be repeated."""
    return isinstance(error, _INTERRUPTIONS) and not is_safe_to_repeat(tool)


def describe_interrupted_call(
    tool: tool_service_pb2.Tool, call: snapshot_pb2.ToolCallInfo
) -> tuple[str, bool]:
    """Describe an interrupted call that is not repeated, and return whether it failed."""
    label = f"{tool.server}/{tool.name}"
    end = call.finished
    if not call.HasField("finished") or end.summary == HOST_STOPPED:
        return (
            f"{label} was called, and its host stopped before it answered: it is unknown whether "
            "it took effect. It was not called again; check before you request it again.",
            True,
        )
    if len(end.summary) < SUMMARY_CHARS:
        return end.summary, end.is_error
    return (
        f"{end.summary} [{label} answered more, which was lost when its host stopped.]",
        end.is_error,
    )
