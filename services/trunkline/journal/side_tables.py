"""The aliases and webhooks of tasks, which are written in the same commits as events."""

import asyncio
from collections.abc import Callable, Sequence

from trunkline.core.storable_texts import is_storable
from trunkline.journal.group_commit import (
    Pending,
    PendingAlias,
    PendingWebhook,
)
from trunkline.journal.store import JournalStore, WebhookRow


class AliasTable:
    """The aliases of tasks: task ids that clients chose, unique for an account."""

    def __init__(self, store: JournalStore, put: Callable[[Pending], None]) -> None:
        """`put` adds a write to the next commit."""
        self._store = store
        self._put = put

    def bind(
        self, account: str, alias: str, task_id: str, *, replaces: str = ""
    ) -> asyncio.Future[str]:
        """Bind an alias to a task if it is unbound, or bound to the task `replaces`.

        The future resolves to the id of the task that the alias is bound to after the commit.

        Errors of the future: InvalidArgumentError (a text has NUL or an unpaired surrogate),
        FencedError (another process has taken over), JournalUnavailableError.
        """
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._put(PendingAlias(account, alias, task_id, replaces, done))
        return done

    async def find(self, account: str, alias: str) -> str | None:
        """Return the id of the task that an alias is bound to. The task may not exist.

        Raises:
            JournalUnavailableError: the journal can't be read.
        """
        if not is_storable(account) or not is_storable(alias):
            return None
        return (await self._store.find_aliases([(account, alias)])).get((account, alias))


class WebhookTable:
    """The webhooks of tasks, and the state of their delivery."""

    def __init__(self, store: JournalStore, put: Callable[[Pending], None]) -> None:
        """`put` adds a write to the next commit."""
        self._store = store
        self._put = put

    def save(self, row: WebhookRow) -> asyncio.Future[None]:
        """Store a webhook, or replace it. The future resolves after the commit.

        Errors of the future: TaskNotFoundError (the task no longer exists), FencedError (another
        process has taken over), JournalUnavailableError.
        """
        return self._write(row.task_id, row.config_id, row)

    def delete(self, task_id: str, config_id: str) -> asyncio.Future[None]:
        """Delete a webhook, if it exists. The future resolves after the commit.

        Errors of the future: FencedError (another process has taken over),
        JournalUnavailableError.
        """
        return self._write(task_id, config_id, None)

    async def find(
        self, *, task_id: str = "", states: Sequence[int] = (), limit: int | None = None
    ) -> list[WebhookRow]:
        """Return webhooks of one task or of all, in one of the states or in any, newest first.

        Raises:
            JournalUnavailableError: the journal can't be read.
        """
        if not is_storable(task_id):
            return []
        return await self._store.find_webhooks(task_id=task_id, states=states, limit=limit)

    def _write(self, task_id: str, config_id: str, row: WebhookRow | None) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._put(PendingWebhook(task_id, config_id, row, done))
        return done
