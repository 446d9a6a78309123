"""Checks that callers may do what they ask for, and records refusals in the audit log."""

from trunkline.a2a_wire.errors import WireError
from trunkline.errors import AgentNotFoundError, PeerUnavailableError
from trunkline.mesh.client import Directory
from trunkline.observe.audit import DENIED, Action, AuditLog
from trunkline_bridge.callers.caller import Caller, caller_actor
from trunkline_bridge.callers.permissions import LIST_TASKS


class Authorizer:
    """Checks the requests of all bindings of A2A, before they read the parameters."""

    def __init__(self, directory: Directory, audit: AuditLog | None = None) -> None:
        """Without an audit log, no refusal is recorded."""
        self._directory = directory
        self._audit = audit

    async def check(self, caller: Caller, permission: str, task_id: str = "") -> None:
        """Check that the caller has a permission, and that the mesh has the agent or the task.

        The permission of an operation is in its row of `a2a/operations/operation_table.py`. A task
        may outlive its agent, because another host can take it over. Lists of tasks need only a
        host that reads their store.

        Raises:
            WireError: the caller lacks the permission at this agent (PERMISSION_DENIED).
            AgentNotFoundError: the mesh has neither the agent nor a host that can read the task.
            PeerUnavailableError: the same, but not all hosts are known yet.
        """
        check_permission(self._audit, caller, caller.agent, permission, task_id)
        if task_id and not self._directory.knows_task_host(task_id):
            await self._directory.look_up_host(task_id)
        try:
            if permission == LIST_TASKS:
                self._directory.list_readers(caller.agent)
            else:
                self._directory.get_agent(caller.agent)
        except (AgentNotFoundError, PeerUnavailableError):
            if not task_id or not self._can_be_read(task_id):
                raise

    def _can_be_read(self, task_id: str) -> bool:
        """Return whether a host may have a task, although no host runs its agent."""
        directory = self._directory
        return directory.knows_task_host(task_id) or directory.choose_reader(task_id) is not None


def check_permission(
    audit: AuditLog | None, caller: Caller, agent: str, permission: str, task_id: str = ""
) -> None:
    """Check that a caller has a permission at an agent, and record a refusal.

    Args:
        audit: The log of refusals; without it, nothing is recorded.
        caller: The caller.
        agent: The agent, or another subject of the permission, such as a room.
        permission: One of `callers.permissions.METHODS`.
        task_id: The task of the request, for the record.

    Raises:
        WireError: the caller lacks the permission (PERMISSION_DENIED).
    """
    try:
        caller.permissions.check(agent, permission)
    except WireError:
        if audit is not None:
            objects = {"agent": agent, "method": permission, "task": task_id}
            audit.record(Action.CALLER_AUTHORIZE, caller_actor(caller), outcome=DENIED, **objects)
        raise
