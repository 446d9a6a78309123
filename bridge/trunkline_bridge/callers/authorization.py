"""Checks that callers may do what they ask for, and records refusals in the audit log."""

from trunkline.a2a_wire.errors import WireError
from trunkline.observe.audit import DENIED, Action, AuditLog
from trunkline_bridge.callers.caller import Caller, caller_actor


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
