"""Aliases and webhooks of tasks, written in the same commits as events."""

import asyncio
from collections.abc import Callable, Sequence

from trunkline.journal.group_commit import Pending, PendingAlias, PendingWebhook
from trunkline.journal.store import JournalStore, WebhookRow


class AliasTable:
    """Task ids that clients chose, by account, and the tasks they stand for."""

    def __init__(self, store: JournalStore, put: Callable[[Pending], None]) -> None:
        """`put` takes what is to be written with the next commit."""
        self._store = store
        self._put = put

    def bind(
        self, account: str, alias: str, task_id: str, *, replaces: str = ""
    ) -> asyncio.Future[str]:
        """Bind an alias to a task, unless it is bound to another task than `replaces`.

        The future resolves to the id of the task that the alias is bound to now. Its errors:
        FencedError, JournalUnavailableError.
        """
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._put(PendingAlias(account, alias, task_id, replaces, done))
        return done

    def find(self, account: str, alias: str) -> str | None:
        """Return the id of the task that an alias stands for. JournalUnavailableError."""
        return self._store.find_alias(account, alias)


class WebhookTable:
    """The webhooks of tasks. Errors of writes are set on the futures."""

    def __init__(self, store: JournalStore, put: Callable[[Pending], None]) -> None:
        """`put` takes what is to be written with the next commit."""
        self._store = store
        self._put = put

    def save(self, row: WebhookRow) -> asyncio.Future[None]:
        """Store a webhook.

        Errors: TaskNotFoundError (the task no longer exists), FencedError, JournalUnavailableError.
        """
        return self._write(row.task_id, row.config_id, row)

    def delete(self, task_id: str, config_id: str) -> asyncio.Future[None]:
        """Delete a webhook. FencedError, JournalUnavailableError."""
        return self._write(task_id, config_id, None)

    def find(
        self, *, task_id: str = "", states: Sequence[int] = (), limit: int | None = None
    ) -> list[WebhookRow]:
        """Return webhooks of one task or of all, in any of the states, the newest first.

        Raises:
            JournalUnavailableError.
        """
        return self._store.find_webhooks(task_id=task_id, states=states, limit=limit)

    def _write(self, task_id: str, config_id: str, row: WebhookRow | None) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._put(PendingWebhook(task_id, config_id, row, done))
        return done
