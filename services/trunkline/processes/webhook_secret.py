"""The secret that signs webhooks, a small file. With an encryption key it is encrypted."""

from typing import Final

from trunkline.core.encryption import Cipher, is_encrypted, open_if_encrypting
from trunkline.core.private_files import read_private_file
from trunkline.core.settings import Settings
from trunkline.core.small_files import SmallFiles
from trunkline.errors import ConfigurationError
from trunkline_bridge.a2a.webhooks.signatures import generate_secret

FILE_NAME: Final = "webhook.secret"


async def load_or_create_secret(settings: Settings, files: SmallFiles) -> str:
    """Return the stored secret; create it the first time. All processes get the same one.

    Raises:
        ConfigurationError: the file can't be read or created, or the encryption key is wrong.
        JournalUnavailableError: the database of the files can't be reached.
    """
    secret = await load_secret(settings, files)
    if secret:
        return secret
    # Another process may create it meanwhile.
    content = _encode(generate_secret(), _open_cipher(settings))
    await files.replace(FILE_NAME, content, expected=None)
    created = await load_secret(settings, files)
    if not created:
        raise ConfigurationError(
            files.locate(FILE_NAME), "is empty; remove it to generate a secret"
        )
    return created


async def load_secret(settings: Settings, files: SmallFiles) -> str:
    """Return the stored secret, or an empty text if there is none.

    A plain secret is encrypted if a key was set meanwhile.

    Raises:
        ConfigurationError: it is unreadable, other users may read or change it, or the encryption
            key is missing or wrong.
        JournalUnavailableError: the database of the files can't be reached.
    """
    # Earlier versions stored it in the data directory itself.
    earlier = settings.data_dir / FILE_NAME
    content = await files.read(FILE_NAME)
    is_earlier = content is None
    if content is None:
        try:
            content = read_private_file(earlier)
        except FileNotFoundError:
            return ""
        except OSError as error:
            problem = f"can't be read: {error.strerror}"
            raise ConfigurationError(str(earlier), problem) from error
    cipher = _open_cipher(settings)
    try:
        if is_encrypted(content) and cipher is not None:
            return cipher.decrypt(content, FILE_NAME).decode("ascii")
        secret = content.decode("ascii").strip()
    except UnicodeError as error:
        raise ConfigurationError(files.locate(FILE_NAME), "is not text") from error
    if cipher is not None and secret:
        await files.write(FILE_NAME, _encode(secret, cipher))
        if is_earlier:
            earlier.unlink()
    return secret


def _open_cipher(settings: Settings) -> Cipher | None:
    keyring = open_if_encrypting(settings)
    return None if keyring is None else keyring.cipher("webhook secret", name=FILE_NAME)


def _encode(secret: str, cipher: Cipher | None) -> bytes:
    if cipher is None:
        return f"{secret}\n".encode("ascii")
    return cipher.encrypt(secret.encode("ascii"), FILE_NAME)
