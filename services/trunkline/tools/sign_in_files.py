"""The sign-ins to tool servers, which are small files of the mesh.

With an encryption key, they are encrypted like other stored data.
"""

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Final

from trunkline.core.encryption import Cipher, is_encrypted, open_if_encrypting
from trunkline.core.settings import Settings
from trunkline.core.small_files import SmallFiles
from trunkline.errors import ConfigurationError

_FOLDER: Final = "tool-sign-ins"
_PURPOSE: Final = "tool sign-ins"
# The longest time for which one adapter keeps others from a refresh.
_CLAIM_S: Final = 30.0
_CLAIM_POLL_S: Final = 0.1


class SignInFiles:
    """One file for each URL of a tool server and client id: its tokens and its registration.

    All methods raise JournalUnavailableError if the files are in a database that can't be reached.
    """

    def __init__(self, settings: Settings, files: SmallFiles) -> None:
        self._settings = settings
        self._files = files

    async def load(self, url: str, client_id: str) -> bytes:
        """Return the stored sign-in, or an empty content if there is none.

        Raises:
            ConfigurationError: others may read or change the file, it can't be read, or its
                encryption key is missing.
            JournalUnavailableError: the file was altered.
        """
        path = _path(url, client_id)
        content = await self._files.read(path)
        if content is None or not is_encrypted(content):
            return content or b""
        cipher = await asyncio.to_thread(self._open_cipher)
        if cipher is None:
            problem = "is encrypted; set the encryption key"
            raise ConfigurationError(self._files.locate(path), problem)
        return cipher.decrypt(content, _name(path))

    async def save(self, url: str, client_id: str, content: bytes) -> None:
        """Store the sign-in of a server. It is durable when this returns.

        Raises:
            ConfigurationError: the file can't be written.
        """
        path = _path(url, client_id)
        cipher = await asyncio.to_thread(self._open_cipher)
        stored = content if cipher is None else cipher.encrypt(content, _name(path))
        await self._files.write(path, stored)

    @asynccontextmanager
    async def claim_refresh(self, url: str, client_id: str) -> AsyncIterator[None]:
        """Keep other tool adapters from a refresh of these tokens for the length of a block.

        A refresh token may be used once, and servers may end the sign-in if it is used twice. The
        claim of an adapter that is gone ends after 30 seconds, within which clocks have to agree.

        Raises:
            ConfigurationError: the file of the claim can't be used.
        """
        path = f"{_path(url, client_id)}.refresh"
        until_s = datetime.now(UTC).timestamp() + _CLAIM_S
        own = f"{until_s} {secrets.token_hex(8)}".encode()
        while not await self._files.replace(path, own, expected=None):
            other = await self._files.read(path)
            if other is not None and float(other.split()[0]) < datetime.now(UTC).timestamp():
                if await self._files.replace(path, own, expected=other):
                    break
            else:
                await asyncio.sleep(_CLAIM_POLL_S)
        try:
            yield
        finally:
            if await self._files.read(path) == own:
                await self._files.delete(path)

    def _open_cipher(self) -> Cipher | None:
        keyring = open_if_encrypting(self._settings)
        return None if keyring is None else keyring.cipher(_PURPOSE, name=_FOLDER)


def _path(url: str, client_id: str) -> str:
    # The URL may be secret.
    name = hashlib.sha256(f"{url}\n{client_id}".encode()).hexdigest()[:32]
    return f"{_FOLDER}/{name}.json"


def _name(path: str) -> str:
    return path.rpartition("/")[2]
