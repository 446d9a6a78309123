"""Finds the agent that a conversation asked last."""

import asyncio

from trunkline.core import json_values
from trunkline.errors import TrunklineError
from trunkline.journal.fold import ROUTE_KEY
from trunkline.mesh.client import Directory
from trunkline.mesh.client.mesh_tasks import list_agent_tasks
from trunkline.supervisor.roster import Roster
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.v1 import json_pb2, task_service_pb2

_TIMEOUT_S = 2.0
# Only the latest tasks of the conversation are read: most have a route.
_MAX_TASKS = 10


async def find_last_agent(task: TurnRuntime, directory: Directory, roster: Roster) -> str:
    """Return the agent asked last in the conversation with this supervisor, or "".

    Returns "" also if that agent is not available. The route is read from the stored tasks, so it
    survives a restart.
    """
    for route in reversed(task.snapshot.routes):
        if route.agent in roster.cards:
            return route.agent
    request = task_service_pb2.ListTasksRequest(
        account=task.account,
        agent=task.agent,
        context_id=task.context_id,
        page_size=_MAX_TASKS,
    )
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            response = await list_agent_tasks(directory, request, skips_unreachable=True)
    except (TrunklineError, TimeoutError):
        # The last agent is only a hint: don't make the request wait or fail for it.
        return ""
    for earlier in response.tasks:
        agent = _last_step_agent(earlier.metadata) if earlier.task_id != task.id else ""
        if agent in roster.cards:
            return agent
    return ""


def _last_step_agent(metadata: json_pb2.Struct) -> str:
    """Return the agent of the last step in a task's route."""
    # The fold writes the route: an object, with objects as steps.
    route = json_values.read_member(metadata, ROUTE_KEY) or {}
    routes = route.get("steps") or [route]
    return next((str(step["agent"]) for step in reversed(routes) if step.get("agent")), "")
