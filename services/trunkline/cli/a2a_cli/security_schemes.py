"""Credentials of a call, attached as the security schemes of the agent's card declare."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from trunkline.a2a_wire.json_values import Json
from trunkline.cli.a2a_cli.failures import CommandError, LocalCode
from trunkline.cli.a2a_cli.options import StandardOptions

SchemeKind = Literal["api key", "bearer", "oauth2", "openid", "mtls", "other"]

_V1_MEMBERS: Final[Mapping[str, SchemeKind]] = {
    "apiKeySecurityScheme": "api key",
    "oauth2SecurityScheme": "oauth2",
    "openIdConnectSecurityScheme": "openid",
    "mtlsSecurityScheme": "mtls",
}
# The `type` of v0.3's schemes, which have no member for it.
_V0_3_TYPES: Final[Mapping[str, SchemeKind]] = {
    "apiKey": "api key",
    "oauth2": "oauth2",
    "openIdConnect": "openid",
    "mutualTLS": "mtls",
}
_NOT_SENT: Final = "warning: the agent's card declares no scheme for {0}, so yours is not sent"
# The schemes of tokens that travel as `Authorization: Bearer`.
_TOKEN_KINDS: Final = frozenset({"bearer", "oauth2", "openid"})


class DeclaredScheme(NamedTuple):
    """A security scheme of a card."""

    name: str
    kind: SchemeKind
    content: Json
    """Its members."""

    @property
    def takes_token(self) -> bool:
        """A bearer token satisfies it."""
        return self.kind in _TOKEN_KINDS

    @property
    def location(self) -> str:
        """The place of an API key: header, query or cookie."""
        return str(self.content.get("location") or self.content.get("in") or "header")

    @property
    def parameter(self) -> str:
        """The name of an API key's header, parameter or cookie."""
        return str(self.content.get("name", ""))


def parse_schemes(card: Json) -> list[DeclaredScheme]:
    """Return the schemes of a card."""
    declared = card.get("securitySchemes")
    if not isinstance(declared, dict):
        return []
    schemes = []
    for name, scheme in declared.items():
        if isinstance(scheme, dict):
            schemes.append(_parse_scheme(name, scheme))
    return schemes


def _parse_scheme(name: str, scheme: Json) -> DeclaredScheme:
    for member, kind in _V1_MEMBERS.items():
        if isinstance(scheme.get(member), dict):
            return DeclaredScheme(name, kind, scheme[member])
    if (v0_3_kind := _V0_3_TYPES.get(str(scheme.get("type")))) is not None:
        return DeclaredScheme(name, v0_3_kind, scheme)
    http = scheme if scheme.get("type") == "http" else scheme.get("httpAuthSecurityScheme")
    if isinstance(http, dict):
        is_bearer = str(http.get("scheme", "")).lower() == "bearer"
        return DeclaredScheme(name, "bearer" if is_bearer else "other", http)
    return DeclaredScheme(name, "other", scheme)


@dataclass(slots=True)
class Credentials:
    """Credentials as they travel with each request to the agent."""

    headers: dict[str, str] = field(default_factory=dict, repr=False)
    query: dict[str, str] = field(default_factory=dict, repr=False)
    warnings: list[str] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        """There are none."""
        return not (self.headers or self.query)


def build_credentials(
    options: StandardOptions, schemes: list[DeclaredScheme], *, stored_token: str = ""
) -> Credentials:
    """Return the credentials of the flags, else the stored token, by the card's schemes.

    A credential that the card declares no scheme for is not sent, and there is a warning.
    """
    credentials = Credentials()
    token = options.bearer
    accepts_token = any(scheme.takes_token for scheme in schemes)
    if accepts_token and (token or stored_token):
        credentials.headers["authorization"] = f"Bearer {token or stored_token}"
    elif token:
        credentials.warnings.append(_NOT_SENT.format("a bearer token"))
    if key := options.api_key:
        scheme = next((scheme for scheme in schemes if scheme.kind == "api key"), None)
        if scheme is None or not scheme.parameter:
            credentials.warnings.append(_NOT_SENT.format("an API key"))
            return credentials
        match scheme.location:
            case "query":
                credentials.query[scheme.parameter] = key
            case "cookie":
                credentials.headers["cookie"] = f"{scheme.parameter}={key}"
            case _:
                credentials.headers[scheme.parameter.lower()] = key
    return credentials


def check_declared(schemes: list[DeclaredScheme], credentials: Credentials, agent: str) -> None:
    """Check that there is a credential for the agent's extended card. `agent` is for the hint.

    Raises:
        CommandError: no credential has a scheme that the card declares.
    """
    if credentials.is_empty:
        raise CommandError(
            LocalCode.CREDENTIALS_MISSING,
            "the extended card needs credentials by a scheme of the public card",
            describe_login(schemes, agent) or None,
        )


def describe_login(schemes: list[DeclaredScheme], agent: str) -> str:
    """Return a hint that says how to authenticate at an agent; empty if its card says nothing."""
    hints = []
    for scheme in schemes:
        match scheme.kind:
            case "api key":
                place = f"{scheme.location} {scheme.parameter}"
                hints.append(f"set A2ACLI_API_KEY (sent as {place})")
            case "oauth2" | "openid":
                hints.append(f"run `trunkline a2a auth login --agent-card {agent}`")
            case "bearer":
                hints.append("set A2ACLI_BEARER")
            case "mtls":
                hints.append("give --client-cert and --client-key")
            case _:
                hints.append(f"see scheme {scheme.name!r} of the card")
    return ", or ".join(dict.fromkeys(hints))
