"""The rights of the page's callers.

Operators see the whole mesh, other callers only their own tasks.
"""

from trunkline.a2a_wire.errors import FORBIDDEN, WireError
from trunkline_bridge.callers.caller import Caller
from trunkline_bridge.callers.permissions import Permissions


class PageAccess:
    """Decides which callers are operators.

    Operators are the callers of the accounts in the settings. Without authentication, all callers
    are operators.
    """

    def __init__(self, operators: tuple[str, ...], *, is_anonymous_only: bool) -> None:
        """`is_anonymous_only` is true if the bridge has no authentication."""
        self._operators = frozenset(operators)
        self._is_anonymous_only = is_anonymous_only

    def is_operator(self, caller: Caller) -> bool:
        """Return whether a caller sees the whole mesh.

        Credentials with agents or methods see what these permit, whatever their account is.
        """
        if self._is_anonymous_only:
            return True
        is_listed = caller.is_authenticated and caller.account in self._operators
        return is_listed and _reads_everything(caller.permissions)

    def require_operator(self, caller: Caller) -> None:
        """Check that a caller is an operator. WireError: it is not (PERMISSION_DENIED)."""
        if not self.is_operator(caller):
            text = (
                "only operators see this; add the account to `operators` of [page], "
                "and use credentials for all agents"
            )
            raise WireError(FORBIDDEN, text)


def may_use(caller: Caller, agent: str, method: str) -> bool:
    """Return whether a caller may use a method at an agent."""
    return any(grant.allows(agent, method) for grant in caller.permissions.grants)


def may_see(caller: Caller, agent: str) -> bool:
    """Return whether a caller may use any method at an agent."""
    return any(grant.allows_agent(agent) for grant in caller.permissions.grants)


def list_methods(permissions: Permissions) -> list[str]:
    """Return the methods that a caller may use at some agent, sorted."""
    return sorted({name for grant in permissions.grants for name in grant.methods})


def _reads_everything(permissions: Permissions) -> bool:
    """Return whether credentials are for reading the tasks of all agents."""
    return any(not grant.agents and "GetTask" in grant.methods for grant in permissions.grants)
