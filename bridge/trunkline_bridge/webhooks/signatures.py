"""Signatures by Standard Webhooks 1.0.0: HMAC-SHA256 over id, timestamp and body."""

import base64
import binascii
import contextlib
import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trunkline.errors import ConfigurationError
from trunkline.private_files import PRIVATE_FOLDER, create_private_folder, read_private_file

PREFIX: Final = "whsec_"
FILE_NAME: Final = "webhook.secret"
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

    def __init__(self, text: str, *, where: str = "webhook_secret") -> None:
        """Parse the secrets. ConfigurationError: one is invalid; the error does not show it."""
        self._keys = tuple(_parse_key(secret, where) for secret in text.split())
        if not self._keys:
            raise ConfigurationError(where, _SECRET_FORMAT)

    def headers(self, message_id: str, timestamp_s: int, body: bytes) -> Mapping[str, str]:
        """Return the signature header of a notification."""
        signed = f"{message_id}.{timestamp_s}.".encode() + body
        return {"webhook-signature": " ".join(_signature(key, signed) for key in self._keys)}


def generate_secret() -> str:
    """Generate a random secret."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_GENERATED_KEY_BYTES)).decode("ascii")


def load_or_create_secret(data_dir: Path) -> str:
    """Return the secret stored in a data directory; create it the first time.

    Raises:
        ConfigurationError: The file can't be read or created.
    """
    secret = load_secret(data_dir)
    if secret:
        return secret
    path = data_dir / PRIVATE_FOLDER / FILE_NAME
    try:
        create_private_folder(path.parent)
        _create_secret_file(path)
    except OSError as error:
        raise _unusable(path, error) from error
    created = load_secret(data_dir)
    if not created:
        raise ConfigurationError(str(path), "is empty; remove it to generate a secret")
    return created


def load_secret(data_dir: Path) -> str:
    """Return the secret in a data directory; empty: there is none.

    Raises:
        ConfigurationError: it is unreadable, or others may read or change it.
    """
    # Earlier versions stored it in the data directory itself.
    for path in (data_dir / PRIVATE_FOLDER / FILE_NAME, data_dir / FILE_NAME):
        try:
            return read_private_file(path).decode("ascii").strip()
        except FileNotFoundError:
            continue
        except (OSError, UnicodeError) as error:
            raise _unusable(path, error) from error
    return ""


def _unusable(path: Path, error: Exception) -> ConfigurationError:
    problem = error.strerror if isinstance(error, OSError) else "it is not text"
    return ConfigurationError(str(path), f"cannot be used: {problem}")


def _create_secret_file(path: Path) -> None:
    # The complete file is linked to its name, because another process may create it meanwhile.
    temporary = path.with_name(f"{FILE_NAME}.{os.getpid()}")
    try:
        temporary.touch(mode=0o600)
        temporary.write_text(generate_secret() + "\n", encoding="ascii")
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(temporary)
    finally:
        temporary.unlink(missing_ok=True)


def _parse_key(text: str, where: str) -> bytes:
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not text.startswith(PREFIX) or not _MIN_KEY_BYTES <= len(key) <= _MAX_KEY_BYTES:
        raise ConfigurationError(where, _SECRET_FORMAT)
    return key


def _signature(key: bytes, signed: bytes) -> str:
    digest = hmac.new(key, signed, hashlib.sha256).digest()
    return "v1," + base64.b64encode(digest).decode("ascii")
