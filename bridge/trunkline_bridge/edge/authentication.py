"""Authenticates callers by API key or token, or admits anonymous ones."""

import logging
from collections.abc import Iterator
from typing import NoReturn
from urllib.parse import urlsplit

from trunkline.audit import ActorKind
from trunkline.errors import ConfigurationError
from trunkline.settings import HostPort
from trunkline.v1 import security_scheme_pb2
from trunkline_bridge.edge.api_keys import ApiKeyFile
from trunkline_bridge.edge.caller import (
    AnonymousAuthenticator,
    Authenticator,
    Identity,
    SecurityRequirements,
    ServiceParameters,
)
from trunkline_bridge.edge.jwt_tokens import SIGNATURE_ALGORITHMS, InvalidTokenError, TokenVerifier
from trunkline_bridge.errors import UNAUTHENTICATED, WireError
from trunkline_bridge.settings import BridgeSettings, TokenSettings

logger = logging.getLogger(__name__)

KEY_HEADER = "X-API-Key"

_CHALLENGE = 'Bearer realm="trunkline"'
_TOKEN_DOTS = 2


def build_authenticator(settings: BridgeSettings) -> Authenticator:
    """Return the authenticator that the settings describe.

    Raises:
        ConfigurationError: a setting or the file of keys is wrong.
    """
    if settings.api_keys_file is None and settings.tokens is None:
        return AnonymousAuthenticator()
    if settings.tokens is not None:
        _validate_token_settings(settings.tokens)
    return CredentialAuthenticator(
        ApiKeyFile(settings.api_keys_file) if settings.api_keys_file else None,
        TokenVerifier(settings.tokens) if settings.tokens else None,
        admits_anonymous=settings.anonymous,
    )


class CredentialAuthenticator:
    """Identifies callers by an API key, in X-API-Key or as a bearer token, or by a JWT.

    Wrong credentials are always rejected, even if others in the request are valid or anonymous
    callers are admitted.
    """

    def __init__(
        self, keys: ApiKeyFile | None, tokens: TokenVerifier | None, *, admits_anonymous: bool
    ) -> None:
        self._keys = keys
        self._tokens = tokens
        self._admits_anonymous = admits_anonymous
        schemes = dict(self._schemes())
        requirements = [
            security_scheme_pb2.SecurityRequirement(
                schemes={name: security_scheme_pb2.StringList()}
            )
            for name in schemes
        ]
        if admits_anonymous:
            requirements.append(security_scheme_pb2.SecurityRequirement())
        self._security = SecurityRequirements(schemes, requirements, _CHALLENGE)

    @property
    def security(self) -> SecurityRequirements:
        """The authentication that cards declare."""
        return self._security

    def has_credentials(self, parameters: ServiceParameters) -> bool:
        """Return True if a request has an API key or a token, valid or not."""
        return _read_credentials(parameters) != (None, None)

    async def authenticate(self, parameters: ServiceParameters) -> Identity:
        """Return the identity of a caller. Two credentials must belong to one account.

        Raises:
            WireError: credentials are missing or wrong (UNAUTHENTICATED).
            PeerUnavailableError: the keys that verify tokens cannot be fetched.
        """
        key, authorization = _read_credentials(parameters)
        key_identity = self._identify_api_key(key) if key is not None else None
        bearer_identity = (
            await self._identify_authorization(authorization) if authorization is not None else None
        )
        if key_identity and bearer_identity and key_identity.account != bearer_identity.account:
            _reject(f"{KEY_HEADER} and Authorization belong to two accounts; send one of them")
        identity = key_identity or bearer_identity
        if identity is None and not self._admits_anonymous:
            ways = f"an API key in {KEY_HEADER}, or a" if self._keys else "a"
            text = f"credentials are required: send {ways} bearer token in Authorization"
            _reject(text, challenge=_CHALLENGE)
        return identity or Identity()

    def _identify_api_key(self, key: str) -> Identity:
        return self._find_identity(key) or _reject("the API key is unknown")

    async def _identify_authorization(self, authorization: str) -> Identity:
        scheme, _, credential = authorization.partition(" ")
        if scheme.lower() != "bearer":
            _reject("the scheme of Authorization must be Bearer")
        return await self._identify_bearer(credential.strip())

    async def _identify_bearer(self, credential: str) -> Identity:
        if identity := self._find_identity(credential):
            return identity
        if self._tokens is None or credential.count(".") != _TOKEN_DOTS:
            _reject("the bearer token is unknown")
        try:
            return await self._tokens.verify(credential)
        except InvalidTokenError as error:
            _reject(str(error))

    def _find_identity(self, key: str) -> Identity | None:
        entry = self._keys.find(key) if self._keys else None
        if entry is None:
            return None
        return Identity(
            entry.account,
            entry.name,
            is_authenticated=True,
            kind=ActorKind.API_KEY,
            key_id=entry.key_id,
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
        yield (
            "bearer",
            security_scheme_pb2.SecurityScheme(
                http_auth_security_scheme=security_scheme_pb2.HTTPAuthSecurityScheme(
                    scheme="Bearer", bearer_format="JWT" if self._tokens else ""
                )
            ),
        )


def _read_credentials(parameters: ServiceParameters) -> tuple[str | None, str | None]:
    """Return the values of X-API-Key and Authorization; None: the request has none."""
    return parameters.get(b"x-api-key"), parameters.get(b"authorization")


def _validate_token_settings(settings: TokenSettings) -> None:
    for name in ("issuer", "audience"):
        if not getattr(settings, name):
            problem = "is required: tokens are accepted from one issuer for one audience"
            raise ConfigurationError(f"jwt_{name}", problem)
    source = urlsplit(settings.keys)
    if source.scheme == "http" and not HostPort(source.hostname or "", 0).is_loopback:
        problem = "keys that are fetched without TLS can be forged; use https, or a file"
        raise ConfigurationError("jwt_keys", problem)
    if not settings.algorithms or not SIGNATURE_ALGORITHMS.issuperset(settings.algorithms):
        problem = f"choose among {', '.join(sorted(SIGNATURE_ALGORITHMS))}"
        raise ConfigurationError("jwt_algorithms", problem)


def _reject(text: str, *, challenge: str = f'{_CHALLENGE}, error="invalid_token"') -> NoReturn:
    logger.info("access.refused", extra={"problem": text})
    raise WireError(UNAUTHENTICATED, text, challenge=challenge)
