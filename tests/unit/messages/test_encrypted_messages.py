"""Messages at rest: no file shows their content, and the key changes, is checked and backed up."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from harness.journal.protected import new_key, open_keyring
from trunkline.cli.commands.data import back_up_data, check_data
from trunkline.core.encryption import Keyring, KeySource, rewrap
from trunkline.core.private_files import PRIVATE_FOLDER
from trunkline.core.settings import Settings
from trunkline.messages.sqlite_store import SqliteMessageStore
from trunkline.messages.store import Envelope, EnvelopeFilter, NewMessage
from trunkline.v1 import envelope_pb2 as pb2

SECRET = "patient-4711"


def message(id: str) -> NewMessage:  # noqa: A002  the name of the field
    envelope = Envelope(
        envelope_id=id, correlation_id=id, sender="a", recipient="b", type="note", text=SECRET
    )
    envelope.create_time.FromDatetime(datetime.now(UTC))
    return NewMessage("acme", envelope, recipients=("b",))


async def write(path: Path, keyring: Keyring | None, id: str) -> None:  # noqa: A002
    """Accept a message that becomes a dead letter."""
    async with SqliteMessageStore(path, queue_limit=10, keyring=keyring) as store:
        await store.accept([message(id)])
        (delivery,) = await anext(store.deliveries())
        begun = await store.begin_attempt(delivery, "task")
        await store.end(begun, pb2.DELIVERY_STATE_DEAD, problem=f"about {SECRET}")


async def read(path: Path, keyring: Keyring | None) -> list[tuple[str, str]]:
    """Return the text and the problem of each message."""
    async with SqliteMessageStore(path, queue_limit=10, keyring=keyring) as store:
        page = await store.read_page("acme", EnvelopeFilter(), page_size=9)
    return [
        (stored.envelope.text, stored.deliveries[0].attempts[0].problem) for stored in page.messages
    ]


def find_plain_text(folder: Path) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [str(path) for path in files if SECRET.encode() in path.read_bytes()]


async def test_no_file_shows_messages_and_the_key_changes(tmp_path: Path) -> None:
    data, old, new = tmp_path / "data", new_key(), new_key()
    path = data / PRIVATE_FOLDER / "messages.db"
    expected = (SECRET, f"about {SECRET}")
    await write(path, open_keyring(data, old), "1")
    assert find_plain_text(data) == []
    both = Settings(data_dir=data, encryption_key=f"{new} {old}")
    rewrap(both, with_new_data_key=True)
    rewrap(Settings(data_dir=data, encryption_key=new), with_new_data_key=False)
    keyring = Keyring.open(data, KeySource(keys=new))
    await write(path, keyring, "2")
    assert await read(path, keyring) == [expected, expected]
    assert find_plain_text(data) == []


async def test_what_was_stored_before_the_key_stays_readable(tmp_path: Path) -> None:
    path = tmp_path / PRIVATE_FOLDER / "messages.db"
    await write(path, None, "1")
    keyring = open_keyring(tmp_path, new_key())
    await write(path, keyring, "2")
    assert len(await read(path, keyring)) == 2


async def test_the_store_is_checked_and_backed_up(tmp_path: Path) -> None:
    data, copy = tmp_path / "data", tmp_path / "copy"
    path = data / PRIVATE_FOLDER / "messages.db"
    await write(path, None, "1")
    assert await asyncio.to_thread(check_data, data, json=True) == 0
    back_up_data(copy, data, json=True)
    assert await read(copy / PRIVATE_FOLDER / "messages.db", None) == [(SECRET, f"about {SECRET}")]
