"""Tool calls that an earlier attempt at a turn started. Only safe ones are repeated."""

from collections.abc import Sequence
from typing import Final

from langchain_core.messages import AIMessage, BaseMessage, ToolMessage

from trunkline.calls.tool_call import tool_label
from trunkline.json_values import build_struct, has_same_json
from trunkline.reasoning.turn import ReasoningTurn
from trunkline.v1 import snapshot_pb2, tool_service_pb2

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
        label = tool_label(tool)
        expected = build_struct(arguments)
        for call in self._calls:
            start = call.started
            is_match = start.tool == label and has_same_json(start.arguments, expected)
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
