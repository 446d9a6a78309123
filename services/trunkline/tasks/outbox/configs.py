"""Sets, lists and removes the webhooks of an account's tasks."""

import uuid
from collections.abc import Sequence
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
from trunkline.tasks.task_rows import get_account_row
from trunkline.v1 import event_pb2

WEBHOOKS_OF_A_TASK: Final = 20
# In these versions of A2A, only ids that the client sets allow several webhooks of a task.
_ONE_WITHOUT_ID: Final = frozenset({"0.1", "0.3"})
# The `registration` of a webhook that came by a message, without an id.
_BY_MESSAGE: Final = "message"
# The class defines a method `list`.
Configs: TypeAlias = list[Config]


class PushConfigs:
    """The webhook configurations of tasks. Secrets are stored and never returned.

    Methods with an `account` raise TaskNotFoundError for a task of another account, and
    PeerUnavailableError for a journal that has moved to another host.
    """

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox

    async def set(
        self, config: Config, *, account: str, version: str, request_id: str = ""
    ) -> Config:
        """Register a webhook of a task, in place of any webhook with its id; return it with its id.

        Without an id it is another webhook, and gets one, unless this request has registered it
        before. Before A2A 1.0 it is the only one of its task without an id.

        Raises:
            TaskNotFoundError.
            InvalidArgumentError: it has no URL, is too long, or the task has too many.
            JournalUnavailableError.
        """
        journal = self.outbox.get_journal(config.task_id)
        row = await get_account_row(journal, config.task_id, account)
        return await self._put(journal, row, config, version, registration=request_id)

    async def put_of_message(
        self, journal: Journal, task: TaskRow, config: Config, version: str
    ) -> Config:
        """Register the webhook of a task's next message; raises as `set` does.

        Clients send a webhook with each message. A webhook without an id therefore takes the place
        of the webhook of an earlier message.
        """
        return await self._put(journal, task, config, version, registration=_BY_MESSAGE)

    async def _put(
        self, journal: Journal, task: TaskRow, config: Config, version: str, *, registration: str
    ) -> Config:
        """Register a webhook of a task, in place of any webhook with its id.

        If the configuration has not changed, delivery continues at its position. Otherwise it
        starts at the first event.
        """
        check_config(config)
        async with self.outbox.changing(journal):
            registered = await _read_webhooks(journal, task.task_id)
            config_id = config.id or _choose_id(task.task_id, registered, version, registration)
            stored = normalize_config(config, task_id=task.task_id, config_id=config_id)
            delivery = self.outbox.find((task.task_id, stored.id))
            if delivery is None or (delivery.webhook.config, delivery.webhook.version) != (
                stored,
                version,
            ):
                _check_limit(registered, stored)
                webhook = self._build_webhook(stored, task, version)
                webhook.registration = "" if config.id else registration
                webhook.traceparent = (await journal.snapshot(task.task_id)).traceparent
                await self.outbox.store(journal, webhook)
        return redact_config(stored)

    def build_for_new_task(
        self, task_id: str, created: event_pb2.TaskCreated, config: Config, version: str
    ) -> Webhook:
        """Return a webhook to store together with its new task. InvalidArgumentError."""
        check_config(config)
        config_id = config.id or task_id
        stored = normalize_config(config, task_id=task_id, config_id=config_id)
        webhook = self._build_webhook(stored, created, version)
        webhook.registration = "" if config.id else _BY_MESSAGE
        webhook.traceparent = created.traceparent
        return webhook

    async def get(self, task_id: str, config_id: str, *, account: str) -> Config:
        """Return a webhook. Without an id, return the webhook that was registered first.

        Raises:
            WebhookNotFoundError, TaskNotFoundError, JournalUnavailableError.
        """
        for config in await self._list_configs(task_id, account):
            if config_id in ("", config.id):
                return config
        raise WebhookNotFoundError(task_id, config_id)

    async def list(
        self, task_id: str, *, account: str, page_size: int = 0, page_token: str = ""
    ) -> tuple[Configs, str]:
        """Return the webhooks of a task, oldest first, and the next page's token.

        Raises:
            TaskNotFoundError, JournalUnavailableError.
            InvalidArgumentError: the page size or token is wrong.
        """
        if page_size < 0:
            raise InvalidArgumentError("page_size", "must be 0 (all) or more")
        configs = await self._list_configs(task_id, account)
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
        row = await get_account_row(journal, task_id, account)
        await self.outbox.remove(journal, (task_id, config_id), account=row.account)

    async def _list_configs(self, task_id: str, account: str) -> Configs:
        stored = self.outbox.stored
        if stored is not None and not self.outbox.has_journal(task_id):
            await get_account_row(stored, task_id, account)
            rows = await stored.find_webhooks(task_id=task_id)
            return [redact_config(from_row(row).config) for row in reversed(rows)]
        journal = self.outbox.get_journal(task_id)
        await get_account_row(journal, task_id, account)
        return [redact_config(webhook.config) for webhook in await _read_webhooks(journal, task_id)]

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


async def _read_webhooks(journal: Journal, task_id: str) -> Sequence[Webhook]:
    """Return the webhooks of a task with their secrets, oldest first."""
    return [from_row(row) for row in reversed(await journal.webhooks.find(task_id=task_id))]


def _choose_id(task_id: str, registered: Sequence[Webhook], version: str, registration: str) -> str:
    """Return the id of a webhook that came without an id.

    Webhooks of the same registration have the same id. The first webhook gets the id of the task,
    as the official SDKs assign it.
    """
    if version in _ONE_WITHOUT_ID:
        return task_id
    for earlier in registered:
        if registration and earlier.registration == registration:
            return earlier.config.id
    is_first = all(earlier.config.id != task_id for earlier in registered)
    return task_id if is_first else uuid.uuid4().hex


def _check_limit(registered: Sequence[Webhook], config: Config) -> None:
    ids = {earlier.config.id for earlier in registered}
    if len(ids | {config.id}) > WEBHOOKS_OF_A_TASK:
        problem = f"the task has {WEBHOOKS_OF_A_TASK} webhooks; delete one first"
        raise InvalidArgumentError("config", problem)
