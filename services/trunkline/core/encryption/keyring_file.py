"""The content of a keyring's file: data keys, each encrypted under the configured keys."""

import base64
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final, Self

from trunkline.core.encryption.key_source import KEY_BYTES, EncryptionKey
from trunkline.errors import ConfigurationError

_VERSION: Final = 2
# Files of version 1 also have keys that signed hash chains of journals, which are not used now.
_READABLE_VERSIONS: Final = (1, _VERSION)
_NONCE_BYTES: Final = 12


@dataclass(frozen=True, slots=True)
class DataKey:
    """A key that encrypts stored content, encrypted under each configured key."""

    id: int
    created: str
    wrapped: Mapping[str, bytes]
    """The encrypted key, by the id of the configured key."""

    @property
    def context(self) -> str:
        """The place of the key, to which its ciphertexts are bound."""
        return f"data key {self.id:08x}"

    def unwrap(self, keys: Sequence[EncryptionKey]) -> bytes | None:
        """Return the key, or None if no configured key decrypts it."""
        return _unwrap(self.wrapped, keys, self.context)


@dataclass(frozen=True, slots=True)
class KeyringFile:
    """The keys of a keyring, the newest last."""

    data_keys: tuple[DataKey, ...] = ()
    encrypted_journals: bytes = b""
    """The names of journals that are encrypted as a whole, as `Keyring` encrypts the list."""

    @classmethod
    def from_json(cls, content: bytes, *, where: str) -> Self:
        """Parse a file.

        Raises:
            ConfigurationError: it is damaged, or of a newer version.
        """
        try:
            table = json.loads(content)
            if table["version"] not in _READABLE_VERSIONS:
                problem = f"has version {table['version']}; use the program that wrote it"
                raise ConfigurationError(where, problem)
            return cls(
                tuple(_parse_data_key(entry) for entry in table["data_keys"]),
                _decode(table.get("encrypted_journals", "")),
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigurationError(where, "is damaged; restore it from a backup") from error

    def to_json(self) -> bytes:
        """Return the content of the file."""
        table = {
            "version": _VERSION,
            "data_keys": [
                {
                    "id": f"{key.id:08x}",
                    "created": key.created,
                    "wrapped": _encode_all(key.wrapped),
                }
                for key in self.data_keys
            ],
            "encrypted_journals": _encode(self.encrypted_journals),
        }
        return json.dumps(table, indent=1).encode()

    def with_data_key(self, key: DataKey) -> Self:
        """Return the keyring with another data key, which encrypts new content."""
        return replace(self, data_keys=(*self.data_keys, key))

    def rewrap(self, keys: Sequence[EncryptionKey]) -> Self:
        """Return the keyring encrypted under exactly these keys, which decrypt it, too."""
        data_keys = [
            replace(key, wrapped=_wrap(secret, keys, key.context))
            for key in self.data_keys
            if (secret := key.unwrap(keys)) is not None
        ]
        return replace(self, data_keys=tuple(data_keys))


def new_data_key(keys: Sequence[EncryptionKey]) -> DataKey:
    """Make a random data key."""
    created = datetime.now(UTC).isoformat(timespec="seconds")
    key = DataKey(secrets.randbits(32), created, {})
    return replace(key, wrapped=_wrap(secrets.token_bytes(KEY_BYTES), keys, key.context))


def _wrap(secret: bytes, keys: Sequence[EncryptionKey], context: str) -> dict[str, bytes]:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    wrapped = {}
    for key in keys:
        nonce = os.urandom(_NONCE_BYTES)
        wrapped[key.id] = nonce + AESGCM(key.secret).encrypt(nonce, secret, context.encode())
    return wrapped


def _unwrap(
    wrapped: Mapping[str, bytes], keys: Sequence[EncryptionKey], context: str
) -> bytes | None:
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    for key in keys:
        if (encrypted := wrapped.get(key.id)) is None:
            continue
        nonce, ciphertext = encrypted[:_NONCE_BYTES], encrypted[_NONCE_BYTES:]
        try:
            return AESGCM(key.secret).decrypt(nonce, ciphertext, context.encode())
        except InvalidTag:
            problem = "a key in it was altered; restore it from a backup"
            raise ConfigurationError("keyring", problem) from None
    return None


def _parse_data_key(entry: Mapping[str, Any]) -> DataKey:
    return DataKey(int(entry["id"], 16), str(entry["created"]), _decode_all(entry["wrapped"]))


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _encode_all(wrapped: Mapping[str, bytes]) -> dict[str, str]:
    return {key_id: _encode(content) for key_id, content in wrapped.items()}


def _decode_all(wrapped: Mapping[str, str]) -> dict[str, bytes]:
    return {key_id: _decode(content) for key_id, content in wrapped.items()}
