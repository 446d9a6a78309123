"""Permissions of callers: the agents and methods that their credentials are for.

The scopes of an API key are in its entry. The scopes of a token are in its claims. Without any,
all agents and methods are permitted. The permission of each operation of A2A has its name, see
`a2a/operations/operation_table.py`, and the bindings of A2A have it checked by `Authorizer` in
`callers/authorization.py`. All other operations check on their own, most of them through
`check_permission` there, which also records a refusal.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from trunkline.a2a_wire.errors import FORBIDDEN, WireError

READ: Final = "read"
"""Stands for all methods that change nothing."""
READ_METHODS: Final = frozenset(
    {
        "GetTask",
        "ListTasks",
        "SubscribeToTask",
        "GetTaskPushNotificationConfig",
        "ListTaskPushNotificationConfigs",
        "GetExtendedAgentCard",
        "GetArtifact",
        "GetEnvelope",
        "ListEnvelopes",
        "WatchEnvelopes",
        "ListRooms",
        "GetWorkflow",
        "GetMetrics",
    }
)
METHODS: Final = READ_METHODS | {
    "SendMessage",
    "SendStreamingMessage",
    "CancelTask",
    "CreateTaskPushNotificationConfig",
    "DeleteTaskPushNotificationConfig",
    "SendEnvelopes",
    "ReplayEnvelopes",
    "RedriveEnvelopes",
    "PurgeEnvelopes",
    "JoinRoom",
    "LeaveRoom",
    "PauseTask",
    "ResumeTask",
    "RollBackWorkflow",
}
"""All permissions.

The permissions of A2A have the names of its operations in v1.0, the permissions of messages the
names of the methods of MessagingService. GetArtifact is the download of a file, GetMetrics the page
for Prometheus. GetWorkflow, PauseTask, ResumeTask and RollBackWorkflow are for workflows alone: A2A
has no operation that pauses a task, but GraphQL pauses the run of a workflow, which is a task.
"""
GET_ARTIFACT: Final = "GetArtifact"
CREATE_PUSH_CONFIG: Final = "CreateTaskPushNotificationConfig"
LIST_TASKS: Final = "ListTasks"
GET_METRICS: Final = "GetMetrics"
GET_EXTENDED_CARD: Final = "GetExtendedAgentCard"

CHALLENGE: Final = 'Bearer realm="trunkline"'
"""The `WWW-Authenticate` header of requests without credentials (RFC 6750, 3)."""


@dataclass(frozen=True, slots=True)
class Grant:
    """Methods that a caller may use, and the agents that it may use them at."""

    agents: tuple[str, ...] = ()
    """Names or patterns with `*`. If empty, all agents are permitted."""
    methods: frozenset[str] = METHODS
    scope: str = ""
    """The scope of a token that this is; empty for API keys."""

    def allows_agent(self, agent: str) -> bool:
        """Return whether it is for an agent."""
        return not self.agents or any(fnmatchcase(agent, pattern) for pattern in self.agents)

    def allows(self, agent: str, method: str) -> bool:
        """Return whether it is for a method at an agent."""
        return method in self.methods and self.allows_agent(agent)


@dataclass(frozen=True, slots=True)
class Permissions:
    """The permissions of a caller."""

    grants: Sequence[Grant] = (Grant(),)
    """An operation must be allowed by one of them."""
    scopes: Sequence[Grant] = ()
    """All scopes that a token may have. A refusal names the scope that the token lacks."""

    @property
    def is_read_only(self) -> bool:
        """True if they are for methods that change nothing, at all agents."""
        return all(grant.methods <= READ_METHODS for grant in self.grants)

    def check(self, agent: str, method: str) -> None:
        """Check that the caller may use a method at an agent.

        Raises:
            WireError: it may not (PERMISSION_DENIED). The text names the missing permission.
        """
        if self is UNRESTRICTED or any(grant.allows(agent, method) for grant in self.grants):
            return
        scope, problem = self._find_missing(agent, method)
        raise WireError(
            FORBIDDEN,
            f"these credentials are not for {method} at agent {agent!r}: {problem}",
            {"agent": agent, "method": method, "scope": scope},
            challenge=f'{CHALLENGE}, error="insufficient_scope", scope="{scope}"',
        )

    def _find_missing(self, agent: str, method: str) -> tuple[str, str]:
        """Return the scope that is missing, and the problem as a text."""
        if self.scopes:
            scope = next((scope.scope for scope in self.scopes if scope.allows(agent, method)), "")
            if scope:
                return scope, f"the token lacks the scope {scope!r}"
            return "", "no scope of tokens permits it"
        if any(grant.allows_agent(agent) for grant in self.grants):
            return method, "the API key lacks this method"
        return f"agent:{agent}", "the API key lacks this agent"


UNRESTRICTED: Final = Permissions()
"""The permissions of credentials without scopes."""


def parse_methods(names: Iterable[str]) -> frozenset[str]:
    """Return the methods that names stand for; no names are all methods.

    Raises:
        ValueError: a name is unknown; the text lists the known ones.
    """
    methods: set[str] = set()
    for name in names:
        if name != READ and name not in METHODS:
            known = ", ".join([READ, *sorted(METHODS)])
            raise ValueError(f"{name!r} is no method; there are: {known}")
        methods |= READ_METHODS if name == READ else {name}
    return frozenset(methods) or METHODS
