"""The keyring of a data directory: the data keys that encrypt stored content.

Data keys are random. Each is encrypted under every configured key ("envelope encryption"): to
change a configured key, only the keyring is rewritten. Without a configured key, there is no file.
"""

import contextlib
import json
import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from trunkline.core.encryption.cipher import Cipher, DerivedKey, is_encrypted
from trunkline.core.encryption.key_source import (
    KEY_BYTES,
    EncryptionKey,
    KeySource,
    configured_keys,
)
from trunkline.core.encryption.keyring_file import KeyringFile, new_data_key
from trunkline.core.private_files import (
    PRIVATE_FOLDER,
    FileVersion,
    create_private_folder,
    lock_file,
    read_file_version,
    read_private_file,
    write_private_file,
)
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError, JournalUnavailableError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

logger = logging.getLogger(__name__)

_LOCK_TIMEOUT_S: Final = 5.0
FILE_NAME: Final = "keyring.json"
"""The file, in the private folder of the data directory."""
# The purpose and the place of the encrypted list of journals.
_JOURNALS: Final = "encrypted journals"


class Keyring:
    """The keys of a data directory, in memory. `refresh` reads changes of the file."""

    def __init__(
        self,
        path: Path,
        content: KeyringFile,
        keys: Sequence[EncryptionKey],
        source: KeySource,
    ) -> None:
        """Decrypt the content of a file. `open` and `read` read one.

        Raises:
            ConfigurationError: the configured keys do not fit.
        """
        self.path = path
        self._keys = tuple(keys)
        self._source = source
        self._secrets: dict[int, bytes] = {}
        self._version: FileVersion | None = None
        self._load(content)

    @classmethod
    def open(cls, data_dir: Path, source: KeySource) -> Self:
        """Open the keyring of a data directory, or make it; complete it for the configured keys.

        Raises:
            ConfigurationError: the configured keys are missing or wrong, or the file can't be used.
        """
        keys = source.read()
        path = keyring_path(data_dir)
        with _lock(path):
            content = _read(path) or KeyringFile()
            _check_keys(content, keys, source, path)
            completed = _complete(content, keys)
            if completed is not content:
                write_private_file(path, completed.to_json())
            keyring = cls(path, completed, keys, source)
            keyring._version = read_file_version(path)
            return keyring

    @classmethod
    def read(cls, data_dir: Path, source: KeySource) -> Self | None:
        """Read the keyring of a data directory without changes, or return None if it has none.

        Raises:
            ConfigurationError: the configured keys are missing or wrong, or the file can't be read.
        """
        path = keyring_path(data_dir)
        content = _read(path)
        if content is None:
            return None
        keys = source.read()
        _check_keys(content, keys, source, path)
        keyring = cls(path, content, keys, source)
        keyring._version = read_file_version(path)
        return keyring

    @property
    def is_encrypting(self) -> bool:
        """New content is encrypted."""
        return bool(self._secrets)

    @property
    def current_id(self) -> int:
        """The id of the data key for new content."""
        return self._current_id

    def has_data_key(self, key_id: int) -> bool:
        """Return whether content under this data key can be decrypted."""
        return key_id in self._secrets or (self.refresh() and key_id in self._secrets)

    def cipher(self, purpose: str, *, name: str) -> Cipher:
        """Return the cipher of one journal. `name` is its file's, for errors."""
        return Cipher(self, purpose, name)

    def shared_cipher(self, purpose: str, *, name: str) -> Cipher:
        """Return the cipher of a store that processes with other keyrings use, too.

        Its keys are derived from the configured ones, which all of them have. A configured key that
        is replaced must stay in the list until its content is gone.
        """
        return Cipher(_SharedKeys(self._keys), purpose, name)

    def derive(self, key_id: int, purpose: str) -> "AESGCM | None":
        """Return a data key for one purpose. It reads the file again if the key is unknown."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if not self.has_data_key(key_id):
            return None
        return AESGCM(_derive(self._secrets[key_id], purpose))

    def derive_first(self, purpose: str) -> DerivedKey:
        """Return the first data key for one purpose, for a process that has no keyring.

        It never changes, so that this process continues after a rotation.
        """
        key_id = self._content.data_keys[0].id
        return DerivedKey(key_id, _derive(self._secrets[key_id], purpose))

    def has_encrypted_journal(self, name: str) -> bool:
        """Return whether all content of a journal was encrypted before, by the name of its file.

        Plain content of such a journal was put there by another program.

        Raises:
            ConfigurationError: the list of these journals was changed by another program.
        """
        self.refresh()
        return name in self._read_journals(self._content)

    def add_encrypted_journal(self, name: str) -> None:
        """Remember that all content of a journal is encrypted, by the name of its file.

        Raises:
            ConfigurationError: the keyring can't be read or written.
        """
        if name in self._read_journals(self._content):
            return
        with _lock(self.path):
            is_current = read_file_version(self.path) == self._version
            content = _read(self.path) or self._content
            names = json.dumps(sorted({*self._read_journals(content), name}))
            journals = self._journals_cipher().encrypt(names.encode(), _JOURNALS)
            content = replace(content, encrypted_journals=journals)
            write_private_file(self.path, content.to_json())
            self._content = content
            # Other changes since the last reading remain for `refresh`.
            if is_current:
                self._version = read_file_version(self.path)

    def _read_journals(self, content: KeyringFile) -> list[str]:
        if not self.is_encrypting or not content.encrypted_journals:
            return []
        try:
            if is_encrypted(content.encrypted_journals):
                names = self._journals_cipher().decrypt(content.encrypted_journals, _JOURNALS)
                return list(json.loads(names))
        except JournalUnavailableError:
            pass
        raise ConfigurationError(str(self.path), "was altered; restore it from a backup")

    def _journals_cipher(self) -> Cipher:
        return self.cipher(_JOURNALS, name=str(self.path))

    def refresh(self) -> bool:
        """Read the file again if it has changed. Return whether it had.

        If it has keys that this process can't decrypt, the file or the command of the configured
        keys is read again, too. If that does not help, the process continues with its present
        keys.
        """
        if (version := read_file_version(self.path)) == self._version:
            return False
        try:
            content = _read(self.path)
            if content is not None:
                if any(key.unwrap(self._keys) is None for key in content.data_keys):
                    self._keys = (*self._source.read_again(), *self._keys)
                self._load(content)
        except ConfigurationError as error:
            logger.warning("keyring.not_read", extra={"problem": error.problem})
            return False
        self._version = version
        logger.info("keyring.read_again", extra={"data_keys": len(self._secrets)})
        return True

    def _load(self, content: KeyringFile) -> None:
        for data_key in content.data_keys:
            secret = data_key.unwrap(self._keys)
            if secret is not None:
                self._secrets[data_key.id] = secret
                # The last keyring that this process can use.
                self._current_id = data_key.id
        if content.data_keys and not self._secrets:
            raise ConfigurationError(str(self.path), "no key of this process decrypts it")
        self._content = content

    _content: KeyringFile
    _current_id: int = 0


class _SharedKeys:
    """The configured keys as data keys, for what processes with other keyrings read, too."""

    def __init__(self, keys: Sequence[EncryptionKey]) -> None:
        """`keys` are the configured ones, the newest first."""
        self._keys = {int(key.id[:8], 16): key.secret for key in reversed(keys)}
        self.current_id = next(reversed(self._keys))
        """The id of the key for new content."""

    def derive(self, key_id: int, purpose: str) -> "AESGCM | None":
        """Return a key for one purpose, or None if it is not configured."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        secret = self._keys.get(key_id)
        return None if secret is None else AESGCM(_derive(secret, f"shared {purpose}"))


def _derive(secret: bytes, purpose: str) -> bytes:
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    info = b"trunkline " + purpose.encode()
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=info).derive(secret)


def open_keyring(settings: Settings) -> Keyring:
    """Open the keyring of the settings' data directory, or make it.

    Raises:
        ConfigurationError: the configured keys are missing or wrong, or the file can't be used.
    """
    return Keyring.open(settings.data_dir, configured_keys(settings))


def open_if_encrypting(settings: Settings) -> Keyring | None:
    """Return the keyring if stored data is encrypted, else None. A missing one is made for a key.

    Raises:
        ConfigurationError: the configured keys are missing or wrong, or the file can't be used.
    """
    source = configured_keys(settings)
    opened = Keyring.open if source.is_set else Keyring.read
    keyring = opened(settings.data_dir, source)
    return keyring if keyring is not None and keyring.is_encrypting else None


def read_keyring(settings: Settings, data_dir: Path | None = None) -> Keyring | None:
    """Read the keyring of a data directory, by default the settings', without changes.

    Raises:
        ConfigurationError: the configured keys are missing or wrong, or the file can't be read.
    """
    return Keyring.read(data_dir or settings.data_dir, configured_keys(settings))


def keyring_path(data_dir: Path) -> Path:
    """Return the path of a data directory's keyring."""
    return data_dir / PRIVATE_FOLDER / FILE_NAME


def rewrap(settings: Settings, *, with_new_data_key: bool) -> KeyringFile:
    """Encrypt all data keys under exactly the configured keys. Processes may use them meanwhile.

    `with_new_data_key` also makes a data key for new content.

    Raises:
        ConfigurationError: there is no keyring or no key, or the configured keys are wrong.
    """
    data_dir, source = settings.data_dir, configured_keys(settings)
    keys = source.read()
    path = keyring_path(data_dir)
    if not keys:
        raise ConfigurationError("encryption_key", "is not set; set it to the new key")
    if not path.is_file():
        problem = "has no keyring yet: a mesh that starts with this key makes it"
        raise ConfigurationError(f"data directory {data_dir}", problem)
    with _lock(path):
        content = _read(path) or KeyringFile()
        _check_keys(content, keys, source, path)
        content = content.rewrap(keys)
        if with_new_data_key or not content.data_keys:
            content = content.with_data_key(new_data_key(keys))
        write_private_file(path, content.to_json())
        return content


def copy_keyring(data_dir: Path, target: Path) -> int:
    """Copy the keyring for a backup. Return the bytes copied.

    Raises:
        ConfigurationError: it can't be read or written.
    """
    content = _read(keyring_path(data_dir))
    if content is None:
        return 0
    copy = content.to_json()
    write_private_file(keyring_path(target), copy)
    return len(copy)


def _complete(content: KeyringFile, keys: Sequence[EncryptionKey]) -> KeyringFile:
    """Return the content with a data key if there are configured keys."""
    if keys and not content.data_keys:
        return content.with_data_key(new_data_key(keys))
    return content


def _check_keys(
    content: KeyringFile, keys: Sequence[EncryptionKey], source: KeySource, path: Path
) -> None:
    """Check that the configured keys decrypt all data keys.

    Raises:
        ConfigurationError: they are missing or wrong; the text says which key is needed.
    """
    lost = [key for key in content.data_keys if key.unwrap(keys) is None]
    if not lost:
        return
    needed = " or ".join(sorted(lost[0].wrapped))
    data = f"the data in {path.parent.parent} is encrypted under the key {needed}"
    if not keys:
        problem = (
            f"is not set, but {data}; set encryption_key, encryption_key_file or "
            "encryption_key_command to that key: without it the data can't be read"
        )
        raise ConfigurationError("encryption_key", problem)
    configured = ", ".join(key.id for key in keys)
    problem = (
        f"is {configured}, but {data}; set that key, or both to change it, the new one first: "
        "without it the data can't be read"
    )
    raise ConfigurationError(source.where, problem)


def _read(path: Path) -> KeyringFile | None:
    try:
        return KeyringFile.from_json(read_private_file(path), where=str(path))
    except FileNotFoundError:
        return None
    except NotADirectoryError as error:
        raise _unusable_folder(path, error) from error
    except OSError as error:
        problem = f"can't be read: {error.strerror or error}"
        raise ConfigurationError(str(path), problem) from error


def _unusable_folder(path: Path, error: OSError) -> ConfigurationError:
    problem = f"can't be used: {error.strerror or error}; choose another with --data"
    return ConfigurationError(f"data directory {path.parent.parent}", problem)


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold the lock of a keyring, so that one process at a time changes it."""
    try:
        create_private_folder(path.parent)
        fd = os.open(
            path.with_suffix(".lock"),
            os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW,
            0o600,
        )
    except OSError as error:
        raise _unusable_folder(path, error) from error
    try:
        lock_file(fd, timeout_s=_LOCK_TIMEOUT_S)
        yield
    except BlockingIOError as error:
        problem = "another process keeps its keyring locked; end that process"
        raise ConfigurationError(f"data directory {path.parent.parent}", problem) from error
    finally:
        os.close(fd)
