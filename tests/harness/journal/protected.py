"""Keyrings and journals for tests of encryption."""

import base64
import os
from pathlib import Path

from harness.journal.builders import append, begin, completed, created
from trunkline.core.encryption import Keyring, KeySource
from trunkline.core.json_values import update_struct
from trunkline.journal.events import build_draft
from trunkline.journal.journal import Journal
from trunkline.journal.retention import Compactor, Retention
from trunkline.journal.sqlite import SqliteStore
from trunkline.tasks.outbox.webhook import DEAD, Config, Webhook, to_row

SECRET_TEXT = "the patient's name"
SECRET_TOKEN = "bearer of the webhook"


def new_key() -> str:
    return base64.b64encode(os.urandom(32)).decode()


def open_keyring(folder: Path, keys: str = "") -> Keyring:
    return Keyring.open(folder, KeySource(keys=keys))


async def write_task(journal: Journal, *, is_ended: bool) -> str:
    """Write a task with texts, metadata and a webhook."""
    task_id = journal.new_task_id()
    event = created()
    update_struct(event.created.metadata, {"note": SECRET_TEXT})
    await journal.create(task_id, event)
    await journal.append(task_id, journal.epoch, [build_draft([begin("a", SECRET_TEXT)])])
    await journal.append(task_id, journal.epoch, [build_draft([append("a", "more")])])
    config = Config(id="w", task_id=task_id, url="https://hook.example", token=SECRET_TOKEN)
    await journal.webhooks.save(to_row(Webhook(config=config, state=DEAD)))
    if is_ended:
        await journal.append(task_id, journal.epoch, [build_draft([completed()])])
    return task_id


async def write_journal(path: Path, keyring: Keyring | None) -> list[str]:
    """Write a journal with a compacted, an ended and an unfinished task; return their ids."""
    store = SqliteStore.open(path, keyring=keyring)
    journal = Journal(store, [], path=path, keyring=keyring)
    task_ids = [await write_task(journal, is_ended=True)]
    compactor = Compactor(store, Retention(compact_after_s=0))
    await compactor.scan()
    while (step := await compactor.next_step(1 << 20)) is not None:
        await step.write()
        step.confirm()
    task_ids.append(await write_task(journal, is_ended=True))
    task_ids.append(await write_task(journal, is_ended=False))
    await journal.close()
    return task_ids
