"""The keyring of a data directory: wrong and lost keys, rotation, and content that was moved."""

import json
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from harness.journal.protected import new_key, open_keyring
from trunkline.core.encryption import (
    Keyring,
    KeySource,
    configured_keys,
    copy_keyring,
    is_encrypted,
    keyring_path,
    rewrap,
)
from trunkline.core.settings import Settings
from trunkline.errors import ConfigurationError, JournalUnavailableError

KEY, OTHER = new_key(), new_key()


def problem_of(folder: Path, keys: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        open_keyring(folder, keys)
    return str(caught.value)


def test_a_keyring_without_a_key_does_not_encrypt_and_has_no_file(tmp_path: Path) -> None:
    keyring = open_keyring(tmp_path)
    assert not keyring.is_encrypting
    assert not keyring.has_encrypted_journal("a.db")
    assert not keyring_path(tmp_path).exists()


def test_a_keyring_is_a_private_file(tmp_path: Path) -> None:
    assert open_keyring(tmp_path, KEY).is_encrypting
    assert stat.S_IMODE(keyring_path(tmp_path).stat().st_mode) == 0o600


def test_processes_that_start_at_once_share_one_keyring(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as executor:
        keyrings = list(executor.map(lambda _: open_keyring(tmp_path, KEY), range(8)))
    assert len({keyring.current_id for keyring in keyrings}) == 1


def test_a_lost_key_is_reported_with_the_key_that_is_needed(tmp_path: Path) -> None:
    open_keyring(tmp_path, KEY)
    (key_id,) = json.loads(keyring_path(tmp_path).read_bytes())["data_keys"][0]["wrapped"]
    problem = problem_of(tmp_path, "")
    assert problem.startswith("encryption_key: is not set, but the data in ")
    assert f"is encrypted under the key {key_id}" in problem
    problem = problem_of(tmp_path, OTHER)
    assert key_id in problem
    assert "without it the data can't be read" in problem
    assert KEY not in problem


@pytest.mark.parametrize(
    "key",
    ["short", KEY[:-4], "not base64 " * 4, "é" * 44],
    ids=["short", "cut", "not base64", "not ASCII"],
)
def test_a_malformed_key_is_refused_and_not_repeated(tmp_path: Path, key: str) -> None:
    problem = problem_of(tmp_path, key)
    assert "a key is not 32 bytes in base64; make one with" in problem
    assert key not in problem


def test_content_is_bound_to_its_place_and_journal(tmp_path: Path) -> None:
    keyring = open_keyring(tmp_path, KEY)
    cipher = keyring.cipher("journal a", name="a.db")
    content = cipher.encrypt(b"secret", "commits 1")
    assert is_encrypted(content)
    assert b"secret" not in content
    assert cipher.decrypt(content, "commits 1") == b"secret"
    with pytest.raises(JournalUnavailableError, match="moved from another place"):
        cipher.decrypt(content, "commits 2")
    with pytest.raises(JournalUnavailableError, match="moved from another place"):
        keyring.cipher("journal b", name="b.db").decrypt(content, "commits 1")
    for index in range(5, len(content)):
        changed = bytearray(content)
        changed[index] ^= 1
        with pytest.raises(JournalUnavailableError, match="was altered"):
            cipher.decrypt(bytes(changed), "commits 1")
    with pytest.raises(JournalUnavailableError, match="was altered"):
        cipher.decrypt(content[:20], "commits 1")
    assert cipher.decrypt(b"plain", "commits 1") == b"plain"


def test_keys_are_rotated_while_processes_use_them(tmp_path: Path) -> None:
    running = open_keyring(tmp_path, KEY)
    cipher = running.cipher("journal a", name="a.db")
    before = cipher.encrypt(b"before", "p")

    rewrap(Settings(data_dir=tmp_path, encryption_key=f"{OTHER} {KEY}"), with_new_data_key=True)
    restarted = open_keyring(tmp_path, f"{OTHER} {KEY}").cipher("journal a", name="a.db")
    after = restarted.encrypt(b"after", "p")
    # A process with only the old key meets an unknown data key, and reads the keyring again.
    assert cipher.decrypt(after, "p") == b"after"
    assert running.current_id == open_keyring(tmp_path, OTHER).current_id
    assert restarted.decrypt(before, "p") == b"before"

    rewrap(Settings(data_dir=tmp_path, encryption_key=OTHER), with_new_data_key=False)
    assert "is encrypted under the key" in problem_of(tmp_path, KEY)
    assert running.refresh() is True
    assert cipher.decrypt(cipher.encrypt(b"later", "p"), "p") == b"later"


def test_a_running_process_takes_the_new_key_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    settings = Settings(data_dir=tmp_path / "data", encryption_key_file=file)

    def configure(*keys: str) -> None:
        file.write_text("\n".join(keys))
        file.chmod(0o600)

    configure(KEY)
    running = Keyring.open(settings.data_dir, configured_keys(settings))
    before = running.cipher("journal a", name="a.db").encrypt(b"before", "p")
    configure(OTHER, KEY)
    rewrap(settings, with_new_data_key=False)
    configure(OTHER)
    # It is encrypted under the new key only, which the process has not read yet.
    new_id = rewrap(settings, with_new_data_key=True).data_keys[-1].id
    file.unlink()
    running.add_encrypted_journal("new.db")
    assert running.refresh() is False
    configure(OTHER)
    assert running.refresh() is True
    assert running.has_encrypted_journal("new.db")
    assert not running.has_encrypted_journal("other.db")
    assert running.current_id == new_id
    cipher = running.cipher("journal a", name="a.db")
    assert cipher.decrypt(cipher.encrypt(b"after", "p"), "p") == b"after"
    assert cipher.decrypt(before, "p") == b"before"


def test_a_rotation_needs_the_old_key(tmp_path: Path) -> None:
    open_keyring(tmp_path, KEY)
    for key, problem in ((OTHER, "is encrypted under the key"), ("", "is not set")):
        with pytest.raises(ConfigurationError, match=problem):
            rewrap(Settings(data_dir=tmp_path, encryption_key=key), with_new_data_key=False)
    assert open_keyring(tmp_path, KEY).is_encrypting


def test_a_key_comes_from_a_file_or_a_command(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    file.chmod(0o600)
    settings = Settings(encryption_key_file=file)
    expected = KeySource(keys=KEY).read()
    assert configured_keys(settings).read() == expected
    settings = Settings(encryption_key_command=f"cat '{file}'")
    assert configured_keys(settings).read() == expected
    file.chmod(0o644)
    with pytest.raises(ConfigurationError, match="other users may read it"):
        KeySource(file=file).read()


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (KeySource(command="false"), "encryption_key_command: exited with 1"),
        (KeySource(command="true"), "encryption_key_command: has no key"),
        (KeySource(command="/nowhere/at/all"), "encryption_key_command: can't be run"),
        (KeySource(file=Path("/nowhere/at/all")), "can't be read"),
    ],
)
def test_a_source_without_a_key_is_reported(source: KeySource, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        source.read()


def test_only_one_source_may_be_set() -> None:
    settings = Settings(encryption_key=KEY, encryption_key_command="cat key")
    with pytest.raises(ConfigurationError, match="set only one of"):
        configured_keys(settings)


def test_a_copy_for_a_backup_is_used_with_the_same_key(tmp_path: Path) -> None:
    keyring = open_keyring(tmp_path / "data", KEY)
    keyring.add_encrypted_journal("a.db")
    assert copy_keyring(tmp_path / "data", tmp_path / "copy") > 0
    restored = open_keyring(tmp_path / "copy", KEY)
    assert restored.current_id == keyring.current_id
    assert restored.has_encrypted_journal("a.db")


def test_a_damaged_keyring_is_reported(tmp_path: Path) -> None:
    open_keyring(tmp_path, KEY)
    path = keyring_path(tmp_path)
    table = json.loads(path.read_bytes())
    for content in (b"{", b"[]", b'{"version": 1}', json.dumps(table | {"version": 3}).encode()):
        path.write_bytes(content)
        assert str(path) in problem_of(tmp_path, KEY)
    with pytest.raises(ConfigurationError):
        Keyring.read(tmp_path, KeySource(keys=KEY))
