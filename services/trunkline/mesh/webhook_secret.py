"""The secret that signs webhooks, in the data directory. With an encryption key it is encrypted."""

import contextlib
import os
from pathlib import Path
from typing import Final

from trunkline.encryption import Cipher, is_encrypted, open_if_encrypting
from trunkline.errors import ConfigurationError
from trunkline.private_files import (
    PRIVATE_FOLDER,
    create_private_folder,
    read_private_file,
    write_private_file,
)
from trunkline.settings import Settings
from trunkline_bridge.a2a.webhooks.signatures import generate_secret

FILE_NAME: Final = "webhook.secret"


def load_or_create_secret(settings: Settings) -> str:
    """Return the secret stored in the data directory; create it the first time.

    Raises:
        ConfigurationError: the file can't be read or created, or the encryption key is wrong.
    """
    secret = load_secret(settings)
    if secret:
        return secret
    path = _paths(settings)[0]
    try:
        create_private_folder(path.parent)
        _create(path, _encode(generate_secret(), _open_cipher(settings)))
    except OSError as error:
        raise _unusable(path, error) from error
    created = load_secret(settings)
    if not created:
        raise ConfigurationError(str(path), "is empty; remove it to generate a secret")
    return created


def load_secret(settings: Settings) -> str:
    """Return the secret in the data directory, or an empty text if there is none.

    A plain secret is encrypted if a key was set meanwhile.

    Raises:
        ConfigurationError: it is unreadable, other users may read or change it, or the encryption
            key is missing or wrong.
    """
    for path in _paths(settings):
        try:
            content = read_private_file(path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise _unusable(path, error) from error
        cipher = _open_cipher(settings)
        try:
            if is_encrypted(content) and cipher is not None:
                return cipher.decrypt(content, FILE_NAME).decode("ascii")
            secret = content.decode("ascii").strip()
        except UnicodeError as error:
            raise _unusable(path, error) from error
        if cipher is not None and secret:
            private = _paths(settings)[0]
            write_private_file(private, _encode(secret, cipher))
            if path != private:
                path.unlink()
        return secret
    return ""


def _paths(settings: Settings) -> tuple[Path, Path]:
    # Earlier versions stored it in the data directory itself.
    data_dir = settings.data_dir
    return (data_dir / PRIVATE_FOLDER / FILE_NAME, data_dir / FILE_NAME)


def _open_cipher(settings: Settings) -> Cipher | None:
    keyring = open_if_encrypting(settings)
    return None if keyring is None else keyring.cipher("webhook secret", name=FILE_NAME)


def _encode(secret: str, cipher: Cipher | None) -> bytes:
    if cipher is None:
        return f"{secret}\n".encode("ascii")
    return cipher.encrypt(secret.encode("ascii"), FILE_NAME)


def _unusable(path: Path, error: Exception) -> ConfigurationError:
    problem = error.strerror if isinstance(error, OSError) else "it is not text"
    return ConfigurationError(str(path), f"cannot be used: {problem}")


def _create(path: Path, content: bytes) -> None:
    # The complete file is linked to its name, because another process may create it meanwhile.
    temporary = path.with_name(f"{FILE_NAME}.{os.getpid()}")
    try:
        temporary.touch(mode=0o600)
        temporary.write_bytes(content)
        with contextlib.suppress(FileExistsError):
            path.hardlink_to(temporary)
    finally:
        temporary.unlink(missing_ok=True)
