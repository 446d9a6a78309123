"""Questions of agents as elicitations, and their answers as messages."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import mcp_types as types
from pydantic import TypeAdapter, ValidationError

from trunkline.a2a_client.answers import ClientAnswer, RequestedApproval
from trunkline.a2a_client.client import ClientContent
from trunkline.core.json_values import has_member, struct_json, value_json

_ANSWER: Final = "answer"
_DECISION: Final = "decision"
_REASON: Final = "reason"
_DECISIONS: Final = ("approve", "reject")
_UNSAID: Final = "The agent asks for input."
# Marks the parts of a question that come from an MCP tool.
_TOOL_QUESTION: Final = "trunkline/input-requests"
_REQUESTS: Final = TypeAdapter(dict[str, types.ElicitRequest])


def build_requests(answer: ClientAnswer) -> dict[str, types.ElicitRequest]:
    """Return the forms of a waiting task: one for each approval, or the forms of its question.

    A question of an MCP tool keeps its forms and URLs. Any other question is a form with one text.
    The keys are unique in the task's life, because ids of approvals, requests and messages are.
    """
    if answer.approvals:
        return {
            approval.approval_id: _form(_describe(approval), _approval_schema())
            for approval in answer.approvals
        }
    if requests := _find_tool_requests(answer):
        return {full: request for full, (_, request) in requests.items()}
    schema = {
        "type": "object",
        "properties": {_ANSWER: {"type": "string", "title": "Answer"}},
        "required": [_ANSWER],
    }
    return {_question_key(answer): _form(answer.status_text or _UNSAID, schema)}


def read_responses(
    answer: ClientAnswer, responses: Mapping[str, Mapping[str, Any]]
) -> Sequence[ClientContent]:
    """Return the content of the message that answers a waiting task, or nothing.

    Responses to other questions are ignored. A declined form rejects an approval, or is passed on
    to the MCP tool that asked. If any other question is declined, there is no answer.
    """
    if answer.approvals:
        approvals = [approval.approval_id for approval in answer.approvals]
        return [_decide(key, responses[key]) for key in approvals if key in responses]
    if requests := _find_tool_requests(answer):
        given = {
            key: dict(responses[full]) for full, (key, _) in requests.items() if full in responses
        }
        return [{"inputResponses": given}] if given else []
    response = responses.get(_question_key(answer), {})
    text = (response.get("content") or {}).get(_ANSWER)
    return [str(text)] if response.get("action") == "accept" and text is not None else []


def is_declined(answer: ClientAnswer, responses: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return whether the user of the client declined the question of a waiting task."""
    return responses.get(_question_key(answer), {}).get("action") in {"decline", "cancel"}


def _question_key(answer: ClientAnswer) -> str:
    return answer.task.status.message.message_id or "question"


def _find_tool_requests(answer: ClientAnswer) -> dict[str, tuple[str, types.ElicitRequest]]:
    """Return the requests of MCP tools in a question, by their keys for MCP clients.

    Each has the tool's own key beside it. A request keeps its key for as long as it waits. The
    result is empty if the question has no valid requests.
    """
    for part in answer.task.status.message.parts:
        if part.HasField("data") and has_member(part.metadata, _TOOL_QUESTION):
            try:
                requests = _REQUESTS.validate_python(
                    value_json(part.data)["inputRequests"], by_name=False
                )
            except (ValidationError, LookupError, TypeError):
                return {}
            ids = struct_json(part.metadata)[_TOOL_QUESTION]
            known = ids if isinstance(ids, Mapping) else {}
            return {
                f"{known.get(key, _question_key(answer))}.{key}": (key, request)
                for key, request in requests.items()
            }
    return {}


def _decide(approval_id: str, response: Mapping[str, Any]) -> ClientContent:
    values = response.get("content") or {}
    is_approved = response.get("action") == "accept" and values.get(_DECISION) == "approve"
    decision = {"approvalId": approval_id, "decision": "approve" if is_approved else "reject"}
    if not is_approved:
        decision["reason"] = str(values.get(_REASON) or "declined")
    return decision


def _form(message: str, schema: dict[str, Any]) -> types.ElicitRequest:
    params = types.ElicitRequestFormParams(message=message, requested_schema=schema)
    return types.ElicitRequest(params=params)


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
