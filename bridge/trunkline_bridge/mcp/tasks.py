"""MCP's Tasks extension (`io.modelcontextprotocol/tasks`, SEP-2663) over the mesh's tasks."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple, Self

import mcp_types as types
from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from trunkline.a2a_client.answers import ClientAnswer
from trunkline.a2a_client.client import Client
from trunkline.core.task_states import TaskState
from trunkline.errors import TaskNotCancelableError, TaskNotFoundError
from trunkline_bridge.mcp.agent_tools import is_waiting, to_tool_result
from trunkline_bridge.mcp.client_features import ClientFeatures
from trunkline_bridge.mcp.questions import build_requests, is_declined, read_responses

_POLL_MS: Final = 1000


class TaskParams(types.RequestParams):
    """The parameters of `tasks/get` and `tasks/cancel`."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="allow")

    task_id: str


class UpdateTaskParams(TaskParams):
    """The parameters of `tasks/update`."""

    input_responses: dict[str, dict[str, Any]]


class TaskHandle(NamedTuple):
    """The content of an MCP task's id. It needs no store, so it outlives this server."""

    agent: str
    created_s: int
    task_id: str

    @classmethod
    def create(cls, agent: str, task_id: str) -> Self:
        """Return the handle of a task that was created now."""
        return cls(agent, int(datetime.now(UTC).timestamp()), task_id)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the id of an MCP task.

        Raises:
            TaskNotFoundError: the id is not from this server.
        """
        agent, _, rest = text.partition(":")
        created, _, task_id = rest.partition(":")
        if not (agent and task_id and created.isascii() and created.isdigit()):
            raise TaskNotFoundError(text)
        return cls(agent, int(created), task_id)

    def __str__(self) -> str:
        return f"{self.agent}:{self.created_s}:{self.task_id}"


def build_task_result(handle: TaskHandle) -> dict[str, Any]:
    """Return the result of a call whose task continues."""
    return {"resultType": "task", "status": "working", **_common(handle, datetime.now(UTC))}


async def get_task(client: Client, handle: TaskHandle, features: ClientFeatures) -> dict[str, Any]:
    """Return the current state of a task, for a client with these features.

    Raises:
        TrunklineError: the task can't be read.
    """
    answer = await client.get(handle.task_id)
    state: dict[str, Any] = {**_common(handle, _read_time(answer)), **_describe(answer, features)}
    if answer.status_text:
        state["statusMessage"] = answer.status_text
    return state


async def update_task(
    client: Client, handle: TaskHandle, responses: Mapping[str, Mapping[str, Any]]
) -> None:
    """Answer the question of a task. Responses to anything else are ignored.

    If the user declines the question of an agent, the task is canceled. Otherwise it would wait
    forever, because clients ask each question only once.

    Raises:
        TrunklineError: the task can't be read, or the answer was refused.
    """
    answer = await client.get(handle.task_id)
    if not is_waiting(answer):
        return
    content = read_responses(answer, responses)
    if not content:
        if is_declined(answer, responses):
            await cancel_task(client, handle)
        return
    stream = client.stream(*content, task_id=handle.task_id)
    try:
        # The turn has begun with its first event, and runs without this call.
        await anext(stream)
    finally:
        await stream.aclose()


async def cancel_task(client: Client, handle: TaskHandle) -> None:
    """Cancel a task. A task that has ended is not changed.

    Raises:
        TrunklineError: the task can't be canceled.
    """
    try:
        await client.cancel(handle.task_id)
    except TaskNotCancelableError:
        return


def _common(handle: TaskHandle, updated: datetime) -> dict[str, Any]:
    return {
        "taskId": str(handle),
        "createdAt": datetime.fromtimestamp(handle.created_s, UTC).isoformat(),
        "lastUpdatedAt": updated.isoformat(),
        "ttlMs": None,
        "pollIntervalMs": _POLL_MS,
    }


def _read_time(answer: ClientAnswer) -> datetime:
    status = answer.task.status
    if status.HasField("timestamp"):
        return status.timestamp.ToDatetime(tzinfo=UTC)
    return datetime.now(UTC)


def _describe(answer: ClientAnswer, features: ClientFeatures) -> dict[str, Any]:
    if is_waiting(answer) and features.can_ask(asked := build_requests(answer)):
        requests = {
            key: request.model_dump(by_alias=True, mode="json", exclude_none=True)
            for key, request in asked.items()
        }
        return {"status": "input_required", "inputRequests": requests}
    match answer.state:
        case TaskState.CANCELED:
            return {"status": "cancelled"}
        case TaskState.SUBMITTED | TaskState.WORKING:
            return {"status": "working"}
    # `failed` is only for errors of the protocol. A question that the client can't ask becomes a
    # result with instructions for the answer.
    result = to_tool_result(answer).model_dump(by_alias=True, mode="json", exclude_none=True)
    return {"status": "completed", "result": result}
