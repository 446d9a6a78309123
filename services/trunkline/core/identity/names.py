"""Identities of processes: SPIFFE ids, and the roles in them."""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Self

# A segment of a path (SPIFFE-ID, 2.2).
_SEGMENT: Final = re.compile(r"[A-Za-z0-9._-]{1,63}")
MESH_NAME: Final = "mesh.trunkline"
"""The DNS name in the certificates of the servers that the user of the mesh runs."""

_SCHEME: Final = "spiffe://"
# Stands before the instance in a path. No agent has this name.
_INSTANCE: Final = "-"
# The longest SPIFFE id (SPIFFE-ID, 2.3).
_ID_LIMIT_BYTES: Final = 2048


class Role(StrEnum):
    """The purpose of a process on the mesh."""

    MEMBER = "member"
    """A process of the user who runs the mesh. It may serve and call everything."""
    BRIDGE = "bridge"
    """It calls agents for public callers, and serves nothing."""
    TOOLS = "tools"
    """It serves tools."""
    AGENTS = "agents"
    """It serves the agents that its identity names, and calls other agents."""


SIGNERS: Final = frozenset({Role.MEMBER, Role.BRIDGE})
"""The roles that may sign statements of users."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity of a process: its mesh, its role and, for agents, their names.

    In a SPIFFE id: `spiffe://MESH/ROLE/AGENT/AGENT/-/INSTANCE`.
    """

    mesh: str
    """The trust domain of the mesh."""
    role: Role
    agents: frozenset[str] = frozenset()
    """The agents that it may register. Empty unless the role is AGENTS."""
    instance: str = ""
    """Tells the processes that joined with the same role and agents apart. Empty if the mesh did
    not issue the certificate."""

    @classmethod
    def for_agents(cls, mesh: str, agents: Iterable[str]) -> Self:
        """Return the identity of a process that serves these agents.

        Raises:
            ValueError: there are no agents, or a name can't stand in an identity.
        """
        names = frozenset(agents)
        if not names:
            raise ValueError("name at least one agent")
        for name in sorted(names):
            if not _SEGMENT.fullmatch(name) or name in {".", "..", _INSTANCE}:
                raise ValueError(f"{name!r} can't stand in an identity")
        return cls(mesh, Role.AGENTS, names)

    @classmethod
    def parse(cls, uri: str) -> Self:
        """Parse a SPIFFE id of a mesh.

        Raises:
            ValueError: it is not one.
        """
        mesh, _, path = uri.removeprefix(_SCHEME).partition("/")
        subject, separator, instance = path.partition(f"/{_INSTANCE}/")
        if (
            not uri.startswith(_SCHEME)
            or len(uri.encode()) > _ID_LIMIT_BYTES
            or not _SEGMENT.fullmatch(mesh)
            or (separator and not _SEGMENT.fullmatch(instance))
        ):
            raise ValueError("not a SPIFFE id")
        return replace(cls.from_subject(mesh, subject), instance=instance)

    @classmethod
    def from_subject(cls, mesh: str, subject: str) -> Self:
        """Return the identity for a role and its agents: `member`, or `agents/math/currency`.

        Raises:
            ValueError: there is no such role, or a name can't stand in an identity.
        """
        role, separator, agents = subject.partition("/")
        if role == Role.AGENTS:
            return cls.for_agents(mesh, agents.split("/"))
        if separator or role not in {Role.MEMBER, Role.BRIDGE, Role.TOOLS}:
            raise ValueError(f"no such role: {subject!r}")
        return cls(mesh, Role(role))

    @property
    def subject(self) -> str:
        """The role and agents, without the mesh, whose root may be replaced."""
        return "/".join((self.role, *sorted(self.agents)))

    def covers(self, subject: str) -> bool:
        """Return True if this identity is a subject, or has at least all of its agents."""
        role, *agents = subject.split("/")
        return role == self.role and self.agents.issuperset(agents)

    @property
    def server_name(self) -> str:
        """The DNS name that a client expects of a server with this identity.

        Each process that joined has another name, so that it can't pass for another process.
        """
        if self.role is Role.MEMBER:
            return MESH_NAME
        return f"{hashlib.sha256(str(self).encode()).hexdigest()[:32]}.{MESH_NAME}"

    def describe(self) -> str:
        """Return the role in words, for people."""
        if self.role is Role.AGENTS:
            return f"the agents {', '.join(sorted(self.agents))}"
        words = {
            Role.BRIDGE: "a bridge",
            Role.TOOLS: "tools",
            Role.MEMBER: "processes of the mesh's user, which may do everything",
        }
        return words[self.role]

    def __str__(self) -> str:
        instance = f"/{_INSTANCE}/{self.instance}" if self.instance else ""
        return f"{_SCHEME}{self.mesh}/{self.subject}{instance}"
