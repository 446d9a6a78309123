"""What is kept beside tasks, in the same commits as their events: aliases and webhooks."""

import asyncio
from collections.abc import Callable, Sequence

from trunkline.journal.group_commit import Pending, PendingAlias, PendingWebhook
from trunkline.journal.store import JournalStore, WebhookRow


class AliasTable:
    """The ids that clients chose, each of one account, and the tasks that they stand for."""

    def __init__(self, store: JournalStore, put: Callable[[Pending], None]) -> None:
        """`put` takes what is to be written with the next commit."""
        self._store = store
        self._put = put

    def bind(
        self, account: str, alias: str, task_id: str, *, replaces: str = ""
    ) -> asyncio.Future[str]:
        """Let an alias stand for a task, unless it stands for one other than `replaces`.

        Resolves to the id of the task that it stands for now. Errors are those of the future:
        FencedError, JournalUnavailableError.
        """
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._put(PendingAlias(account, alias, task_id, replaces, done))
        return done

    def find(self, account: str, alias: str) -> str | None:
        """Return the id of the task that an alias stands for. JournalUnavailableError."""
        return self._store.find_alias(account, alias)


class WebhookTable:
    """The webhooks of tasks. Errors of what is written are those of the futures."""

    def __init__(self, store: JournalStore, put: Callable[[Pending], None]) -> None:
        """`put` takes what is to be written with the next commit."""
        self._store = store
        self._put = put

    def save(self, row: WebhookRow) -> asyncio.Future[None]:
        """Keep a webhook as it is now.

        TaskNotFoundError when its task is there no more, FencedError, JournalUnavailableError.
        """
        return self._write(row.task_id, row.config_id, row)

    def delete(self, task_id: str, config_id: str) -> asyncio.Future[None]:
        """Keep a webhook no longer. FencedError, JournalUnavailableError."""
        return self._write(task_id, config_id, None)

    def find(
        self, *, task_id: str = "", states: Sequence[int] = (), limit: int | None = None
    ) -> list[WebhookRow]:
        """Return webhooks of one task or of all, in any of the states, the last made first.

        Raises:
            JournalUnavailableError.
        """
        return self._store.find_webhooks(task_id=task_id, states=states, limit=limit)

    def _write(self, task_id: str, config_id: str, row: WebhookRow | None) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._put(PendingWebhook(task_id, config_id, row, done))
        return done
