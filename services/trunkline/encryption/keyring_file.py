"""The content of a keyring's file: wrapped data keys, and signing keys."""

import base64
import hashlib
import json
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Self

from trunkline.encryption.key_source import KEY_BYTES, EncryptionKey
from trunkline.errors import ConfigurationError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_VERSION: Final = 1
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
class SigningKey:
    """An Ed25519 key. Its private part may be missing, plain, or encrypted."""

    public: bytes
    plain: bytes = b""
    wrapped: Mapping[str, bytes] = field(default_factory=dict)

    @property
    def context(self) -> str:
        """The place of the key, to which its ciphertexts are bound."""
        return f"signing key {self.public.hex()}"

    @property
    def has_private(self) -> bool:
        """The key can sign."""
        return bool(self.plain or self.wrapped)

    @property
    def fingerprint(self) -> str:
        """The first digits of the SHA-256 of the public key."""
        return hashlib.sha256(self.public).hexdigest()[:16]

    def private_bytes(self, keys: Sequence[EncryptionKey]) -> bytes | None:
        """Return the private part, or None if it is missing or can't be decrypted."""
        return self.plain or _unwrap(self.wrapped, keys, self.context)

    def load_private(self, keys: Sequence[EncryptionKey]) -> "Ed25519PrivateKey | None":
        """Return the private key, or None if it is missing or can't be decrypted."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        private = self.private_bytes(keys)
        return None if private is None else Ed25519PrivateKey.from_private_bytes(private)


@dataclass(frozen=True, slots=True)
class KeyringFile:
    """The keys of a keyring, the newest last."""

    data_keys: tuple[DataKey, ...] = ()
    signing_keys: tuple[SigningKey, ...] = ()
    chained: tuple[str, ...] = ()
    """The file names of journals that have hash chains, sorted."""
    chained_signature: bytes = b""

    @property
    def chained_message(self) -> bytes:
        """The signed text about journals with hash chains."""
        return b"chained journals\0" + json.dumps(self.chained).encode()

    @classmethod
    def from_json(cls, content: bytes, *, where: str) -> Self:
        """Parse a file.

        Raises:
            ConfigurationError: it is damaged, or of a newer version.
        """
        try:
            table = json.loads(content)
            if table["version"] != _VERSION:
                problem = f"has version {table['version']}; use the program that wrote it"
                raise ConfigurationError(where, problem)
            # Earlier builds wrote no list.
            chained = table.get("chained_journals", {"names": [], "signature": ""})
            return cls(
                tuple(_parse_data_key(entry) for entry in table["data_keys"]),
                tuple(_parse_signing_key(entry) for entry in table["signing_keys"]),
                tuple(map(str, chained["names"])),
                _decode(chained["signature"]),
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
            "signing_keys": [
                {
                    "public": _encode(key.public),
                    "private": _encode(key.plain),
                    "wrapped": _encode_all(key.wrapped),
                }
                for key in self.signing_keys
            ],
            "chained_journals": {
                "names": self.chained,
                "signature": _encode(self.chained_signature),
            },
        }
        return json.dumps(table, indent=1).encode()

    def with_data_key(self, key: DataKey) -> Self:
        """Return the keyring with another data key, which encrypts new content."""
        return replace(self, data_keys=(*self.data_keys, key))

    def with_signing_key(self, key: SigningKey) -> Self:
        """Return the keyring with another signing key, which makes new signatures."""
        return replace(self, signing_keys=(*self.signing_keys, key))

    def rewrap(self, keys: Sequence[EncryptionKey]) -> Self:
        """Return the keyring encrypted under exactly these keys, which decrypt it, too."""
        data_keys = [
            replace(key, wrapped=_wrap(secret, keys, key.context))
            for key in self.data_keys
            if (secret := key.unwrap(keys)) is not None
        ]
        signing_keys = [
            replace(key, plain=b"", wrapped=_wrap(private, keys, key.context))
            if (private := key.private_bytes(keys))
            else key
            for key in self.signing_keys
        ]
        return replace(self, data_keys=tuple(data_keys), signing_keys=tuple(signing_keys))

    def without_plain_secrets(self) -> Self:
        """Return the keyring without private keys that are not encrypted."""
        signing_keys = tuple(replace(key, plain=b"") for key in self.signing_keys)
        return replace(self, signing_keys=signing_keys)


def new_data_key(keys: Sequence[EncryptionKey]) -> DataKey:
    """Make a random data key."""
    created = datetime.now(UTC).isoformat(timespec="seconds")
    key = DataKey(secrets.randbits(32), created, {})
    return replace(key, wrapped=_wrap(secrets.token_bytes(KEY_BYTES), keys, key.context))


def new_signing_key(keys: Sequence[EncryptionKey]) -> SigningKey:
    """Make a signing key; without configured keys, its private part is plain."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.generate()
    key = SigningKey(private.public_key().public_bytes_raw())
    if not keys:
        return replace(key, plain=private.private_bytes_raw())
    return replace(key, wrapped=_wrap(private.private_bytes_raw(), keys, key.context))


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


def _parse_signing_key(entry: Mapping[str, Any]) -> SigningKey:
    return SigningKey(
        _decode(entry["public"]), _decode(entry["private"]), _decode_all(entry["wrapped"])
    )


def _encode(content: bytes) -> str:
    return base64.b64encode(content).decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _encode_all(wrapped: Mapping[str, bytes]) -> dict[str, str]:
    return {key_id: _encode(content) for key_id, content in wrapped.items()}


def _decode_all(wrapped: Mapping[str, str]) -> dict[str, bytes]:
    return {key_id: _decode(content) for key_id, content in wrapped.items()}
