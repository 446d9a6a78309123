"""Signatures by Standard Webhooks 1.0.0: HMAC-SHA256 over id, timestamp and body."""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Final

from trunkline.errors import ConfigurationError

PREFIX: Final = "whsec_"
# Limits of the standard.
_MIN_KEY_BYTES: Final = 24
_MAX_KEY_BYTES: Final = 64
_GENERATED_KEY_BYTES: Final = 32
# Errors have this text and never the value, which may be a secret.
_SECRET_FORMAT = (
    f"must be {PREFIX} and the base64 of {_MIN_KEY_BYTES} to {_MAX_KEY_BYTES} random bytes; during "
    "a rotation several are separated by spaces, the new one first"
)


class WebhookSigner:
    """Signs notifications with one secret, or with several during a rotation."""

    def __init__(self, text: str) -> None:
        """Parse the secrets. ConfigurationError: one is invalid; the error does not show it."""
        self._keys = tuple(_parse_key(secret) for secret in text.split())
        if not self._keys:
            raise ConfigurationError("webhook_secret", _SECRET_FORMAT)

    def headers(self, message_id: str, timestamp_s: int, body: bytes) -> Mapping[str, str]:
        """Return the signature header of a notification."""
        signed = f"{message_id}.{timestamp_s}.".encode() + body
        return {"webhook-signature": " ".join(_signature(key, signed) for key in self._keys)}


def generate_secret() -> str:
    """Generate a random secret."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_GENERATED_KEY_BYTES)).decode("ascii")


def _parse_key(text: str) -> bytes:
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not text.startswith(PREFIX) or not _MIN_KEY_BYTES <= len(key) <= _MAX_KEY_BYTES:
        raise ConfigurationError("webhook_secret", _SECRET_FORMAT)
    return key


def _signature(key: bytes, signed: bytes) -> str:
    digest = hmac.new(key, signed, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode("ascii")
