"""Tokens: JWTs of an issuer that the operator trusts (RFC 7519; hardened as RFC 8725 advises)."""

from typing import Any

from trunkline_bridge.inbound.access.api_keys import is_account, is_name
from trunkline_bridge.inbound.access.key_sets import KeySet
from trunkline_bridge.inbound.caller import Identity
from trunkline_bridge.settings import TokenSettings

_LENGTH = 8192


class TokenError(Exception):
    """A token is not good; the text says why, and nothing of what is in it."""


class Tokens:
    """Says who a token's bearer is."""

    def __init__(self, settings: TokenSettings, keys: KeySet | None = None) -> None:
        self._settings = settings
        self._keys = keys or KeySet(settings.keys)

    async def identify(self, token: str) -> Identity:
        """Return who it is.

        Raises:
            TokenError: the token isn't good.
            PeerUnavailableError: the issuer's keys can't be had, so nobody can say.
        """
        claims = await self._claims(token)
        account = claims.get(self._settings.account_claim)
        name = claims.get("sub", account)
        if not is_account(account) or not is_name(name):
            claim = self._settings.account_claim
            raise TokenError(f"the token's claims (sub, {claim}) name no account and caller")
        return Identity(account, name, is_authenticated=True)

    async def _claims(self, token: str) -> dict[str, Any]:
        # Loaded by those who use tokens: it brings cryptography along.
        import jwt

        if len(token) > _LENGTH:
            raise TokenError("the token is too long")
        try:
            header = jwt.get_unverified_header(token)
            algorithm, key_id = header.get("alg"), header.get("kid")
            if algorithm not in self._settings.algorithms:
                raise TokenError("the token is signed by an algorithm that isn't allowed here")
            key = await self._keys.find(key_id, algorithm)
            if key is None:
                raise TokenError("the token is signed by a key that isn't known here")
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=list(self._settings.algorithms),
                audience=self._settings.audience,
                issuer=self._settings.issuer,
                leeway=self._settings.leeway_s,
                options={"require": ["exp", "iss", "aud"]},
            )
        except jwt.ExpiredSignatureError as error:
            raise TokenError("the token has expired") from error
        except (jwt.ImmatureSignatureError, jwt.InvalidIssuedAtError) as error:
            raise TokenError("the token is not valid yet") from error
        except (jwt.InvalidAudienceError, jwt.InvalidIssuerError) as error:
            raise TokenError("the token is not for here: its issuer or audience differ") from error
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            raise TokenError("the token is not valid") from error
        return claims
