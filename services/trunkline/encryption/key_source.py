"""Reads the encryption keys that the settings name: from a variable, a file or a command."""

import base64
import binascii
import hashlib
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trunkline.errors import ConfigurationError
from trunkline.private_files import read_private_file
from trunkline.settings import Settings

KEY_SETTINGS: Final = ("encryption_key", "encryption_key_file", "encryption_key_command")
"""The settings that name the keys."""
KEY_BYTES: Final = 32
"""The size of a key: AES-256."""
_COMMAND_S: Final = 30.0
# Journals wait for it, whose leases are longer.
_COMMAND_AGAIN_S: Final = 3.0
_HOW_TO: Final = "make one with `openssl rand -base64 32`"


@dataclass(frozen=True, slots=True)
class EncryptionKey:
    """A key that encrypts the data keys of a data directory."""

    secret: bytes
    id: str
    """A fingerprint of the key, which the keyring and errors name."""

    @classmethod
    def parse(cls, text: str, *, where: str) -> "EncryptionKey":
        """Parse 32 bytes in base64 or hexadecimal.

        Raises:
            ConfigurationError: it is something else. The text is not repeated.
        """
        secret = b""
        try:
            if len(text) == 2 * KEY_BYTES:
                secret = bytes.fromhex(text)
            else:
                padded = text + "=" * (-len(text) % 4)
                secret = base64.b64decode(
                    padded, altchars=b"-_" if "-" in text or "_" in text else None, validate=True
                )
        except (ValueError, binascii.Error):
            secret = b""
        if len(secret) != KEY_BYTES:
            raise ConfigurationError(where, f"a key is not 32 bytes in base64; {_HOW_TO}")
        fingerprint = hashlib.sha256(b"trunkline encryption key\0" + secret).hexdigest()
        return cls(secret, fingerprint[:16])


@dataclass(frozen=True, slots=True)
class KeySource:
    """The place of the keys: at most one of the three is set."""

    keys: str = ""
    file: Path | None = None
    command: str = ""

    @property
    def where(self) -> str:
        """The setting that names the keys, for errors."""
        if self.file is not None:
            return f"encryption_key_file {self.file}"
        return "encryption_key_command" if self.command else "encryption_key"

    @property
    def is_set(self) -> bool:
        """Stored data is encrypted."""
        return bool(self.keys or self.file or self.command)

    def read_again(self) -> tuple[EncryptionKey, ...]:
        """Return the keys of a file or a command, which may have changed, or () for a variable.

        Raises:
            ConfigurationError: the file or the command fails, or there is no valid key.
        """
        return () if self.keys else self.read(timeout_s=_COMMAND_AGAIN_S)

    def read(self, *, timeout_s: float = _COMMAND_S) -> tuple[EncryptionKey, ...]:
        """Return the keys, the newest first. It may run the command, and blocks.

        Raises:
            ConfigurationError: the file or the command fails, or there is no valid key.
        """
        if not self.is_set:
            return ()
        if self.file is not None:
            text = _read_file(self.file, self.where)
        else:
            text = _run(self.command, self.where, timeout_s) if self.command else self.keys
        keys = tuple(EncryptionKey.parse(word, where=self.where) for word in text.split())
        if not keys:
            raise ConfigurationError(self.where, f"has no key; {_HOW_TO}")
        return keys


def configured_keys(settings: Settings) -> KeySource:
    """Return the source of keys that the settings name.

    Raises:
        ConfigurationError: they name several.
    """
    sources = (
        settings.encryption_key,
        settings.encryption_key_file,
        settings.encryption_key_command,
    )
    if sum(map(bool, sources)) > 1:
        problem = "set only one of encryption_key, encryption_key_file and encryption_key_command"
        raise ConfigurationError("encryption_key", problem)
    return KeySource(*sources)


def _read_file(path: Path, where: str) -> str:
    try:
        return read_private_file(path).decode(errors="replace")
    except OSError as error:
        problem = f"can't be read: {error.strerror or error}"
        raise ConfigurationError(where, problem) from error


def _run(command: str, where: str, timeout_s: float) -> str:
    try:
        # Without a shell: the words of the command are its arguments.
        result = subprocess.run(
            shlex.split(command),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
        )
    except (OSError, ValueError) as error:
        raise ConfigurationError(where, f"can't be run: {error}") from error
    except subprocess.TimeoutExpired:
        problem = f"did not end within {_COMMAND_S:.0f} s"
        raise ConfigurationError(where, problem) from None
    if result.returncode:
        lines = result.stderr.decode(errors="replace").strip().splitlines()
        detail = f": {lines[-1][:200]}" if lines else ""
        raise ConfigurationError(where, f"exited with {result.returncode}{detail}")
    return result.stdout.decode(errors="replace")
