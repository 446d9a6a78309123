"""Converts questions of MCP tools, and the answers to them, from and to trunkline.v1.

A tool asks by `inputRequests`: in the result of the call, which is then made again with the
answers, or in the state of the task that the call became. It imports mcp: load it lazily.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

import mcp_types
from pydantic import TypeAdapter, ValidationError

from trunkline.errors import InvalidArgumentError
from trunkline.tools.results import failed_result
from trunkline.v1 import part_pb2, tool_service_pb2

# The journal stores a question with the state of its turn, for which it has 48 KiB.
_REQUESTS_LIMIT_BYTES: Final = 16 * 1024
_STATE_LIMIT_BYTES: Final = 16 * 1024
_RESPONSES: Final = TypeAdapter(mcp_types.InputResponses)


def to_question(
    tool: str,
    requests: mcp_types.InputRequests,
    *,
    request_state: str | None = None,
    task_handle: str = "",
) -> tool_service_pb2.ToolResult:
    """Convert the question of a tool. A question that can't be answered is a failed result."""
    others = {
        request.method
        for request in requests.values()
        if not isinstance(request, mcp_types.ElicitRequest)
    }
    if others:
        return failed_result(f"{tool} asks for {', '.join(sorted(others))}, which is not offered.")
    text = json.dumps(dump_inputs(requests), ensure_ascii=False)
    state = None if request_state is None else request_state.encode("utf-8", "surrogatepass")
    if len(text.encode("utf-8", "replace")) > _REQUESTS_LIMIT_BYTES:
        return failed_result(f"{tool} asks by more than {_REQUESTS_LIMIT_BYTES} bytes.")
    if len(state or b"") > _STATE_LIMIT_BYTES:
        return failed_result(f"{tool} asks with a state of more than {_STATE_LIMIT_BYTES} bytes.")
    messages = " ".join(
        request.params.message
        for request in requests.values()
        if isinstance(request, mcp_types.ElicitRequest)
    )
    return tool_service_pb2.ToolResult(
        is_error=True,
        content=[part_pb2.Part(text=f"It asks, and its caller can't answer: {messages}")],
        question=tool_service_pb2.ToolQuestion(
            requests=text, request_state=state, task_handle=task_handle
        ),
    )


def parse_responses(text: str) -> mcp_types.InputResponses | None:
    """Return the answers of a continuation, or None if it has no answers.

    Raises:
        InvalidArgumentError: the text does not contain answers of MCP.
    """
    if not text:
        return None
    try:
        return _RESPONSES.validate_json(text, by_name=False)
    except ValidationError as error:
        raise InvalidArgumentError("continuation.responses", "are not MCP's") from error


def dump_inputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
    """Return requests or responses by key as JSON values."""
    return {
        key: value.model_dump(by_alias=True, mode="json", exclude_none=True)
        for key, value in inputs.items()
    }


def unpack_state(continuation: tool_service_pb2.ToolContinuation) -> str | None:
    """Return the state that goes back to the server, or None if the server sent no state.

    Raises:
        InvalidArgumentError: the state is not the state of a question.
    """
    if not continuation.HasField("request_state"):
        return None
    try:
        return continuation.request_state.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise InvalidArgumentError("continuation.request_state", "is not a state") from error
