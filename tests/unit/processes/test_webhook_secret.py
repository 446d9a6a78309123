"""The secret that signs webhooks is made once, private, and encrypted when a key is set."""

import os
import stat
from pathlib import Path

import pytest

from harness.journal.protected import new_key
from trunkline.core.private_files import PRIVATE_FOLDER
from trunkline.core.settings import Settings
from trunkline.core.small_files import FolderFiles
from trunkline.errors import ConfigurationError
from trunkline.processes.webhook_secret import FILE_NAME
from trunkline.processes.webhook_secret import load_or_create_secret as load_or_create_from
from trunkline.processes.webhook_secret import load_secret as load_from
from trunkline_bridge.a2a.webhooks.signatures import WebhookSigner


def at(folder: Path, *, key: str = "") -> Settings:
    return Settings(data_dir=folder, encryption_key=key)


async def load_secret(settings: Settings) -> str:
    return await load_from(settings, FolderFiles(settings.data_dir))


async def load_or_create_secret(settings: Settings) -> str:
    return await load_or_create_from(settings, FolderFiles(settings.data_dir))


async def test_a_secret_is_created_once_in_a_private_file(tmp_path: Path) -> None:
    assert await load_secret(at(tmp_path / "data")) == ""
    first = await load_or_create_secret(at(tmp_path / "data"))
    assert (
        await load_or_create_secret(at(tmp_path / "data"))
        == await load_secret(at(tmp_path / "data"))
        == first
    )
    WebhookSigner(first)
    path = tmp_path / "data" / PRIVATE_FOLDER / FILE_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert await FolderFiles(tmp_path / "data").list_paths("") == [FILE_NAME]


async def test_a_secret_is_stored_on_a_volume_that_all_users_may_write(tmp_path: Path) -> None:
    # As an emptyDir of Kubernetes.
    os.chmod(tmp_path, 0o777)  # noqa: PTH101, S103  on purpose
    secret = await load_or_create_secret(at(tmp_path))
    assert await load_secret(at(tmp_path)) == secret != ""


async def test_the_secret_of_an_earlier_version_remains(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).touch(mode=0o600)
    (tmp_path / FILE_NAME).write_text("whsec_of_an_earlier_version\n")
    assert await load_or_create_secret(at(tmp_path)) == "whsec_of_an_earlier_version"
    assert await load_secret(at(tmp_path)) == "whsec_of_an_earlier_version"


async def test_a_secret_that_cannot_be_stored_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(ConfigurationError, match="data"):
        await load_or_create_secret(at(tmp_path / "data"))


async def test_an_empty_secret_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / PRIVATE_FOLDER / FILE_NAME
    path.parent.mkdir(mode=0o700)
    path.touch(mode=0o600)
    path.write_text("\n")
    with pytest.raises(ConfigurationError, match="is empty"):
        await load_or_create_secret(at(tmp_path))


@pytest.mark.parametrize("folder", [PRIVATE_FOLDER, "."], ids=["plain", "of an earlier version"])
async def test_a_secret_is_encrypted_once_a_key_is_set(tmp_path: Path, folder: str) -> None:
    secret, key = await load_or_create_secret(at(tmp_path)), new_key()
    private = tmp_path / PRIVATE_FOLDER / FILE_NAME
    private.rename(tmp_path / folder / FILE_NAME)
    assert await load_secret(at(tmp_path, key=key)) == secret
    assert secret.encode() not in private.read_bytes()
    assert not (tmp_path / FILE_NAME).exists()
    assert await load_or_create_secret(at(tmp_path, key=key)) == secret
    with pytest.raises(ConfigurationError, match="encryption_key: is not set"):
        await load_secret(at(tmp_path))


async def test_a_new_secret_is_encrypted(tmp_path: Path) -> None:
    settings = at(tmp_path, key=new_key())
    secret = await load_or_create_secret(settings)
    WebhookSigner(secret)
    assert secret.encode() not in (tmp_path / PRIVATE_FOLDER / FILE_NAME).read_bytes()
    assert await load_secret(settings) == secret
