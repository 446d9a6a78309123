"""Calls that an earlier attempt at a turn began: not made again unless that can't do harm."""

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
from trunkline.tasks.context import HOST_STOPPED
from trunkline.v1 import snapshot_pb2, tool_service_pb2

# What ended a call that had reached its tool, or may have.
_CUT_OFF: Final = (
    PeerProtocolError,
    PeerTimeoutError,
    PeerUnavailableError,
    ToolServerUnavailableError,
)
SUMMARY_CHARS: Final = 200
"""What the journal keeps of a result."""
MAY_HAVE_RUN: Final = "It may have been done all the same: see before you ask for it again."


class InterruptedCalls:
    """The calls that the journal knows of this turn, from before its host died."""

    def __init__(self, turn: ReasoningTurn, messages: Sequence[BaseMessage]) -> None:
        task = turn.task
        self._calls: list[snapshot_pb2.ToolCallInfo] = []
        if task.attempt > 1:
            self._calls = list(task.latest.tool_calls[len(task.snapshot.tool_calls) :])
        self._forget_answered(turn, messages)

    def pop_match(
        self, tool: tool_service_pb2.Tool, arguments: dict[str, object], approval_id: str
    ) -> snapshot_pb2.ToolCallInfo | None:
        """Return how such a call was begun before; each is returned once."""
        label = f"{tool.server}/{tool.name}"
        # As the journal has them, where large numbers are rounded.
        wanted = to_struct(arguments) if self._calls else None
        for call in self._calls:
            started = call.started
            is_it = started.tool == label and started.arguments == wanted
            if approval_id:
                is_it = started.call_id.partition("/")[0] == approval_id
            if is_it:
                self._calls.remove(call)
                return call
        return None

    def _forget_answered(self, turn: ReasoningTurn, messages: Sequence[BaseMessage]) -> None:
        """Leave out those whose results the model has: the same may well be asked for again."""
        if not self._calls:
            return
        answered = {one.tool_call_id for one in messages if isinstance(one, ToolMessage)}
        for message in messages:
            for call in message.tool_calls if isinstance(message, AIMessage) else ():
                tool = turn.tools.find(call["name"])
                if tool is not None and call["id"] in answered:
                    self.pop_match(tool, call["args"], "")


def is_safe_to_repeat(tool: tool_service_pb2.Tool) -> bool:
    """Tell whether making a call twice is like making it once."""
    return tool.read_only or tool.idempotent


def may_have_run(tool: tool_service_pb2.Tool, error: TrunklineError) -> bool:
    """Tell whether a call that ended with an error may have done what can do harm twice."""
    return isinstance(error, _CUT_OFF) and not is_safe_to_repeat(tool)


def describe_interrupted_call(
    tool: tool_service_pb2.Tool, begun: snapshot_pb2.ToolCallInfo
) -> tuple[str, bool]:
    """Return what the journal says of a call that is not made again, and whether it failed."""
    label = f"{tool.server}/{tool.name}"
    finished = begun.finished
    if not begun.HasField("finished") or finished.summary == HOST_STOPPED:
        return (
            f"{label} was called, and its host stopped before it answered: nobody knows whether it "
            "was done. It was not called again; see for yourself before you ask for it again.",
            True,
        )
    if len(finished.summary) < SUMMARY_CHARS:
        return finished.summary, finished.is_error
    return (
        f"{finished.summary} [{label} answered more, which was lost when its host stopped.]",
        finished.is_error,
    )
