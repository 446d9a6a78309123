"""Who calls, which agent, in which version, and what else a request says outside its parameters."""

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

from trunkline.identity import ANONYMOUS_ACCOUNT
from trunkline.task_states import TURN_END
from trunkline.v1 import security_scheme_pb2, task_pb2
from trunkline_bridge.bindings import request_parser as params
from trunkline_bridge.errors import invalid_params
from trunkline_bridge.projection.wire_events import V0_1_TURN_END
from trunkline_bridge.protocol import RESUME_EXTENSION, V0_1, V1_0
from trunkline_bridge.settings import BridgeSettings

_TIMEOUT = params.TIMEOUT_HEADER.lower().encode("ascii")
_AGENTS = "/agents/"
_NAME = re.compile(r"[A-Za-z0-9._\-]{1,200}")


class ServiceParameters(Protocol):
    """A2A's service parameters (§3.2.6): headers over HTTP, metadata over gRPC.

    HTTP's have `:scheme` too, as HTTP/2 calls it.
    """

    def get(self, name: bytes) -> str | None:
        """Return a parameter by its name in lower case; several values are one list by commas."""
        ...


@dataclass(frozen=True, slots=True)
class Identity:
    """Who a caller is."""

    account: str = ANONYMOUS_ACCOUNT
    """Whose tasks they see."""
    name: str = ANONYMOUS_ACCOUNT
    """The caller within the account; submissions are one caller's."""
    is_authenticated: bool = False


@dataclass(frozen=True, slots=True)
class SecurityRequirements:
    """How callers say who they are, as cards declare it; nothing when nobody is asked."""

    schemes: Mapping[str, security_scheme_pb2.SecurityScheme] = field(default_factory=dict)
    requirements: Sequence[security_scheme_pb2.SecurityRequirement] = ()
    """Alternatives; an empty one lets strangers in."""
    challenge: str = ""
    """What `WWW-Authenticate` says to those who have not (RFC 9110, 11.6.1)."""

    @property
    def is_anonymous_only(self) -> bool:
        """Whether there is no way to say it."""
        return not self.schemes


class Authenticator(Protocol):
    """Says who a caller is by the credentials that come with a request."""

    @property
    def security(self) -> SecurityRequirements:
        """What cards say of it."""
        ...

    async def authenticate(self, parameters: ServiceParameters) -> Identity:
        """Return who it is.

        Raises:
            WireError: the credentials are missing though needed, or wrong (UNAUTHENTICATED).
        """
        ...


_ANONYMOUS_IDENTITY = Identity()


class AnonymousAuthenticator:
    """Everybody is anonymous."""

    security = SecurityRequirements()

    async def authenticate(self, _parameters: ServiceParameters) -> Identity:
        """Return nobody in particular."""
        return _ANONYMOUS_IDENTITY


class Caller(NamedTuple):
    """What a binding knows of a request beside its parameters. Each call makes one: it is cheap."""

    agent: str
    version: str = V1_0
    """Of A2A, as major and minor: what the caller speaks."""
    extensions: frozenset[str] = frozenset()
    deadline: datetime | None = None
    last_event_id: str | None = None
    account: str = ANONYMOUS_ACCOUNT
    name: str = ANONYMOUS_ACCOUNT
    is_authenticated: bool = False
    origin: str = ""
    """Scheme and host by which it found us, as it says; over gRPC it doesn't."""
    user_agent: str = ""

    @property
    def is_older(self) -> bool:
        """Whether it speaks an A2A before 1.0, whose streams end with the turn."""
        return self.version != V1_0

    @property
    def turn_ends(self) -> Set[task_pb2.TaskState.ValueType]:
        """The states that end a turn, as its A2A has it."""
        return V0_1_TURN_END if self.version == V0_1 else TURN_END


class CallerFactory:
    """Makes a Caller of a request's service parameters, the same in every binding."""

    def __init__(self, access: Authenticator, settings: BridgeSettings) -> None:
        self._access = access
        self._settings = settings

    async def authenticate(self, parameters: ServiceParameters) -> Identity:
        """Return who calls, before anything else is looked at. WireError: UNAUTHENTICATED."""
        return await self._access.authenticate(parameters)

    def build_caller(
        self, identity: Identity, parameters: ServiceParameters, *, agent: str, version: str
    ) -> Caller:
        """Return the caller. WireError: a parameter is wrong."""
        return Caller(
            agent=agent or self._settings.default_agent,
            version=version,
            extensions=parse_extensions(parameters),
            deadline=params.parse_deadline(parameters.get(_TIMEOUT)),
            last_event_id=parameters.get(b"last-event-id"),
            account=identity.account,
            name=identity.name,
            is_authenticated=identity.is_authenticated,
            origin=request_origin(parameters),
            user_agent=parameters.get(b"user-agent") or "",
        )


def request_origin(parameters: ServiceParameters) -> str:
    """Return the scheme and host that a request names, unchecked; empty over gRPC."""
    scheme = parameters.get(b":scheme")
    return f"{scheme}://{parameters.get(b'host') or ''}" if scheme else ""


def agent_in_path(path: str) -> str | None:
    """Return the agent whose address a path is: empty for the default one's, None for no agent's.

    `/agents/NAME` and `/`; a slash more at the end changes nothing.
    """
    if path == "/":
        return ""
    if not path.startswith(_AGENTS):
        return None
    name = path[len(_AGENTS) :].removesuffix("/")
    return name if name and "/" not in name else None


def resolve_agent(path_agent: str, tenants: Iterable[str]) -> str:
    """Return the agent that a request is for; a tenant of A2A is an agent's name here.

    `path_agent` is empty at the default agent's address, where a tenant may name another.

    Raises:
        WireError: path and tenants contradict each other.
    """
    agent = path_agent
    for tenant in tenants:
        if not tenant:
            continue
        if _NAME.fullmatch(tenant) is None or agent not in ("", tenant):
            shown = tenant[:100]
            problem = f"{shown!r} is not the agent that the rest of the request names"
            raise invalid_params(("tenant", problem))
        agent = tenant
    return agent


def parse_extensions(parameters: ServiceParameters) -> frozenset[str]:
    """Return the URIs of the extensions that a request activates, by their new or old header."""
    fields = (parameters.get(b"a2a-extensions"), parameters.get(b"x-a2a-extensions"))
    if fields == (None, None):
        return frozenset()
    uris = ",".join(field for field in fields if field).split(",")
    return frozenset(uri.strip() for uri in uris if uri.strip())


def extension_headers(caller: Caller, parameters: ServiceParameters) -> dict[str, str]:
    """Return which extensions are active for a request, under the header that asked for them."""
    if RESUME_EXTENSION not in caller.extensions:
        return {}
    is_older = parameters.get(b"a2a-extensions") is None
    return {"x-a2a-extensions" if is_older else "a2a-extensions": RESUME_EXTENSION}
