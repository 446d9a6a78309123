"""A data directory in which every store has something."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from harness.journal.builders import completed, created
from harness.journal.opening import open_journal
from trunkline.conversations.sqlite import open_sqlite_memory
from trunkline.conversations.store import ConversationKey, StoredState
from trunkline.core.small_files import FolderFiles
from trunkline.journal.artifacts import Reference
from trunkline.journal.artifacts.folder import FolderBlobStore, blob_folder
from trunkline.journal.events import build_draft
from trunkline.messages.sqlite_store import SqliteMessageStore
from trunkline.messages.store import Envelope, NewMessage
from trunkline.tasks.usage_store import SqliteUsageStore, Subject, Usage, UsageRecord
from trunkline.tools.used_approvals import SqliteUsedApprovals
from trunkline.v1 import event_pb2

CONVERSATION: Final = ConversationKey("maker", "context", "account")
STATE: Final = StoredState(1, "text", b"state")
CONTENT: Final = bytes(range(256)) * 3000


async def make_full_folder(folder: Path) -> None:
    """Make a data directory in which every store has something."""
    path = folder / "journals" / "maker.db"
    journal = open_journal(path)
    task_id = journal.new_task_id()
    blob = await FolderBlobStore(blob_folder(path)).put(
        Reference.new(task_id), CONTENT, media_type="text/plain", filename="a.txt"
    )
    await journal.create(task_id, created())
    delta = event_pb2.ArtifactDelta(artifact_id="a", last=True)
    delta.start.name = "files"
    delta.part.CopyFrom(blob.to_part())
    await journal.append(task_id, journal.epoch, [build_draft([event_pb2.Event(delta=delta)])])
    await journal.append(task_id, journal.epoch, [build_draft([completed()])])
    await journal.close()
    memory = await open_sqlite_memory(path)
    await memory.conversations.replace(
        ConversationKey("maker", "context", "account"),
        STATE,
        known_step=0,
    )
    await memory.close()
    usage = SqliteUsageStore(folder)
    usage.add([UsageRecord([Subject("account")], Usage(1, 2, 3), datetime.now(UTC))])
    usage.close()
    assert await SqliteUsedApprovals(folder).use("digest")
    await FolderFiles(folder).write("workflows/a/1.json", b"{}")
    async with SqliteMessageStore(folder / "private" / "messages.db", queue_limit=10) as messages:
        envelope = Envelope(
            envelope_id="first", sender="user:ann", recipient="echo", type="note", text="hello"
        )
        envelope.correlation_id = envelope.envelope_id
        envelope.create_time.GetCurrentTime()
        await messages.accept([NewMessage("acme", envelope, caller="ann", recipients=["echo"])])
