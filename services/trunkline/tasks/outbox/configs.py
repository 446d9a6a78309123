"""Sets, lists and removes the webhooks of an account's tasks."""

import asyncio
from typing import Final, TypeAlias

from trunkline.errors import InvalidArgumentError, WebhookNotFoundError
from trunkline.journal.journal import Journal, TaskRow
from trunkline.tasks.outbox.outbox import Outbox
from trunkline.tasks.outbox.webhook import (
    PENDING,
    Config,
    Webhook,
    check_config,
    from_row,
    normalize_config,
    redact_config,
    timestamp,
)
from trunkline.tasks.submission import get_account_row
from trunkline.v1 import event_pb2

WEBHOOKS_OF_A_TASK: Final = 20
# The class defines a method `list`.
Configs: TypeAlias = list[Config]


class PushConfigs:
    """The webhook configurations of tasks. Secrets are stored and never returned.

    Methods with an `account` raise TaskNotFoundError for a task of another account, and
    PeerUnavailableError for a journal that has moved to another host.
    """

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self._lock = asyncio.Lock()

    async def set(self, config: Config, *, account: str, version: str) -> Config:
        """Register a webhook of a task; return it with its id.

        Raises:
            TaskNotFoundError.
            InvalidArgumentError: it has no URL, is too long, or the task has too many.
            JournalUnavailableError.
        """
        journal = self.outbox.get_journal(config.task_id)
        row = get_account_row(journal, config.task_id, account)
        return await self.put(journal, row, config, version)

    async def put(self, journal: Journal, task: TaskRow, config: Config, version: str) -> Config:
        """Register a webhook of a task, in place of the one with its id.

        If the configuration has not changed, delivery continues at its position. Otherwise it
        starts at the first event. Raises as `set` does.
        """
        check_config(config)
        stored = normalize_config(config, task.task_id)
        async with self._lock:
            delivery = self.outbox.find((task.task_id, stored.id))
            if delivery is None or (delivery.webhook.config, delivery.webhook.version) != (
                stored,
                version,
            ):
                self._check_limit(journal, stored)
                webhook = self._build_webhook(stored, task, version)
                webhook.traceparent = (await journal.snapshot(task.task_id)).traceparent
                await self.outbox.store(journal, webhook)
        return redact_config(stored)

    def build_for_new_task(
        self, task_id: str, created: event_pb2.TaskCreated, config: Config, version: str
    ) -> Webhook:
        """Return a webhook to store together with its new task. InvalidArgumentError."""
        check_config(config)
        webhook = self._build_webhook(normalize_config(config, task_id), created, version)
        webhook.traceparent = created.traceparent
        return webhook

    def get(self, task_id: str, config_id: str, *, account: str) -> Config:
        """Return a webhook; without an id, the one that was registered first.

        Raises:
            WebhookNotFoundError, TaskNotFoundError, JournalUnavailableError.
        """
        for config in self._list_configs(task_id, account):
            if config_id in ("", config.id):
                return config
        raise WebhookNotFoundError(task_id, config_id)

    def list(
        self, task_id: str, *, account: str, page_size: int = 0, page_token: str = ""
    ) -> tuple[Configs, str]:
        """Return the webhooks of a task, oldest first, and the next page's token.

        Raises:
            TaskNotFoundError, JournalUnavailableError.
            InvalidArgumentError: the page size or token is wrong.
        """
        if page_size < 0:
            raise InvalidArgumentError("page_size", "must be 0 (all) or more")
        configs = self._list_configs(task_id, account)
        if page_token:
            ids = [config.id for config in configs]
            if page_token not in ids:
                raise InvalidArgumentError(
                    "page_token", "is unknown or expired; start from the first page"
                )
            configs = configs[ids.index(page_token) + 1 :]
        page = configs[: page_size or None]
        return page, page[-1].id if len(page) < len(configs) else ""

    async def delete(self, task_id: str, config_id: str, *, account: str) -> None:
        """Remove a webhook if it exists.

        Raises:
            TaskNotFoundError, JournalUnavailableError.
        """
        journal = self.outbox.get_journal(task_id)
        get_account_row(journal, task_id, account)
        await self.outbox.remove(journal, (task_id, config_id))

    def _list_configs(self, task_id: str, account: str) -> Configs:
        journal = self.outbox.get_journal(task_id)
        get_account_row(journal, task_id, account)
        rows = reversed(journal.webhooks.find(task_id=task_id))
        return [redact_config(from_row(row).config) for row in rows]

    def _check_limit(self, journal: Journal, config: Config) -> None:
        ids = {row.config_id for row in journal.webhooks.find(task_id=config.task_id)}
        if len(ids | {config.id}) > WEBHOOKS_OF_A_TASK:
            problem = f"the task has {WEBHOOKS_OF_A_TASK} webhooks; delete one first"
            raise InvalidArgumentError("config", problem)

    def _build_webhook(
        self, config: Config, task: TaskRow | event_pb2.TaskCreated, version: str
    ) -> Webhook:
        return Webhook(
            config=config,
            account=task.account,
            version=version,
            agent=task.agent,
            state=PENDING,
            created=timestamp(self.outbox.retry.time_ns()),
        )
