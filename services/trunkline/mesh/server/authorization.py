"""The checks of each call that is served: its process, role, user, request and policy."""

from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import grpc
from google.protobuf.message import Message

from trunkline.core.identity import Identity, MeshCredentials, Role, StatementVerifier
from trunkline.core.settings import PolicySettings
from trunkline.core.users import (
    USER_METADATA,
    User,
    changes_nothing,
    current_actor,
    current_user,
    is_child,
    may_sign,
    named_account,
    named_user,
    requires_proof,
    sets_webhook,
)
from trunkline.errors import PermissionDeniedError, UnauthenticatedError, UserNotProvenError
from trunkline.mesh.server.policy import Policy
from trunkline.mesh.server.requests import UNREADABLE, check_values, unreadable_request
from trunkline.observe.audit import Action, AuditLog, process_actor

_ALL: Final = frozenset(Role)
_MEMBERS: Final = frozenset({Role.MEMBER})
_HOSTS: Final = frozenset({Role.MEMBER, Role.AGENTS, Role.TOOLS})
_CALLERS: Final = frozenset({Role.MEMBER, Role.BRIDGE, Role.AGENTS})
_WEBHOOKS: Final = frozenset({Role.MEMBER, Role.BRIDGE})
# By service or method; the longest matching key counts. What is not here is for members only.
_ROLES: Final[Mapping[str, frozenset[Role]]] = {
    "grpc.health.v1.Health": _ALL,
    "grpc.reflection.v1alpha.ServerReflection": _ALL,
    "opentelemetry.proto.collector.trace.v1.TraceService": _ALL,
    "trunkline.v1.IdentityService": _ALL,
    "trunkline.v1.RegistryService": _HOSTS,
    "trunkline.v1.RegistryService/ListAgents": _ALL,
    "trunkline.v1.RegistryService/WatchAgents": _ALL,
    "trunkline.v1.RegistryService/ReleaseJournals": _MEMBERS,
    "trunkline.v1.TrunkService": _ALL,
    "trunkline.v1.MessageService": _CALLERS,
    "trunkline.v1.MessagingService": _CALLERS,
    "trunkline.v1.TaskService": _CALLERS,
    # Webhooks outlive the statement of the user.
    "trunkline.v1.TaskService/SetPushNotificationConfig": _WEBHOOKS,
    "trunkline.v1.TaskService/DeletePushNotificationConfig": _WEBHOOKS,
    "trunkline.v1.TaskService/GetPushNotificationConfig": _WEBHOOKS,
    "trunkline.v1.TaskService/ListPushNotificationConfigs": _WEBHOOKS,
    "trunkline.v1.ArtifactService": _CALLERS,
    # The tool adapter stores large results with the task.
    "trunkline.v1.ArtifactService/UploadArtifact": _ALL,
    "trunkline.v1.ToolService": frozenset({Role.MEMBER, Role.AGENTS}),
    # People sign in, not agents.
    "trunkline.v1.ToolService/StartSignIn": _MEMBERS,
    "trunkline.v1.ToolService/CompleteSignIn": _MEMBERS,
    # The bridge delivers webhooks.
    "trunkline.v1.WebhookService": _WEBHOOKS,
}
_REFUSALS: Final = (PermissionDeniedError, UnauthenticatedError, UserNotProvenError)

caller: ContextVar[Identity] = ContextVar("caller")
"""The process whose call is being answered."""

_Refusal: TypeAlias = PermissionDeniedError | UnauthenticatedError | UserNotProvenError


class RequestChecks(NamedTuple):
    """Checks the requests of one call, and records what is refused."""

    method: str
    peer: str = ""
    """gRPC's name of the caller's end."""
    identity: Identity | None = None
    """The process that calls, if the method requires an identity."""
    policy: Policy | None = None
    audit: AuditLog | None = None

    async def check_each(self, requests: AsyncIterable[Any]) -> AsyncIterator[Any]:
        """Yield the requests of a stream, each checked by `check` when it is read."""
        async for request in requests:
            yield self.check(request)

    def check(self, request: Any) -> Any:  # noqa: ANN401  services may have any type of request
        """Return a request that the method may handle.

        A request is for the user that the call's statement names. Only processes of the mesh's
        owner may name an account without a statement.

        Raises:
            InvalidArgumentError: the request is UNREADABLE, or has impossible values.
            UserNotProvenError: the request names an account, and the call has no statement.
            PermissionDeniedError: the statement names another account or user, or a rule of the
                policy forbids the call.
        """
        if request is UNREADABLE:
            raise unreadable_request()
        if not isinstance(request, Message):
            # Services of third parties may have requests of other types.
            return request
        check_values(request)
        account, identity = named_account(request), self.identity
        if account is None or identity is None:
            return request
        try:
            _compare_user(identity, account, request)
            if self.policy is not None:
                self.policy.check(identity, account, request)
        except _REFUSALS as error:
            is_owner = identity.role is Role.MEMBER
            objects = _name_objects(request, account)
            self.record_refusal(error, account if is_owner else "", **objects)
            raise
        return request

    def record_refusal(self, error: _Refusal, acting: str = "", **objects: str) -> None:
        """Record that the call is refused.

        `acting` is the account that a process of the mesh's owner names.
        """
        if self.audit is None:
            return
        is_known = isinstance(error, PermissionDeniedError)
        action = Action.CALLER_AUTHORIZE if is_known else Action.CALLER_AUTHENTICATE
        actor = process_actor(self.peer, account=acting)
        self.audit.record_refusal(action, actor, method=self.method, **objects)


Authorize: TypeAlias = Callable[[str, grpc.aio.ServicerContext[Any, Any]], Awaitable[RequestChecks]]
"""Checks the peer and the user of a call to a method, and returns the checks of its requests.

It sets `caller` and `current_user`.
"""


class MeshAuthorizer:
    """Lets processes of one mesh call the methods of their roles."""

    def __init__(
        self,
        credentials: MeshCredentials | None,
        policy: PolicySettings | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        """Without credentials, only this user's processes call, over a Unix socket.

        Refused calls are recorded unless there is no audit log.
        """
        self._credentials = credentials
        rules = None if policy is None else Policy(policy)
        self._policy = None if rules is None or rules.is_empty else rules
        self._audit = audit
        self._mesh = "local" if credentials is None else credentials.identity.mesh
        # Only this user's processes reach a Unix socket of ours: `MeshServer.bind` checks that.
        self._local = Identity(self._mesh, Role.MEMBER)
        self._parse = lru_cache(maxsize=1024)(self._parse_uri)
        self.statements: StatementVerifier | None = None
        """Verifies statements of users; None without credentials."""
        self._may_sign = False
        if credentials is not None:
            self.statements = StatementVerifier(credentials)
            self._may_sign = credentials.identity.role is Role.MEMBER

    async def __call__(
        self, method: str, context: grpc.aio.ServicerContext[Any, Any]
    ) -> RequestChecks:
        """Check a plain call, and set `caller` and `current_user`; return the request's checks.

        Raises:
            UnauthenticatedError: the peer's certificate names no identity of this mesh.
            TrunklineError: see `enter_call`.
        """
        peer = context.peer()
        try:
            identity = self._identify(context)
        except UnauthenticatedError as error:
            RequestChecks(method, peer, audit=self._audit).record_refusal(error)
            raise
        statement = ""
        for key, value in context.invocation_metadata() or ():
            if key == USER_METADATA and isinstance(value, str):
                statement = value
        return await self.enter_call(identity, method, statement, peer)

    async def enter_call(
        self, identity: Identity, method: str, statement: str, peer: str
    ) -> RequestChecks:
        """Check a call of a known process, and set the context of its handler.

        Returns the checks of the request, which needs no parsing before.
        `peer` is gRPC's name of the caller's end.

        Raises:
            UnauthenticatedError: the process was revoked.
            UserNotProvenError: the statement of the user is not valid.
            PermissionDeniedError: the role of the process may not call the method.
        """
        caller.set(identity)
        current_actor.set(str(identity))
        requires_proof.set(identity.role is Role.AGENTS)
        may_sign.set(self._may_sign)
        checks = RequestChecks(method, peer, identity, self._policy, self._audit)
        try:
            self.check(identity, method)
            current_user.set(await self._read_statement(statement))
            if statement:
                # It may have been revoked meanwhile.
                self.check(identity, method)
        except _REFUSALS as error:
            checks.record_refusal(error)
            raise
        return checks

    async def _read_statement(self, statement: str) -> User | None:
        if not statement:
            return None
        if self.statements is None:
            raise UserNotProvenError("this host has no identity of a mesh to check statements by")
        return self.statements.find(statement) or await self.statements.verify(statement)

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
        if identity.mesh != self._mesh and self._credentials is not None:
            # This process may have joined the mesh since it started, with a root of its own before.
            self._mesh = self._credentials.identity.mesh
        if identity.mesh != self._mesh:
            raise UnauthenticatedError("the caller is of another mesh")
        return identity

    def _parse_uri(self, uri: bytes) -> Identity:
        parse = Identity.parse if self._credentials is None else self._credentials.identify
        return parse(uri.decode())


async def admit_anybody(method: str, _context: grpc.aio.ServicerContext[Any, Any]) -> RequestChecks:
    """Check only the request of a call, for methods that check something else than an identity."""
    return RequestChecks(method)


def check_role(identity: Identity, method: str) -> None:
    """Check that a process may call a method.

    Raises:
        PermissionDeniedError: its role may not.
    """
    service = method.partition("/")[0]
    if identity.role not in _ROLES.get(method, _ROLES.get(service, _MEMBERS)):
        raise PermissionDeniedError(str(identity), f"call {method}")


def _name_objects(request: Message, account: str) -> dict[str, str]:
    """Return what a request names, by the kinds of objects of the audit log."""
    # Not all requests have these fields, and a message may continue a task.
    task_id = getattr(getattr(request, "message", request), "task_id", "")
    return {"account": account, "agent": getattr(request, "agent", ""), "task": task_id}


def _compare_user(peer: Identity, account: str, request: Message) -> None:
    if peer.role not in _WEBHOOKS and sets_webhook(request):
        raise PermissionDeniedError(str(peer), "set a webhook")
    user = current_user.get()
    if user is None:
        if peer.role is not Role.MEMBER:
            raise UserNotProvenError(f"{peer} calls for account {account!r} without a statement")
        return
    if user.account != account:
        action = f"act for account {account!r}: the statement of the call's user names another"
        raise PermissionDeniedError(current_actor.get(), action)
    if user.is_read_only and not changes_nothing(request):
        action = f"change anything for {user.name!r}: these credentials only read"
        raise PermissionDeniedError(current_actor.get(), action)
    name = named_user(request)
    # A child names the user who created its parent. Another one of the account may continue it.
    if name and name != user.name and not is_child(request):
        action = f"act for user {name!r}: the statement of the call's user names another"
        raise PermissionDeniedError(current_actor.get(), action)
