"""An outbox on a journal, with a clock that the test moves, and a claimant of its webhooks."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from harness.journal.builders import append, begin, completed, created
from harness.journal.opening import open_journal
from trunkline.journal.events import build_draft
from trunkline.tasks.outbox import Outbox, PushConfigs, RetryPolicy
from trunkline.v1 import push_notification_pb2, webhook_service_pb2

Config = push_notification_pb2.TaskPushNotificationConfig
Claim = webhook_service_pb2.WebhookClaim
Record = webhook_service_pb2.RecordDeliveryRequest

LEASE_S = 30.0
HOUR_S = 3600.0
ACCOUNT = "acme"


@dataclass
class StoppedClock:
    """The wall clock and the monotonic clock of a host, which a test moves together."""

    now_s: float = 1000.0
    time_ns: int = 1_700_000_000_000_000_000

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        self.time_ns += int(seconds * 1e9)


@dataclass
class OutboxBench:
    """A journal with tasks, and the calls of a claimant to its outbox."""

    path: Path
    is_suspending: bool = False
    """The store of the journal suspends its callers."""
    disk: asyncio.Event = field(default_factory=asyncio.Event)
    """The disk of the journal is stuck while this event is not set."""
    clock: StoppedClock = field(default_factory=StoppedClock)

    @classmethod
    async def open(cls, path: Path, *, is_suspending: bool = False) -> Self:
        """Open the journal, or create it."""
        bench = cls(path, is_suspending)
        bench.disk.set()
        await bench.reopen()
        return bench

    async def reopen(self) -> None:
        """Open the journal with a new outbox."""
        self.journal = open_journal(self.path, is_suspending=self.is_suspending, disk=self.disk)
        pace = RetryPolicy(
            give_up_s=24 * 3600.0,
            now_s=lambda: self.clock.now_s,
            time_ns=lambda: self.clock.time_ns,
        )
        self.outbox = Outbox(pace)
        self.configs = PushConfigs(self.outbox)
        await self.outbox.open(self.journal)

    async def crash(self) -> None:
        """End as a killed process ends, and start again from the journal."""
        self.outbox.close(self.journal)
        await self.journal.close()
        await self.reopen()

    async def close(self) -> None:
        self.outbox.close(self.journal)
        await self.journal.close()

    async def new_task(self, *, webhooks: int = 1) -> str:
        task_id = self.journal.new_task_id()
        await self.journal.create(task_id, created(account=ACCOUNT))
        await self.journal.append(task_id, self.journal.epoch, [build_draft([begin("a", "begun")])])
        for number in range(webhooks):
            await self.register(task_id, str(number))
        return task_id

    async def register(self, task_id: str, config_id: str, *, token: str = "") -> None:
        url = "https://receiver.example"
        config = Config(id=config_id, task_id=task_id, url=url, token=token)
        await self.configs.set(config, account=ACCOUNT, version="1.0")

    async def write(self, task_id: str) -> int:
        return await self.journal.append(
            task_id, self.journal.epoch, [build_draft([append("a", "more")])]
        )

    async def end(self, task_id: str) -> int:
        return await self.journal.append(task_id, self.journal.epoch, [build_draft([completed()])])

    async def claim(self, limit: int = 100) -> list[Claim]:
        return await self.outbox.claim(limit=limit, lease_s=LEASE_S)

    async def claim_one(self) -> Claim:
        (claim,) = await self.claim()
        return claim

    async def record_progress(self, claim: Claim, cursor: str) -> None:
        await self.outbox.record(Record(claim_id=claim.claim_id, sent=cursor))

    async def record_finished(self, claim: Claim, cursor: str = "") -> None:
        await self.outbox.record(Record(claim_id=claim.claim_id, finished=cursor))

    async def record_failure(
        self, claim: Claim, reason: str = "HTTP 503", *, retry_after_s: int = 0
    ) -> None:
        record = Record(claim_id=claim.claim_id, failed=reason)
        record.retry_after.FromSeconds(retry_after_s)
        await self.outbox.record(record)

    async def record_gone(self, claim: Claim, reason: str = "HTTP 410") -> None:
        await self.outbox.record(Record(claim_id=claim.claim_id, gone=reason))

    async def get_webhook(self, task_id: str = "") -> webhook_service_pb2.Webhook:
        """Return the only webhook."""
        (webhook,) = await self.outbox.list(task_id=task_id)
        return webhook
