"""The folder of an identity: its place, and who may enter it."""

import stat
from pathlib import Path

import pytest

from trunkline.core.identity.folder import IdentityFolder, find_folder
from trunkline.errors import ConfigurationError


def folder_of(mesh: str, tmp_path: Path) -> IdentityFolder:
    return find_folder(mesh, configured=None, data_dir=tmp_path)


def test_all_addresses_of_this_machine_have_the_same_folder(tmp_path: Path) -> None:
    addresses = ("127.0.0.1:50051", "localhost:50051", "[::1]:50051", "0.0.0.0:50051")
    paths = {folder_of(address, tmp_path).path for address in addresses}
    assert len(paths) == 1
    assert paths != {folder_of("127.0.0.1:50052", tmp_path).path}
    assert paths != {folder_of("mesh.example:50051", tmp_path).path}


@pytest.mark.parametrize("address", ["../../etc:1", "a/b:1", "mesh example:1", "[fe80::1%eth0]:1"])
def test_an_address_stays_inside_the_state_folder(tmp_path: Path, address: str) -> None:
    path = folder_of(address, tmp_path).path
    assert path.parent.name == "meshes"
    assert "/" not in path.name
    assert ".." not in path.parts


def test_without_a_writable_home_it_is_in_the_data_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/none")
    assert folder_of("localhost:1", tmp_path).path == tmp_path / "identity" / "local-1"


def test_only_this_user_may_enter_it_and_read_its_files(tmp_path: Path) -> None:
    folder = IdentityFolder(tmp_path / "state" / "mesh")
    folder.create()
    folder.write(folder.root_key, b"secret")
    assert stat.S_IMODE(folder.path.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.root_key.stat().st_mode) == 0o600
    folder.path.chmod(0o750)
    with pytest.raises(ConfigurationError, match="chmod 700"):
        folder.check()


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(tmp_path / "other")
    with pytest.raises(ConfigurationError, match="it is a link, or not a folder"):
        IdentityFolder(tmp_path / "link").create()


def test_a_lock_that_another_process_keeps_is_reported(tmp_path: Path) -> None:
    folder = IdentityFolder(tmp_path / "mesh")
    folder.create()
    with (
        folder.lock(),
        pytest.raises(ConfigurationError, match="keeps it locked"),
        folder.lock(timeout_s=0),
    ):
        pass
    with folder.lock(timeout_s=0):
        assert not folder.has_identity
