"""Encryption of stored data: the keys of a data directory, and ciphers for rows and files."""

from trunkline.core.encryption.cipher import Cipher, DerivedKey, is_encrypted
from trunkline.core.encryption.encrypted_file import EncryptedFile
from trunkline.core.encryption.key_source import KEY_SETTINGS, KeySource, configured_keys
from trunkline.core.encryption.keyring import (
    Keyring,
    copy_keyring,
    keyring_path,
    open_if_encrypting,
    open_keyring,
    read_keyring,
    rewrap,
)

__all__ = [
    "KEY_SETTINGS",
    "Cipher",
    "DerivedKey",
    "EncryptedFile",
    "KeySource",
    "Keyring",
    "configured_keys",
    "copy_keyring",
    "is_encrypted",
    "keyring_path",
    "open_if_encrypting",
    "open_keyring",
    "read_keyring",
    "rewrap",
]
