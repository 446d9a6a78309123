"""Links, and files that others may change or read, are refused with what to do."""

import asyncio
import grp
import os
import pwd
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.journal.opening import open_journal, take_over_journal
from trunkline.conversations.sqlite import open_sqlite_memory
from trunkline.conversations.store import StoredCheckpoint, ThreadKey
from trunkline.core import private_files
from trunkline.core.private_files import (
    create_private_folder,
    find_database_problem,
    read_private_file,
    user_state_folder,
)
from trunkline.core.settings import Settings
from trunkline.core.settings.addresses import MeshAddress
from trunkline.errors import ConfigurationError, JournalUnavailableError
from trunkline.journal.sqlite import find_orphaned_journals, list_unfinished_agents
from trunkline.processes.registry import serve_registry

NOBODY = 65534


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "key.pem"
    path.touch(mode=0o600)
    path.write_text("secret")
    return path


@pytest.fixture
def shared_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every group one with other members."""
    monkeypatch.setattr(private_files, "_is_private_group", lambda _gid: False)


def read_problem(path: Path, *, is_secret: bool = True) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read_private_file(path, is_secret=is_secret)
    assert caught.value.where == str(path)
    return caught.value.problem


@pytest.mark.parametrize(
    ("named", "platform", "folder"),
    [
        ("/srv/state", "linux", "/srv/state/trunkline"),
        ("/srv/state", "darwin", "/srv/state/trunkline"),
        ("", "linux", "/srv/ada/.local/state/trunkline"),
        ("state", "linux", "/srv/ada/.local/state/trunkline"),
        ("", "darwin", "/srv/ada/Library/Application Support/trunkline"),
    ],
)
def test_the_users_state_is_where_the_platform_keeps_it(
    monkeypatch: pytest.MonkeyPatch, named: str, platform: str, folder: str
) -> None:
    monkeypatch.setenv("HOME", "/srv/ada")
    monkeypatch.setenv("XDG_STATE_HOME", named)
    monkeypatch.setattr("sys.platform", platform)
    assert user_state_folder() == Path(folder)


def test_a_file_of_its_owner_alone_is_read(secret: Path) -> None:
    assert read_private_file(secret) == b"secret"
    with pytest.raises(FileNotFoundError):
        read_private_file(secret.with_name("missing"))


@pytest.mark.usefixtures("shared_groups")
@pytest.mark.parametrize("mode", [0o602, 0o620, 0o666])
def test_a_file_that_others_may_write_is_refused(secret: Path, mode: int) -> None:
    secret.chmod(mode)
    expected = f"other users may write to it; run `chmod go-w {secret}`"
    assert read_problem(secret) == read_problem(secret, is_secret=False) == expected
    assert find_database_problem(secret) == expected


@pytest.mark.usefixtures("shared_groups")
@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644])
def test_a_secret_that_others_may_read_is_refused(secret: Path, mode: int) -> None:
    secret.chmod(mode)
    assert read_problem(secret) == f"other users may read it; run `chmod go-rwx {secret}`"
    assert read_private_file(secret, is_secret=False) == b"secret"
    assert find_database_problem(secret) == ""


@pytest.mark.usefixtures("shared_groups")
def test_a_file_in_a_folder_of_all_users_is_refused(secret: Path) -> None:
    secret.parent.chmod(0o777)
    folder = secret.parent
    expected = (
        f"its folder {folder}: other users may replace what is in it; run `chmod go-w {folder}`"
    )
    assert read_problem(secret) == find_database_problem(secret) == expected
    # Only its owner may replace a file in a sticky folder.
    secret.parent.chmod(0o1777)
    assert read_private_file(secret) == b"secret"


def test_links_and_devices_are_refused(secret: Path, tmp_path: Path) -> None:
    link = tmp_path / "links" / "link.pem"
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    link.parent.mkdir()
    link.symlink_to(secret.rename(folder / "key.pem"))
    assert read_problem(link) == "it is a symbolic link; use the file itself"
    assert find_database_problem(link) == "it is a symbolic link; use the file itself"
    os.mkfifo(tmp_path / "fifo", 0o600)
    assert "not a regular file" in read_problem(tmp_path / "fifo")


@pytest.mark.parametrize(
    ("group", "members", "primary_of", "is_private"),
    [
        # As in Kubernetes: a number without a name (`fsGroup`).
        ("", [], [], True),
        ("root", [], [], True),
        ("root", ["root"], [], True),
        ("team", ["nobody"], [], False),
        ("root", ["nobody"], [], False),
        # Directories of users may not list their users.
        ("team", ["somebody-of-ldap"], [], False),
        ("team", [], [], False),
        # It is the primary group of another user, too.
        ("root", [], ["other"], False),
    ],
)
def test_a_file_of_a_group_is_read_if_only_its_owner_is_in_the_group(
    secret: Path,
    monkeypatch: pytest.MonkeyPatch,
    group: str,
    members: list[str],
    primary_of: list[str],
    *,
    is_private: bool,
) -> None:
    def get_group(gid: int) -> grp.struct_group:
        if not group:
            raise KeyError(gid)
        return grp.struct_group((group, "x", gid, members))

    gid = secret.stat().st_gid
    users = [pwd.struct_passwd((name, "x", NOBODY, gid, "", "/", "/bin/sh")) for name in primary_of]
    monkeypatch.setattr(grp, "getgrgid", get_group)
    monkeypatch.setattr(pwd, "getpwall", lambda: users)
    secret.chmod(0o660)
    if is_private:
        assert read_private_file(secret) == b"secret"
    else:
        assert "may write to it" in read_problem(secret)
    secret.chmod(0o664)
    assert "other users may" in read_problem(secret)


def test_a_secret_mounted_by_kubernetes_is_read(
    secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The user of this test stands for root, who owns everything in such a folder.
    monkeypatch.setattr(private_files, "_ROOT", os.geteuid())
    folder = secret.parent
    folder.chmod(0o1777)
    version = folder / "..2026_11_23"
    version.mkdir()
    secret.rename(version / "key.pem").chmod(0o644)
    (folder / "..data").symlink_to(version.name)
    secret.symlink_to("..data/key.pem")
    assert "may read it" in read_problem(secret)
    monkeypatch.setattr(private_files, "_is_read_only", lambda _fd: True)
    assert read_private_file(secret) == b"secret"
    # The same link, made by another user.
    monkeypatch.setattr(private_files, "_ROOT", NOBODY)
    assert read_problem(secret) == "it is a symbolic link; use the file itself"


@pytest.mark.usefixtures("shared_groups")
def test_a_user_reads_the_secrets_that_root_gives_to_its_group(
    secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The user of this test stands for root.
    root = os.geteuid()
    monkeypatch.setattr(private_files, "_ROOT", root)
    secret.chmod(0o640)
    monkeypatch.setattr(os, "geteuid", lambda: 4321)
    assert read_private_file(secret) == b"secret"
    monkeypatch.setattr(os, "geteuid", lambda: root)
    assert "may read it" in read_problem(secret)


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm", ".lock"])
async def test_a_journal_with_a_link_is_neither_opened_nor_read(
    tmp_path: Path, suffix: str
) -> None:
    folder = tmp_path / "journals"
    path = folder / "journal.db"
    await open_journal(path).close()
    target = tmp_path / "target"
    target.touch(mode=0o600)
    file = Path(f"{path}{suffix}")
    if not suffix:
        file.replace(target)  # noqa: ASYNC240
    file.symlink_to(target)  # noqa: ASYNC240
    before = target.read_bytes()
    with pytest.raises(JournalUnavailableError, match=r"symbolic link|remove that link"):
        open_journal(path)
    if suffix != ".lock":
        with pytest.raises(JournalUnavailableError, match="symbolic link"):
            list_unfinished_agents(path)
        assert find_orphaned_journals(folder) == []
    assert target.read_bytes() == before


@pytest.mark.usefixtures("shared_groups")
async def test_a_journal_that_others_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    await open_journal(path).close()
    path.chmod(0o660)
    with pytest.raises(JournalUnavailableError, match="chmod go-w"):
        open_journal(path)
    with pytest.raises(JournalUnavailableError, match="chmod go-w"):
        take_over_journal(path)


async def run_registry(data_dir: Path) -> None:
    async with serve_registry(Settings(data_dir=data_dir, mesh=MeshAddress.parse("127.0.0.1:0"))):
        pass


def test_a_registry_runs_on_a_volume_that_all_users_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As an emptyDir of Kubernetes.
    tmp_path.chmod(0o777)
    monkeypatch.setattr(Path, "is_mount", lambda path: path == tmp_path)
    asyncio.run(run_registry(tmp_path))
    assert (tmp_path / "private").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "private" / "traces.db").is_file()


def share_folder(tmp_path: Path) -> tuple[Path, str]:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(0o777)
    return data, f"other users may replace what is in it; run `chmod go-w {data}`"


def share_folder_of_link(tmp_path: Path) -> tuple[Path, str]:
    link, target = tmp_path / "shared" / "link", tmp_path / "target"
    link.parent.mkdir()
    link.symlink_to(target)
    link.parent.chmod(0o777)
    return link, f"the link {link} on its path; use the folder that is meant, for example {target}"


def share_folder_of_inner_link(tmp_path: Path) -> tuple[Path, str]:
    link, problem = share_folder_of_link(tmp_path)
    outer = tmp_path / "outer"
    outer.symlink_to(link)
    return outer / "data", f"{problem}/data"


@pytest.mark.parametrize("share", [share_folder, share_folder_of_link, share_folder_of_inner_link])
def test_a_data_directory_that_others_may_replace_is_refused(
    tmp_path: Path, share: Callable[[Path], tuple[Path, str]]
) -> None:
    data, problem = share(tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        asyncio.run(run_registry(data))
    assert str(data) in caught.value.where
    assert caught.value.problem.endswith(problem)
    assert list(tmp_path.rglob("*.db")) == []


def test_a_data_directory_behind_a_link_of_its_owner_is_used(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to("target")
    asyncio.run(run_registry(tmp_path / "link" / "data"))
    assert (tmp_path / "target" / "data" / "private" / "traces.db").is_file()


def test_a_folder_of_private_files_that_others_may_write_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "private"
    folder.mkdir()
    folder.chmod(0o1777)
    with pytest.raises(ConfigurationError, match=f"other users may change it.* {folder}`"):
        create_private_folder(folder)
    folder.rename(tmp_path / "elsewhere").chmod(0o700)
    folder.symlink_to("elsewhere")
    with pytest.raises(ConfigurationError, match="it is a link"):
        create_private_folder(folder)


async def test_checkpoints_that_others_may_write_or_behind_a_link_are_not_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    thread, checkpoint = ThreadKey("one"), StoredCheckpoint("ff", None, "null", b"", b"{}")
    for name in ("public", "link"):
        memory = await open_sqlite_memory(tmp_path / f"{name}.db")
        await memory.checkpoints.put(thread, checkpoint)
        await memory.close()
    public, link = tmp_path / "public.db.checkpoints", tmp_path / "link.db.checkpoints"
    public.chmod(0o602)
    target = link.rename(tmp_path / "target")
    content = target.read_bytes()
    link.symlink_to("target")
    for name in ("public", "link"):
        memory = await open_sqlite_memory(tmp_path / f"{name}.db")
        assert await memory.checkpoints.find(thread) is None
        await memory.checkpoints.put(thread, checkpoint)
        await memory.close()
    assert not link.is_symlink()
    assert target.read_bytes() == content
    problems = {
        Path(record.__dict__["file"]).name: record.__dict__["problem"]
        for record in caplog.records
        if record.message == "checkpoints.made_anew"
    }
    assert problems.keys() == {"link.db.checkpoints", "public.db.checkpoints"}
    assert "symbolic link" in problems["link.db.checkpoints"]
    assert "may write to it" in problems["public.db.checkpoints"]
