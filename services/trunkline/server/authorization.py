"""The roles that may call each method of the mesh, and the identity of the caller."""

from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Final, TypeAlias

import grpc

from trunkline.errors import PermissionDeniedError, UnauthenticatedError
from trunkline.identity import Identity, MeshCredentials, Role

_ALL: Final = frozenset(Role)
_HOSTS: Final = frozenset({Role.MEMBER, Role.AGENTS, Role.TOOLS})
_CALLERS: Final = frozenset({Role.MEMBER, Role.BRIDGE, Role.AGENTS})
# By service or method; the longest matching key counts. What is not here is for members only.
_ROLES: Final[Mapping[str, frozenset[Role]]] = {
    "grpc.health.v1.Health": _ALL,
    "grpc.reflection.v1alpha.ServerReflection": _ALL,
    "opentelemetry.proto.collector.trace.v1.TraceService": _ALL,
    "trunkline.v1.IdentityService": _ALL,
    "trunkline.v1.RegistryService": _HOSTS,
    "trunkline.v1.RegistryService/ListAgents": _ALL,
    "trunkline.v1.RegistryService/WatchAgents": _ALL,
    "trunkline.v1.TrunkService": _ALL,
    "trunkline.v1.MessageService": _CALLERS,
    "trunkline.v1.TaskService": _CALLERS,
    "trunkline.v1.ArtifactService": _CALLERS,
    # The tool adapter stores large results with the task.
    "trunkline.v1.ArtifactService/UploadArtifact": _ALL,
    "trunkline.v1.ToolService": frozenset({Role.MEMBER, Role.AGENTS}),
    # Deliveries are the bridge's work.
    "trunkline.v1.WebhookService": frozenset({Role.MEMBER, Role.BRIDGE}),
}
_MEMBERS: Final = frozenset({Role.MEMBER})

caller: ContextVar[Identity] = ContextVar("caller")
"""The process whose call is being answered."""

AuthorizeCall: TypeAlias = Callable[[Identity, str], None]
"""Checks that a process that was identified may call a method now."""
Authorize: TypeAlias = Callable[[str, grpc.aio.ServicerContext[Any, Any]], None]
"""Checks the peer of a call to a method, and sets `caller`."""


class MeshAuthorizer:
    """Lets processes of one mesh call the methods of their roles."""

    def __init__(self, credentials: MeshCredentials | None) -> None:
        """Without credentials, only this user's processes call, over a Unix socket."""
        self._credentials = credentials
        self._mesh = "local" if credentials is None else credentials.identity.mesh
        # Only this user's processes reach a Unix socket of ours: `MeshServer.bind` checks that.
        self._local = Identity(self._mesh, Role.MEMBER)
        self._parse = lru_cache(maxsize=1024)(self._parse_uri)

    def __call__(self, method: str, context: grpc.aio.ServicerContext[Any, Any]) -> None:
        """Check the peer of a call, and set `caller`.

        Raises:
            UnauthenticatedError: its certificate names no identity of this mesh.
            PermissionDeniedError: its role may not call the method.
        """
        identity = self._identify(context)
        self.check(identity, method)
        caller.set(identity)

    def check(self, identity: Identity, method: str) -> None:
        """Check that a process that was identified may call a method now.

        Raises:
            UnauthenticatedError: it was revoked.
            PermissionDeniedError: its role may not call the method.
        """
        if self._credentials is not None and identity.instance in self._credentials.revoked:
            raise UnauthenticatedError(f"{identity} is revoked")
        check_role(identity, method)

    def _identify(self, context: grpc.aio.ServicerContext[Any, Any]) -> Identity:
        properties = context.auth_context()
        if properties.get("transport_security_type") == [b"local"]:
            return self._local
        try:
            (uri,) = properties["peer_spiffe_id"]
            identity = self._parse(uri)
        except (KeyError, ValueError) as error:
            raise UnauthenticatedError("the caller has no identity of a mesh") from error
        if identity.mesh != self._mesh:
            raise UnauthenticatedError("the caller is of another mesh")
        return identity

    def _parse_uri(self, uri: bytes) -> Identity:
        parse = Identity.parse if self._credentials is None else self._credentials.identify
        return parse(uri.decode())


def admit_anybody(_method: str, _context: grpc.aio.ServicerContext[Any, Any]) -> None:
    """Let a call through without an identity, for methods that check something else."""


def check_role(identity: Identity, method: str) -> None:
    """Check that a process may call a method.

    Raises:
        PermissionDeniedError: its role may not.
    """
    service = method.partition("/")[0]
    if identity.role not in _ROLES.get(method, _ROLES.get(service, _MEMBERS)):
        raise PermissionDeniedError(str(identity), f"call {method}")
