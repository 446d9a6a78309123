"""Questions of agents as elicitations, and their answers as messages."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import mcp_types as types

from trunkline_bridge.client.answers import ClientAnswer, RequestedApproval
from trunkline_bridge.client.client import ClientContent

_ANSWER: Final = "answer"
_DECISION: Final = "decision"
_REASON: Final = "reason"
_DECISIONS: Final = ("approve", "reject")


def build_forms(answer: ClientAnswer) -> dict[str, types.ElicitRequestFormParams]:
    """Return what a waiting task asks: one form for each approval, or one for its question.

    The keys are unique in the task's life: ids of approvals, and of the question's message.
    """
    if answer.approvals:
        return {
            approval.approval_id: _form(_describe(approval), _approval_schema())
            for approval in answer.approvals
        }
    key = answer.task.status.message.message_id or "question"
    schema = {
        "type": "object",
        "properties": {_ANSWER: {"type": "string", "title": "Answer"}},
        "required": [_ANSWER],
    }
    return {key: _form(answer.status_text or "The agent asks for input.", schema)}


def build_requests(answer: ClientAnswer) -> dict[str, types.InputRequest]:
    """Return the same as requests to the client."""
    return {key: types.ElicitRequest(params=form) for key, form in build_forms(answer).items()}


def read_responses(
    answer: ClientAnswer, responses: Mapping[str, Mapping[str, Any]]
) -> Sequence[ClientContent]:
    """Return the content of the message that answers a waiting task; empty: nothing is answered.

    Responses to what the task does not ask are ignored. A declined form rejects an approval; a
    declined question leaves the task waiting.
    """
    content: list[ClientContent] = []
    approvals = {approval.approval_id: approval for approval in answer.approvals}
    for key in build_forms(answer):
        response = responses.get(key)
        if response is None:
            continue
        is_accepted = response.get("action") == "accept"
        values = response.get("content") or {}
        if key in approvals:
            is_approved = is_accepted and values.get(_DECISION) == "approve"
            decision = {"approvalId": key, "decision": "approve" if is_approved else "reject"}
            if not is_approved:
                decision["reason"] = str(values.get(_REASON) or "declined")
            content.append(decision)
        elif is_accepted:
            content.append(str(values.get(_ANSWER, "")))
    return content


def _form(message: str, schema: dict[str, Any]) -> types.ElicitRequestFormParams:
    return types.ElicitRequestFormParams(message=message, requested_schema=schema)


def _describe(approval: RequestedApproval) -> str:
    path = " > ".join(approval.path)
    return f"May {path or 'the agent'} call {approval.tool} with {dict(approval.arguments)}?"


def _approval_schema() -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {
            _DECISION: {"type": "string", "title": "Decision", "enum": list(_DECISIONS)},
            _REASON: {"type": "string", "title": "Reason, if you reject"},
        },
        "required": [_DECISION],
    }
