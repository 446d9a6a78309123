"""Encrypts the content of a journal's rows. Each ciphertext is bound to its place.

The place is authenticated with the content, so a ciphertext that was changed, or moved to another
row, is refused. The place of an event names the event before it, so that a row that was cut out
makes the next one unreadable. The place of a task's metadata has all columns of the task's row.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from trunkline.core.encryption import Cipher, Keyring, is_encrypted
from trunkline.errors import JournalDamagedError
from trunkline.journal.store import SealedBatch, TaskRow, WebhookKey

_NO_KEYRING: Final = (
    "it is encrypted, and its data directory has no keyring; restore the keyring, without which it "
    "can't be read"
)
_NOT_ENCRYPTED: Final = (
    "a row is not encrypted, but all rows were before: another program changed it; restore a backup"
)


class RowCipher:
    """Encrypts and decrypts rows of one journal. Without a key, content stays as it is."""

    def __init__(self, cipher: Cipher | None, path: Path, *, is_strict: bool) -> None:
        """With `is_strict`, plain content is refused, because all content was encrypted before."""
        self._cipher = cipher
        self._path = path
        self._is_strict = is_strict

    @classmethod
    def open(
        cls, keyring: Keyring | None, journal_id: str, path: Path, *, is_strict: bool
    ) -> "RowCipher":
        """Return the cipher of a journal. It encrypts if the keyring has data keys."""
        if keyring is None or not keyring.is_encrypting:
            return cls(None, path, is_strict=False)
        cipher = keyring.cipher(f"journal {journal_id}", name=str(path))
        return cls(cipher, path, is_strict=is_strict)

    @property
    def is_encrypting(self) -> bool:
        """New content is encrypted."""
        return self._cipher is not None

    def encrypt(self, content: bytes, place: str) -> bytes:
        """Return content as it is stored at a place."""
        return content if self._cipher is None else self._cipher.encrypt(content, place)

    def encrypt_events(self, batches: Sequence[SealedBatch]) -> list[bytes]:
        """Return the bodies of batches as they are stored."""
        if self._cipher is None:
            return [batch.sealed for batch in batches]
        return self._cipher.encrypt_all(
            [
                (
                    batch.sealed,
                    event_place(
                        batch.task_id,
                        batch.first_sequence - 1,
                        batch.first_sequence + batch.count - 1,
                    ),
                )
                for batch in batches
            ]
        )

    def decrypt(self, stored: bytes, place: str) -> bytes:
        """Return the content that is stored at a place.

        Raises:
            JournalDamagedError: it was changed or moved, its key is missing, or it is plain
                although all content was encrypted before.
        """
        if not is_encrypted(stored):
            if self._is_strict:
                raise JournalDamagedError(str(self._path), _NOT_ENCRYPTED)
            return stored
        if self._cipher is None:
            raise JournalDamagedError(str(self._path), _NO_KEYRING)
        return self._cipher.decrypt(stored, place)

    def encrypt_metadata(self, row: TaskRow) -> bytes:
        """Return the metadata of a row as it is stored. It is bound to the row's other columns."""
        return row.metadata if self._cipher is None else self.encrypt(row.metadata, row_place(row))

    def decrypt_metadata(self, stored: TaskRow) -> TaskRow:
        """Return a stored row with readable metadata.

        Raises:
            JournalDamagedError: any column of the row was changed; see `decrypt`.
        """
        if self._cipher is None and not is_encrypted(stored.metadata):
            return stored
        return stored._replace(metadata=self.decrypt(stored.metadata, row_place(stored)))


def event_place(task_id: str, previous: int, sequence: int) -> str:
    """Return the place of a batch of events.

    `sequence` is the batch's last sequence, and `previous` is the sequence before its first one.
    """
    return f"events {task_id} {previous} {sequence}"


def row_place(row: TaskRow) -> str:
    """Return the place of a task's metadata, which has the other stored columns of its row."""
    columns = (
        row.task_id,
        row.context_id,
        row.account,
        row.agent,
        row.state,
        row.status_time_ns,
        row.create_time_ns,
        row.parent_task_id,
        row.head,
        row.ended_ns,
    )
    return f"tasks {json.dumps(columns)}"


def fold_place(task_id: str, epoch: int, forwarded: str) -> str:
    """Return the place of the fold of a compacted task. `forwarded` is a JSON object."""
    return f"folds {task_id} {epoch} {forwarded}"


def webhook_place(key: WebhookKey) -> str:
    """Return the place of a webhook."""
    return f"webhooks {key[0]} {key[1]}"


def statement_place(task_id: str) -> str:
    """Return the place of the statement about the user of an orphaned child."""
    return f"stray_users {task_id}"
