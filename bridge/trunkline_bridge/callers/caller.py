"""Callers: their identity, and the service parameters of their request."""

import base64
import math
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

from google.protobuf.message import DecodeError

from trunkline.a2a_wire.errors import WireError, invalid_params
from trunkline.a2a_wire.protocol import (
    EXTENSIONS_HEADER,
    LAST_EVENT_ID_HEADER,
    LEGACY_EXTENSIONS_HEADER,
    OUR_EXTENSIONS,
    TIMEOUT_HEADER,
    TREE_HEADER,
    V0_1,
    V1_0,
)
from trunkline.a2a_wire.wire_events import V0_1_TURN_END
from trunkline.core.accounts import ANONYMOUS_ACCOUNT
from trunkline.core.settings import Settings
from trunkline.core.task_states import TURN_END
from trunkline.core.users import User, current_user
from trunkline.observe.audit import Action, Actor, ActorKind, AuditLog, outcome_of
from trunkline.v1 import security_scheme_pb2, task_pb2, tree_pb2
from trunkline_bridge.callers.permissions import UNRESTRICTED, Permissions
from trunkline_bridge.callers.request_rates import RequestRates
from trunkline_bridge.http.in_flight import Peer

_TIMEOUT = TIMEOUT_HEADER.lower().encode()
_TREE = TREE_HEADER.lower().encode()
_MAX_TREE_CHARS = 8192
_EXTENSIONS = EXTENSIONS_HEADER.encode()
_LEGACY_EXTENSIONS = LEGACY_EXTENSIONS_HEADER.encode()
_LAST_EVENT_ID = LAST_EVENT_ID_HEADER.encode()
# Ten years: no datetime overflows by it.
_MAX_TIMEOUT_S = 10 * 365 * 24 * 3600
_NAME = re.compile(r"[A-Za-z0-9._\-]{1,200}")


class ServiceParameters(Protocol):
    """A2A's service parameters (§3.2.6): headers over HTTP, metadata over gRPC.

    Over HTTP they include `:scheme`, as HTTP/2 does.
    """

    @property
    def peer(self) -> Peer:
        """The client that sent them."""
        ...

    def get(self, name: bytes) -> str | None:
        """Return a parameter by its name in lower case. Repeated values are joined by commas."""
        ...


class Credential(Protocol):
    """A credential that may expire or be removed. Equal ones are refused at the same time."""

    def __hash__(self) -> int:
        """Return the hash, because streams are grouped by their credential."""
        ...

    def problem(self) -> str:
        """Return why the credential is no longer accepted, or an empty text if it is accepted."""
        ...


@dataclass(frozen=True, slots=True)
class CallerIdentity:
    """The identity of a caller."""

    account: str = ANONYMOUS_ACCOUNT
    """The account, which owns the tasks of all its callers."""
    name: str = ANONYMOUS_ACCOUNT
    """The name of the caller within the account. Message ids are unique per caller."""
    is_authenticated: bool = False
    kind: ActorKind = ActorKind.ANONYMOUS
    """The way in which the caller was identified."""
    key_id: str = ""
    """Identifies the credential in the audit log; no secret."""
    permissions: Permissions = UNRESTRICTED
    credential: Credential | None = None
    """None if the caller has no credential, or it can't be checked again."""


@dataclass(frozen=True, slots=True)
class SecurityRequirements:
    """The authentication that agent cards declare; empty if all callers are anonymous."""

    schemes: Mapping[str, security_scheme_pb2.SecurityScheme] = field(default_factory=dict)
    requirements: Sequence[security_scheme_pb2.SecurityRequirement] = ()
    """Alternatives: a caller must satisfy one. An empty one admits anonymous callers."""
    challenge: str = ""
    """The `WWW-Authenticate` header for missing credentials (RFC 9110, 11.6.1)."""

    @property
    def is_anonymous_only(self) -> bool:
        """True if there is no way to authenticate."""
        return not self.schemes


class Authenticator(Protocol):
    """Identifies callers by the credentials in a request."""

    @property
    def security(self) -> SecurityRequirements:
        """The authentication that cards declare."""
        ...

    def has_credentials(self, parameters: ServiceParameters) -> bool:
        """Return True if a request has credentials, valid or not."""
        ...

    async def authenticate(self, parameters: ServiceParameters) -> CallerIdentity:
        """Return the identity of a caller.

        Raises:
            WireError: credentials are wrong, or are missing although required (UNAUTHENTICATED),
                or the client has sent wrong ones too often (RESOURCE_EXHAUSTED).
            PeerUnavailableError: the credentials cannot be checked now.
        """
        ...


_ANONYMOUS_IDENTITY = CallerIdentity()


class AnonymousAuthenticator:
    """Treats every caller as anonymous."""

    security = SecurityRequirements()

    def has_credentials(self, _parameters: ServiceParameters) -> bool:
        """Return False, because it reads no credentials."""
        return False

    async def authenticate(self, _parameters: ServiceParameters) -> CallerIdentity:
        """Return the anonymous identity."""
        return _ANONYMOUS_IDENTITY


class Caller(NamedTuple):
    """The caller of a request, with the addressed agent and the service parameters.

    A tuple, because each request creates one.
    """

    agent: str
    """The name of the addressed agent."""
    version: str = V1_0
    """The protocol version of the request, as major and minor."""
    extensions: frozenset[str] = frozenset()
    """The URIs of the extensions that the request activates."""
    deadline: datetime | None = None
    """The deadline of a task that the request creates."""
    last_event_id: str | None = None
    """The event after which the request resumes a stream."""
    account: str = ANONYMOUS_ACCOUNT
    name: str = ANONYMOUS_ACCOUNT
    is_authenticated: bool = False
    origin: str = ""
    """Scheme and host of the request's URL; empty over gRPC and without a Host header."""
    user_agent: str = ""
    kind: ActorKind = ActorKind.ANONYMOUS
    key_id: str = ""
    address: str = ""
    """The address of the connection's other end; empty if it is unknown."""
    permissions: Permissions = UNRESTRICTED
    credential: Credential | None = None
    """The credential that ends the caller's streams when it is no longer accepted."""
    tree: tree_pb2.TreePosition | None = None
    """The place of a new task in a tree of calls that began elsewhere."""

    @property
    def is_older(self) -> bool:
        """True for versions before 1.0, in which streams end with the turn."""
        return self.version != V1_0

    @property
    def turn_ends(self) -> Set[task_pb2.TaskState.ValueType]:
        """The states that end a turn in the caller's version."""
        return V0_1_TURN_END if self.version == V0_1 else TURN_END


class CallerFactory:
    """Builds the Caller of a request from its service parameters, for all bindings."""

    def __init__(
        self,
        authenticator: Authenticator,
        settings: Settings,
        rates: RequestRates | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        """With rates, `authenticate` also counts the request for its account.

        With an audit log, `authenticate` records refused credentials.
        """
        self._authenticator = authenticator
        self._audit = audit
        self._rates = rates if rates is not None and rates.limits_requests else None
        self.has_credentials = authenticator.has_credentials
        self._settings = settings

    async def authenticate(self, parameters: ServiceParameters) -> CallerIdentity:
        """Return the identity of a caller. The rest of the asyncio task works for it.

        Raises the errors of the authenticator, and WireError if the account has too many requests.
        """
        try:
            identity = await self._authenticator.authenticate(parameters)
        except WireError as error:
            self._record_refusal(error, parameters.peer.address)
            raise
        if self._rates is not None:
            self._rates.count_request(identity.account)
        is_read_only = identity.permissions.is_read_only
        current_user.set(User(identity.account, identity.name, is_read_only))
        return identity

    def _record_refusal(self, error: WireError, address: str) -> None:
        if self._audit is not None:
            actor = Actor(kind=ActorKind.ANONYMOUS, address=address)
            outcome = outcome_of(error.kind.reason)
            self._audit.record_refusal(Action.CALLER_AUTHENTICATE, actor, outcome=outcome)

    def build_caller(
        self, identity: CallerIdentity, parameters: ServiceParameters, *, agent: str, version: str
    ) -> Caller:
        """Return the caller; an empty `agent` is the default one.

        Raises:
            WireError: a service parameter is invalid.
        """
        return Caller(
            agent=agent or self._settings.default_agent,
            version=version,
            extensions=parse_extensions(parameters),
            deadline=parse_deadline(parameters.get(_TIMEOUT)),
            last_event_id=parameters.get(_LAST_EVENT_ID),
            account=identity.account,
            name=identity.name,
            is_authenticated=identity.is_authenticated,
            origin=request_origin(parameters),
            user_agent=parameters.get(b"user-agent") or "",
            kind=identity.kind,
            key_id=identity.key_id,
            address=parameters.peer.address,
            permissions=identity.permissions,
            credential=identity.credential,
            tree=parse_tree(parameters.get(_TREE)),
        )


def caller_actor(caller: Caller | CallerIdentity, address: str = "") -> Actor:
    """Return the actor of a caller's records."""
    return Actor(
        kind=caller.kind,
        account=caller.account,
        name=caller.name,
        key_id=caller.key_id,
        address=caller.address if isinstance(caller, Caller) else address,
    )


def request_origin(parameters: ServiceParameters) -> str:
    """Return the scheme and host of a request's URL; empty over gRPC and without a Host header.

    `HostGuard` has checked the host.
    """
    scheme, host = parameters.get(b":scheme"), parameters.get(b"host")
    return f"{scheme}://{host}" if scheme and host else ""


def resolve_agent(path_agent: str, tenants: Iterable[str], *, field: str = "tenant") -> str:
    """Return the agent that a request names. An empty text is the default agent.

    A tenant of A2A is the name of an agent. `path_agent` is empty at the default agent's address,
    where a tenant may name any agent. `field` is the name of the tenants in errors.

    Raises:
        WireError: the path and the tenants name different agents, or a tenant is not a valid name.
    """
    agent = path_agent
    for tenant in tenants:
        if not tenant:
            continue
        if _NAME.fullmatch(tenant) is None or agent not in ("", tenant):
            problem = f"{tenant[:100]!r} is not the agent that the rest of the request names"
            raise invalid_params((field, problem))
        agent = tenant
    return agent


def parse_extensions(parameters: ServiceParameters) -> frozenset[str]:
    """Return the URIs of the extensions that a request activates, from the new and old header."""
    headers = (parameters.get(_EXTENSIONS), parameters.get(_LEGACY_EXTENSIONS))
    if headers == (None, None):
        return frozenset()
    uris = ",".join(header for header in headers if header).split(",")
    return frozenset(uri.strip() for uri in uris if uri.strip())


def extension_headers(caller: Caller, parameters: ServiceParameters) -> dict[str, str]:
    """Return the header that lists the active extensions, under the name that the request used."""
    active = [uri for uri in OUR_EXTENSIONS if uri in caller.extensions]
    if not active:
        return {}
    is_older = parameters.get(_EXTENSIONS) is None
    return {LEGACY_EXTENSIONS_HEADER if is_older else EXTENSIONS_HEADER: ", ".join(active)}


def parse_deadline(header: str | None) -> datetime | None:
    """Return the deadline of a `Trunkline-Timeout: SECONDS` header. WireError: it is invalid."""
    if header is None:
        return None
    try:
        timeout_s = float(header)
    except ValueError:
        timeout_s = math.nan
    if not 0 < timeout_s <= _MAX_TIMEOUT_S:
        problem = f"must be a number of seconds above 0, at most {_MAX_TIMEOUT_S} (ten years)"
        raise invalid_params((TIMEOUT_HEADER, problem))
    return datetime.now(UTC) + timedelta(seconds=timeout_s)


def parse_tree(header: str | None) -> tree_pb2.TreePosition | None:
    """Return the position of a `Trunkline-Tree` header. WireError: it is invalid.

    The host of the task checks the chain.
    """
    if header is None:
        return None
    try:
        if len(header) > _MAX_TREE_CHARS:
            raise ValueError
        return tree_pb2.TreePosition.FromString(base64.b64decode(header, b"-_", validate=True))
    except (ValueError, DecodeError):
        problem = f"must be a TreePosition in base64url, of at most {_MAX_TREE_CHARS} characters"
        raise invalid_params((TREE_HEADER, problem)) from None
