"""Checkpoints are encrypted, each bound to its thread."""

import sqlite3
from pathlib import Path

from harness.journal.protected import new_key, open_keyring
from trunkline.agents.reasoning.checkpoint_files import open_checkpoint_file

SECRET = "the patient's name"


def test_checkpoints_are_encrypted_and_bound_to_their_thread(tmp_path: Path) -> None:
    path = tmp_path / "mesh.db.checkpoints"
    keyring = open_keyring(tmp_path, new_key())
    with open_checkpoint_file(path, keyring) as file:
        file.saver.replace_state("one", "", {"text": SECRET}, 1)
        file.saver.replace_state("two", "", {"text": "other"}, 1)
        assert file.saver.load_state("one") == {"text": SECRET}
        assert file.saver.find_newest_state([file.saver.conn], "two", "") == (1, {"text": "other"})
    assert SECRET.encode() not in b"".join(
        entry.read_bytes() for entry in tmp_path.glob("mesh.db.checkpoints*")
    )
    connection = sqlite3.connect(path)
    connection.execute(
        "UPDATE checkpoints SET checkpoint = "
        "(SELECT checkpoint FROM checkpoints WHERE thread_id = 'one')"
    )
    connection.commit()
    connection.close()
    with open_checkpoint_file(path, keyring) as file:
        assert file.saver.find_newest_state([file.saver.conn], "two", "") is None
        assert file.saver.load_state("two") is None
        assert file.saver.load_state("one") == {"text": SECRET}


def test_plain_checkpoints_stay_readable_after_a_key_is_set(tmp_path: Path) -> None:
    path = tmp_path / "mesh.db.checkpoints"
    with open_checkpoint_file(path) as file:
        file.saver.replace_state("one", "", {"text": SECRET}, 1)
    with open_checkpoint_file(path, open_keyring(tmp_path, new_key())) as file:
        assert file.saver.load_state("one") == {"text": SECRET}
