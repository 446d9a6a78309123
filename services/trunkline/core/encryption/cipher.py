"""Encrypts content with AES-256-GCM, bound to its place, so that ciphertexts can't be swapped.

Encrypted content is a format byte, the id of its data key, a random nonce, and the ciphertext with
its tag. Content without the format byte is plain: it was written before a key was set.
"""

import base64
import binascii
import os
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol, Self

from trunkline.errors import ConfigurationError, JournalDamagedError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

# No serialised message begins with this byte, whose wire type does not exist. As the first byte of
# the length of a batch, it would mean 3.8 GB.
FORMAT: Final = 0xE7
_PREFIX: Final = struct.Struct(">BI")
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
OVERHEAD_BYTES: Final = _PREFIX.size + _NONCE_BYTES + _TAG_BYTES
"""The size of encrypted content beyond the size of the plain content."""
_ALTERED: Final = "its content was altered, or moved from another place; restore a backup"


class DataKeys(Protocol):
    """The data keys by id, as AES-GCM for one purpose."""

    @property
    def current_id(self) -> int:
        """The id of the key for new content."""
        ...

    def derive(self, key_id: int, purpose: str) -> "AESGCM | None":
        """Return the key for a purpose, or None if there is no such key."""
        ...


@dataclass(frozen=True, slots=True)
class DerivedKey:
    """A key for one purpose, for a process that must not have the data keys."""

    id: int
    """The id of its data key."""
    secret: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str, *, where: str) -> Self:
        """Parse the text that `encode` returned.

        Raises:
            ConfigurationError: it is something else. The text is not repeated.
        """
        key_id, _, secret = text.partition(":")
        try:
            return cls(int(key_id, 16), base64.b64decode(secret, validate=True))
        except (ValueError, binascii.Error):
            raise ConfigurationError(where, "is not a derived key") from None

    def encode(self) -> str:
        """Return the key as text for a variable."""
        return f"{self.id:08x}:{base64.b64encode(self.secret).decode()}"

    def cipher(self, *, name: str) -> "Cipher":
        """Return the cipher of this key. `name` is the file's, for errors."""
        return Cipher(self, "", name)

    @property
    def current_id(self) -> int:
        """The id of the key for new content."""
        return self.id

    def derive(self, key_id: int, purpose: str) -> "AESGCM | None":
        """Return this key, which has one purpose, or None if the content has another key."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        return AESGCM(self.secret) if key_id == self.id else None


def is_encrypted(content: bytes | bytearray) -> bool:
    """Return whether content is encrypted."""
    return bool(content) and content[0] == FORMAT


def key_id_of(content: bytes | bytearray) -> int:
    """Return the id of the data key of encrypted content."""
    return int(_PREFIX.unpack_from(content)[1]) if len(content) >= _PREFIX.size else 0


class Cipher:
    """Encrypts and decrypts the content of one journal."""

    def __init__(self, keys: DataKeys, purpose: str, name: str) -> None:
        """`purpose` separates the keys of different journals. `name` is the file's, for errors."""
        self._keys = keys
        self._purpose = purpose
        self._name = name
        self._derived: dict[int, AESGCM] = {}

    def encrypt(self, content: bytes | bytearray, place: str) -> bytes:
        """Encrypt content. `place` must be unique in the journal, and is needed to decrypt it."""
        return self.encrypt_all([(content, place)])[0]

    def encrypt_all(self, contents: Sequence[tuple[bytes | bytearray, str]]) -> list[bytes]:
        """Encrypt contents, each with its place. This is faster than to encrypt one by one."""
        key_id = self._keys.current_id
        encrypt = self._key(key_id).encrypt
        prefix = _PREFIX.pack(FORMAT, key_id)
        nonces = os.urandom(_NONCE_BYTES * len(contents))
        encrypted = []
        begin = 0
        for content, place in contents:
            end = begin + _NONCE_BYTES
            nonce = nonces[begin:end]
            encrypted.append(b"".join((prefix, nonce, encrypt(nonce, content, place.encode()))))
            begin = end
        return encrypted

    def decrypt(self, content: bytes, place: str) -> bytes:
        """Decrypt content from its place. Plain content is returned unchanged.

        Raises:
            JournalDamagedError: it was altered or moved, or its data key is missing.
        """
        if not is_encrypted(content):
            return content
        # Loading this package takes a while, and without encryption nothing needs it.
        from cryptography.exceptions import InvalidTag

        if len(content) < OVERHEAD_BYTES:
            raise JournalDamagedError(self._name, _ALTERED)
        key = self._key(key_id_of(content))
        nonce_end = _PREFIX.size + _NONCE_BYTES
        nonce = content[_PREFIX.size : nonce_end]
        try:
            return key.decrypt(nonce, memoryview(content)[nonce_end:], place.encode())
        except InvalidTag:
            raise JournalDamagedError(self._name, _ALTERED) from None

    def _key(self, key_id: int) -> "AESGCM":
        key = self._derived.get(key_id) or self._keys.derive(key_id, self._purpose)
        if key is None:
            problem = (
                f"it is encrypted under the data key {key_id:08x}, which is not in the keyring; "
                "restore the keyring of its data directory"
            )
            raise JournalDamagedError(self._name, problem)
        self._derived[key_id] = key
        return key
