"""The secret that signs webhooks is made once, private, and encrypted when a key is set."""

import os
import stat
from pathlib import Path

import pytest

from harness.journal.protected import new_key
from trunkline.errors import ConfigurationError
from trunkline.mesh.webhook_secret import FILE_NAME, load_or_create_secret, load_secret
from trunkline.private_files import PRIVATE_FOLDER
from trunkline.settings import Settings
from trunkline_bridge.a2a.webhooks.signatures import WebhookSigner


def at(folder: Path, *, key: str = "") -> Settings:
    return Settings(data_dir=folder, encryption_key=key)


def test_a_secret_is_created_once_in_a_private_file(tmp_path: Path) -> None:
    assert load_secret(at(tmp_path / "data")) == ""
    first = load_or_create_secret(at(tmp_path / "data"))
    assert (
        load_or_create_secret(at(tmp_path / "data")) == load_secret(at(tmp_path / "data")) == first
    )
    WebhookSigner(first)
    path = tmp_path / "data" / PRIVATE_FOLDER / FILE_NAME
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert os.listdir(path.parent) == [FILE_NAME]  # noqa: PTH208  only the names matter


def test_a_secret_is_stored_on_a_volume_that_all_users_may_write(tmp_path: Path) -> None:
    # As an emptyDir of Kubernetes.
    tmp_path.chmod(0o777)
    secret = load_or_create_secret(at(tmp_path))
    assert load_secret(at(tmp_path)) == secret != ""


def test_the_secret_of_an_earlier_version_remains(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).touch(mode=0o600)
    (tmp_path / FILE_NAME).write_text("whsec_of_an_earlier_version\n")
    assert load_or_create_secret(at(tmp_path)) == "whsec_of_an_earlier_version"
    assert load_secret(at(tmp_path)) == "whsec_of_an_earlier_version"


def test_a_secret_that_cannot_be_stored_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(ConfigurationError, match="data"):
        load_or_create_secret(at(tmp_path / "data"))


def test_an_empty_secret_file_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / PRIVATE_FOLDER / FILE_NAME
    path.parent.mkdir(mode=0o700)
    path.touch(mode=0o600)
    path.write_text("\n")
    with pytest.raises(ConfigurationError, match="is empty"):
        load_or_create_secret(at(tmp_path))


@pytest.mark.parametrize("folder", [PRIVATE_FOLDER, "."], ids=["plain", "of an earlier version"])
def test_a_secret_is_encrypted_once_a_key_is_set(tmp_path: Path, folder: str) -> None:
    secret, key = load_or_create_secret(at(tmp_path)), new_key()
    private = tmp_path / PRIVATE_FOLDER / FILE_NAME
    private.rename(tmp_path / folder / FILE_NAME)
    assert load_secret(at(tmp_path, key=key)) == secret
    assert secret.encode() not in private.read_bytes()
    assert not (tmp_path / FILE_NAME).exists()
    assert load_or_create_secret(at(tmp_path, key=key)) == secret
    with pytest.raises(ConfigurationError, match="encryption_key: is not set"):
        load_secret(at(tmp_path))


def test_a_new_secret_is_encrypted(tmp_path: Path) -> None:
    settings = at(tmp_path, key=new_key())
    secret = load_or_create_secret(settings)
    WebhookSigner(secret)
    assert secret.encode() not in (tmp_path / PRIVATE_FOLDER / FILE_NAME).read_bytes()
    assert load_secret(settings) == secret
