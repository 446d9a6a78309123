"""Converts interrupts of a graph to questions and approval requests, and back.

`interrupt(value)` ends the turn with the value as its question, as text or as JSON data. The next
message is what `interrupt` returns. A value in the form of LangChain's human-in-the-loop
middleware, `{"action_requests": [{"name", "args"}, …]}`, requests approval of these calls. It then
returns `{"decisions": [{"type": "approve" | "edit" | "reject", …}, …]}`.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from langgraph.types import Command, Interrupt, StateSnapshot

from trunkline.agents.langgraph.messages import build_data_part
from trunkline.core.json_values import build_struct, has_same_json, struct_json
from trunkline.tasks.approvals import ApprovalDecision
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import event_pb2, message_pb2

_TEXTS: Final = ("question", "message", "prompt", "description")


@dataclass(frozen=True, slots=True)
class GraphContinuation:
    """The saved state of a waiting task, which its status carries as JSON."""

    checkpoint_id: str
    """The task's last checkpoint."""
    base_checkpoint_id: str | None
    """The conversation's checkpoint when the task began."""
    interrupt_ids: Sequence[str] = ()
    """The ids of the interrupts that the next message answers. Empty: it only resumes the graph."""
    artifact_id: str = ""
    """The artifact of the answer, which the next turn writes anew."""
    approvals: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Approval ids, keyed by the interrupt that waits for them, instead of a question."""

    @classmethod
    def load(cls, task: TurnRuntime) -> "GraphContinuation | None":
        """Return the state that the task waits in, or None if its message is not an answer."""
        data = task.snapshot.continuation
        if not data:
            return None
        fields = json.loads(data)
        if "at" not in fields:
            # A call outside the graph, while its input was made, waited for an approval.
            return None
        return cls(
            fields["at"],
            fields["base"],
            fields["interrupts"],
            fields.get("artifact", ""),
            fields["approvals"],
        )

    def save(self, task: TurnRuntime) -> None:
        """Store the state in the turn's status."""
        fields = {
            "at": self.checkpoint_id,
            "base": self.base_checkpoint_id,
            "interrupts": list(self.interrupt_ids),
            "artifact": self.artifact_id,
        }
        approvals = {name: list(ids) for name, ids in self.approvals.items()}
        task.pending_approvals.continuation = json.dumps(
            {**fields, "approvals": approvals}
        ).encode()

    def is_answered(self, task: TurnRuntime) -> bool:
        """Return True if every approval has an answer."""
        return all(
            _find_answer(task, approval_id)
            for approval_ids in self.approvals.values()
            for approval_id in approval_ids
        )

    def build_command(self, task: TurnRuntime, read: Callable[[], object]) -> Command[Any] | None:
        """Build the command that resumes the graph. `read` returns the answer in the message."""
        if self.approvals:
            decisions = {
                name: {"decisions": [_build_decision(task, approval_id) for approval_id in ids]}
                for name, ids in self.approvals.items()
            }
            return Command(resume=decisions)
        return Command(resume={self.interrupt_ids[0]: read()}) if self.interrupt_ids else None


async def ask_for_interrupts(
    task: TurnRuntime, snapshot: StateSnapshot, *, at: str, base: str | None
) -> None:
    """End the turn with the graph's interrupts: all requested calls, else the first question."""
    interrupts = snapshot.interrupts
    if not interrupts:
        # The graph was compiled with interrupt_before or interrupt_after.
        GraphContinuation(at, base).save(task)
        await task.require_input(f"Continue with {', '.join(snapshot.next)}?")
        return
    requests = {
        interrupt.id: interrupt.value["action_requests"]
        for interrupt in interrupts
        if _requests_calls(interrupt)
    }
    if not requests:
        GraphContinuation(at, base, [interrupts[0].id]).save(task)
        await task.require_input(_build_question(interrupts[0].value))
        return
    approval_ids: dict[str, list[str]] = {}
    asked = _find_open_requests(task)
    for name, calls in requests.items():
        ids = approval_ids[name] = []
        for call in calls:
            arguments = call.get("args") or {}
            request = _take_request(asked, call["name"], arguments)
            if request is None:
                event = task.pending_approvals.request(call["name"], arguments)
                await task.record(event)
                request = event.approval_requested
            ids.append(request.approval_id)
    GraphContinuation(at, base, list(approval_ids), approvals=approval_ids).save(task)


def _find_open_requests(task: TurnRuntime) -> list[event_pb2.ApprovalRequested]:
    """Return the requests that have no answer: a host that died after them had not asked yet."""
    return [
        approval.requested
        for approval in task.pending_approvals.all
        if not approval.HasField("answered")
        and not (approval.requested.child_task_id or approval.requested.step_id)
    ]


def _take_request(
    asked: list[event_pb2.ApprovalRequested], tool: str, arguments: Mapping[str, Any]
) -> event_pb2.ApprovalRequested | None:
    """Remove and return the request of a call, if it is there."""
    expected = build_struct(arguments)
    for request in asked:
        if request.tool == tool and has_same_json(request.arguments, expected):
            asked.remove(request)
            return request
    return None


def _requests_calls(interrupt: Interrupt[Any]) -> bool:
    value = interrupt.value
    calls = value.get("action_requests") if isinstance(value, Mapping) else None
    return (
        isinstance(calls, Sequence)
        and bool(calls)
        and all(isinstance(call, Mapping) and isinstance(call.get("name"), str) for call in calls)
    )


def _build_question(value: object) -> message_pb2.Message:
    """Convert a value to a question: its text for people, and the value as data for programs."""
    message = message_pb2.Message()
    if isinstance(value, str):
        message.parts.add(text=value)
        return message
    text = json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, Mapping):
        texts = (value[name] for name in _TEXTS if isinstance(value.get(name), str))
        text = next(texts, text)
    message.parts.add(text=text)
    message.parts.append(build_data_part(value))
    return message


def _find_answer(task: TurnRuntime, approval_id: str) -> event_pb2.ApprovalAnswered | None:
    approval = task.pending_approvals.find(approval_id)
    if approval is None or not approval.HasField("answered"):
        return None
    return approval.answered


def _build_decision(task: TurnRuntime, approval_id: str) -> dict[str, Any]:
    approval = task.pending_approvals.find(approval_id)
    if approval is None or not approval.HasField("answered"):
        return {"type": "reject", "message": "it was not approved"}
    answered = approval.answered
    match answered.decision:
        case ApprovalDecision.APPROVED:
            return {"type": "approve"}
        case ApprovalDecision.EDITED:
            action = {"name": approval.requested.tool, "args": struct_json(answered.arguments)}
            return {"type": "edit", "edited_action": action}
        case _:
            return {"type": "reject", "message": answered.reason or "a person has rejected it"}
