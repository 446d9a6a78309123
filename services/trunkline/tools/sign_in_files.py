"""The files of the sign-ins to tool servers, in the private folder of the data directory.

With an encryption key, they are encrypted like other stored data.
"""

import asyncio
import hashlib
from pathlib import Path
from typing import Final

from trunkline.core.encryption import Cipher, is_encrypted, open_if_encrypting
from trunkline.core.private_files import PRIVATE_FOLDER, read_private_file, write_private_file
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError

_FOLDER: Final = "tool-sign-ins"
_PURPOSE: Final = "tool sign-ins"


class SignInFiles:
    """One file for each URL of a tool server and client id: its tokens and its registration."""

    def __init__(self, settings: Settings) -> None:
        """The folder is created at the first sign-in."""
        self.folder: Path = settings.data_dir / PRIVATE_FOLDER / _FOLDER
        """The folder of the files."""
        self._settings = settings

    async def load(self, url: str, client_id: str) -> bytes:
        """Return the stored sign-in, or an empty content if there is none.

        Raises:
            ConfigurationError: others may read or change the file, it can't be read, or its
                encryption key is missing.
            JournalUnavailableError: the file was altered.
        """
        return await asyncio.to_thread(self._load, self._path(url, client_id))

    async def save(self, url: str, client_id: str, content: bytes) -> None:
        """Store the sign-in of a server. The file is on the disk when this returns.

        Raises:
            ConfigurationError: the file can't be written.
        """
        await asyncio.to_thread(self._save, self._path(url, client_id), content)

    def _path(self, url: str, client_id: str) -> Path:
        # The URL may be secret.
        name = hashlib.sha256(f"{url}\n{client_id}".encode()).hexdigest()[:32]
        return self.folder / f"{name}.json"

    def _load(self, path: Path) -> bytes:
        try:
            content = read_private_file(path)
        except FileNotFoundError:
            return b""
        except OSError as error:
            raise ConfigurationError(str(path), f"can't be read: {error.strerror}") from error
        if not is_encrypted(content):
            return content
        cipher = self._open_cipher()
        if cipher is None:
            raise ConfigurationError(str(path), "is encrypted; set the encryption key")
        return cipher.decrypt(content, path.name)

    def _save(self, path: Path, content: bytes) -> None:
        cipher = self._open_cipher()
        stored = content if cipher is None else cipher.encrypt(content, path.name)
        write_private_file(path, stored)

    def _open_cipher(self) -> Cipher | None:
        keyring = open_if_encrypting(self._settings)
        return None if keyring is None else keyring.cipher(_PURPOSE, name=_FOLDER)
