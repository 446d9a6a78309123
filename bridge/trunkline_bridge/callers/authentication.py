"""Authenticates callers by API key, token or certificate, or admits anonymous ones."""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import urlsplit

from trunkline.a2a_wire.errors import UNAUTHENTICATED, WireError
from trunkline.a2a_wire.key_sets import SIGNATURE_ALGORITHMS
from trunkline.audit import ActorKind
from trunkline.errors import ConfigurationError
from trunkline.settings import HostPort, Settings, TlsSettings
from trunkline.v1 import security_scheme_pb2
from trunkline_bridge.callers.api_keys import (
    ApiKeyCredential,
    ApiKeyFile,
    is_account_name,
    is_caller_name,
)
from trunkline_bridge.callers.caller import (
    AnonymousAuthenticator,
    Authenticator,
    CallerIdentity,
    SecurityRequirements,
    ServiceParameters,
)
from trunkline_bridge.callers.credential_throttle import CredentialThrottle
from trunkline_bridge.callers.jwt_tokens import InvalidTokenError, TokenVerifier
from trunkline_bridge.callers.permissions import CHALLENGE

logger = logging.getLogger(__name__)

KEY_HEADER = "X-API-Key"

_TOKEN_DOTS = 2
_MTLS = "mtls"


def build_authenticator(settings: Settings) -> Authenticator:
    """Return the authenticator that the settings describe.

    Raises:
        ConfigurationError: a setting or the file of keys is wrong.
    """
    tls = settings.tls
    if not (settings.api_keys_file or settings.jwt_keys or tls.client_roots):
        return AnonymousAuthenticator()
    if settings.jwt_keys:
        _validate_token_settings(settings)
    return CredentialAuthenticator(
        ApiKeyFile(settings.api_keys_file) if settings.api_keys_file else None,
        TokenVerifier(settings) if settings.jwt_keys else None,
        tls,
        CredentialThrottle(settings.failed_credentials_per_minute),
        admits_anonymous=settings.anonymous,
    )


class RefusedCredentialError(Exception):
    """A credential is wrong."""

    def __init__(self, problem: str, *, name: str = "") -> None:
        """`name` is the key name or the account of a genuine credential."""
        super().__init__(problem)
        self.problem = problem
        self.name = name


class CredentialAuthenticator:
    """Identifies callers by an API key, in X-API-Key or as a bearer token, or by a JWT.

    The client's certificate counts if the request has neither.

    Wrong credentials are always rejected, even if other credentials of the request are valid or
    anonymous callers are admitted.
    """

    def __init__(
        self,
        keys: ApiKeyFile | None,
        tokens: TokenVerifier | None,
        tls: TlsSettings,
        throttle: CredentialThrottle,
        *,
        admits_anonymous: bool,
    ) -> None:
        self._keys = keys
        self._tokens = tokens
        self._tls = tls
        self._throttle = throttle
        self._admits_anonymous = admits_anonymous
        schemes = dict(self._schemes())
        requirements = [self._requirement(name) for name in schemes]
        if admits_anonymous:
            requirements.append(security_scheme_pb2.SecurityRequirement())
        self._security = SecurityRequirements(schemes, requirements, CHALLENGE)

    @property
    def security(self) -> SecurityRequirements:
        """The authentication that cards declare."""
        return self._security

    def has_credentials(self, parameters: ServiceParameters) -> bool:
        """Return True if a request has an API key, a token or a certificate, valid or not."""
        return _read_credentials(parameters) != (None, None) or self._has_certificate(parameters)

    async def authenticate(self, parameters: ServiceParameters) -> CallerIdentity:
        """Return the identity of a caller. An API key and a token must belong to one account.

        Raises:
            WireError: credentials are missing or wrong (UNAUTHENTICATED), or the client has sent
                wrong ones too often (RESOURCE_EXHAUSTED).
            PeerUnavailableError: the keys that verify tokens cannot be fetched.
        """
        key, authorization = _read_credentials(parameters)
        if key is None and authorization is None:
            return self._identify_without_credential(parameters)
        address = parameters.peer.address
        credential = f"{key}\n{authorization}"
        self._throttle.check(address, credential)
        try:
            identity = await self._identify(key, authorization)
        except RefusedCredentialError as error:
            logger.info("access.refused", extra={"problem": error.problem})
            self._throttle.record_failure(address, credential, name=error.name)
            challenge = f'{CHALLENGE}, error="invalid_token"'
            raise WireError(UNAUTHENTICATED, error.problem, challenge=challenge) from None
        self._throttle.record_success(address, credential)
        return identity

    def _identify_without_credential(self, parameters: ServiceParameters) -> CallerIdentity:
        if self._has_certificate(parameters):
            name = parameters.peer.certificate_name
            if is_caller_name(name) and is_account_name(self._tls.account_prefix + name):
                return CallerIdentity(
                    self._tls.account_prefix + name,
                    name,
                    is_authenticated=True,
                    kind=ActorKind.CERTIFICATE,
                )
            text = "the name in the client certificate can't be that of a caller"
        elif self._admits_anonymous:
            return CallerIdentity()
        else:
            text = f"credentials are required: send {self._describe_ways()}"
        logger.info("access.refused", extra={"problem": text})
        raise WireError(UNAUTHENTICATED, text, challenge=CHALLENGE)

    async def _identify(self, key: str | None, authorization: str | None) -> CallerIdentity:
        by_key = None
        if key is not None:
            by_key = self._find_identity(key)
            if by_key is None:
                raise RefusedCredentialError("the API key is unknown")
        if authorization is None:
            return by_key or CallerIdentity()
        by_bearer = await self._identify_authorization(authorization)
        if by_key and by_key.account != by_bearer.account:
            problem = f"{KEY_HEADER} and Authorization belong to two accounts; send one of them"
            raise RefusedCredentialError(problem, name=by_key.account)
        return by_key or by_bearer

    async def _identify_authorization(self, authorization: str) -> CallerIdentity:
        scheme, _, credential = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise RefusedCredentialError("the scheme of Authorization must be Bearer")
        return await self._identify_bearer(credential.strip())

    async def _identify_bearer(self, credential: str) -> CallerIdentity:
        if identity := self._find_identity(credential):
            return identity
        if self._tokens is None or credential.count(".") != _TOKEN_DOTS:
            raise RefusedCredentialError("the API key or token is unknown")
        try:
            return await self._tokens.verify(credential)
        except InvalidTokenError as error:
            raise RefusedCredentialError(str(error), name=error.account) from error

    def _find_identity(self, key: str) -> CallerIdentity | None:
        if self._keys is None or (entry := self._keys.find(key)) is None:
            return None
        if entry.is_expired(datetime.now(UTC)):
            raise RefusedCredentialError("the API key has expired", name=entry.name)
        return CallerIdentity(
            entry.account,
            entry.name,
            is_authenticated=True,
            kind=ActorKind.API_KEY,
            key_id=entry.key_id,
            permissions=entry.permissions,
            credential=ApiKeyCredential(self._keys, entry),
        )

    def _has_certificate(self, parameters: ServiceParameters) -> bool:
        return self._tls.client_roots is not None and parameters.peer.certificate_name != ""

    def _describe_ways(self) -> str:
        ways = []
        if self._keys:
            ways.append(f"an API key in {KEY_HEADER}")
        if self._keys or self._tokens:
            ways.append("a bearer token in Authorization")
        if self._tls.client_roots:
            ways.append("a client certificate with a URI, DNS or common name")
        return ", or ".join(ways)

    def _requirement(self, scheme: str) -> security_scheme_pb2.SecurityRequirement:
        names = {scheme, _MTLS} if self._tls.require_client_certificate else {scheme}
        return security_scheme_pb2.SecurityRequirement(
            schemes={name: security_scheme_pb2.StringList() for name in sorted(names)}
        )

    def _schemes(self) -> Iterator[tuple[str, security_scheme_pb2.SecurityScheme]]:
        if self._keys is not None:
            yield (
                "apiKey",
                security_scheme_pb2.SecurityScheme(
                    api_key_security_scheme=security_scheme_pb2.APIKeySecurityScheme(
                        location="header", name=KEY_HEADER
                    )
                ),
            )
        if self._keys is not None or self._tokens is not None:
            yield (
                "bearer",
                security_scheme_pb2.SecurityScheme(
                    http_auth_security_scheme=security_scheme_pb2.HTTPAuthSecurityScheme(
                        scheme="Bearer", bearer_format="JWT" if self._tokens else ""
                    )
                ),
            )
        if self._tls.client_roots is not None:
            yield (
                _MTLS,
                security_scheme_pb2.SecurityScheme(
                    mtls_security_scheme=security_scheme_pb2.MutualTlsSecurityScheme(
                        description="A client certificate of a root that this endpoint trusts"
                    )
                ),
            )


def _read_credentials(parameters: ServiceParameters) -> tuple[str | None, str | None]:
    """Return the values of X-API-Key and Authorization, with None for a missing header."""
    return parameters.get(b"x-api-key"), parameters.get(b"authorization")


def _validate_token_settings(settings: Settings) -> None:
    for name in ("jwt_issuer", "jwt_audience"):
        if not getattr(settings, name):
            problem = "is required: tokens are accepted from one issuer for one audience"
            raise ConfigurationError(name, problem)
    source = urlsplit(settings.jwt_keys)
    if source.scheme == "http" and not HostPort(source.hostname or "", 0).is_loopback:
        problem = "keys that are fetched without TLS can be forged; use https, or a file"
        raise ConfigurationError("jwt_keys", problem)
    if not settings.jwt_algorithms or not SIGNATURE_ALGORITHMS.issuperset(settings.jwt_algorithms):
        problem = f"choose among {', '.join(sorted(SIGNATURE_ALGORITHMS))}"
        raise ConfigurationError("jwt_algorithms", problem)
