"""Webhooks of a killed host, and their display on the command line."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from harness.agents.inline_agents import message
from harness.mesh import host_processes as mesh_callers
from harness.mesh.command_line import run_command
from harness.mesh.host_processes import PATIENCE_S, POLL_S
from harness.mesh.processes import Services
from trunkline.errors import FencedError, PeerError, TaskNotFoundError
from trunkline.mesh.client import Directory, HostClient
from trunkline.v1 import (
    message_service_pb2,
    push_notification_pb2,
    snapshot_pb2,
    webhook_service_pb2,
)

URL = "https://receiver.example/hook"
SECRET = "t0ken"


@dataclass
class Deliverer:
    """Delivers the webhook of one task, as a bridge does, and records its posts."""

    directory: Directory
    task_id: str = ""
    head: int = 0
    received: list[int] = field(default_factory=list)

    def host(self) -> HostClient:
        return self.directory.client_for_task(self.task_id)

    async def begin(self) -> None:
        """Send a message to echo and register a webhook for it; the task ends at once."""
        webhook = push_notification_pb2.TaskPushNotificationConfig(url=URL, token=SECRET)
        answer = await self.directory.client_for_agent("echo").send_message(
            agent="echo",
            message=message("count 5"),
            submission=message_service_pb2.Submission(
                push_notification_config=webhook, push_notification_version="1.0"
            ),
        )
        assert isinstance(answer, snapshot_pb2.TaskSnapshot)
        self.task_id, self.head = answer.task.id, answer.sequence

    async def claim(self) -> webhook_service_pb2.WebhookClaim:
        """Claim the webhook at the task's current host."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    self.host().allow_probe()
                    claims = await self.host().claim_webhooks(
                        "tests", limit=1, lease_s=30, wait_s=0.1
                    )
                except (PeerError, TaskNotFoundError):
                    claims = []  # Its host is dead, and no other has taken it over yet.
                if claims:
                    return claims[0]
                await asyncio.sleep(POLL_S)

    def post(self, claim: webhook_service_pb2.WebhookClaim, until: int) -> None:
        """Post the events after the cursor; the delivery is not recorded yet."""
        sequence = int(claim.webhook.cursor.partition(".")[0] or 0)
        self.received += range(sequence + 1, until + 1)

    async def state(self) -> str:
        (webhook,) = await self.host().list_webhooks(self.task_id)
        return webhook_service_pb2.WebhookState.Name(webhook.state)


@asynccontextmanager
async def hosts(
    folder: Path, *agents: str, environment: dict[str, str]
) -> AsyncIterator[tuple[Services, Deliverer]]:
    async with mesh_callers.hosts(folder, *agents, environment=environment) as (services, caller):
        deliverer = Deliverer(caller.directory)
        await deliverer.begin()
        yield services, deliverer


async def post_a_part_and_kill(services: Services, deliverer: Deliverer) -> str:
    """Post two events that are recorded and one that is not, then kill the host."""
    claim = await deliverer.claim()
    deliverer.post(claim, 2)
    await deliverer.host().record_delivery(claim.claim_id, sent="2.0")
    claim.webhook.cursor = "2.0"
    deliverer.post(claim, 3)
    await services.kill("echo")
    return claim.claim_id


async def expect_the_rest(deliverer: Deliverer, unrecorded: str) -> None:
    again = await deliverer.claim()
    assert again.webhook.cursor == "2.0"
    assert again.webhook.config.token == SECRET
    with pytest.raises(FencedError):
        await deliverer.host().record_delivery(unrecorded, sent="3.0")
    deliverer.post(again, deliverer.head)
    await deliverer.host().record_delivery(again.claim_id, finished=f"{deliverer.head}.0")
    assert deliverer.received == [1, 2, 3, *range(3, deliverer.head + 1)]
    assert await deliverer.state() == "WEBHOOK_STATE_DONE"


async def command(services: Services, *words: str) -> tuple[int | None, str, str]:
    done = await run_command("webhooks", *words, "--mesh", services.mesh_address)
    assert SECRET not in done.out + done.err
    return done.exit, done.out, done.err


async def run_webhooks_command(services: Services, *words: str) -> Any:
    code, out, err = await command(services, *words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


async def test_an_unrecorded_post_is_repeated_after_a_kill_of_its_host(tmp_path: Path) -> None:
    async with hosts(tmp_path, "echo", environment={}) as (services, deliverer):
        unrecorded = await post_a_part_and_kill(services, deliverer)
        await services.restart("echo")
        await expect_the_rest(deliverer, unrecorded)

        # The command line, while the mesh runs.
        task_id = deliverer.task_id
        (listed,) = await run_webhooks_command(services, "list", "--state", "done")
        assert listed["webhook_id"] == listed["task_id"] == task_id
        assert (listed["url"], listed["version"], listed["agent"]) == (URL, "1.0", "echo")
        assert listed["cursor"] == f"{deliverer.head}.0"
        assert await run_webhooks_command(services, "list", "--state", "dead") == []
        assert await run_webhooks_command(services, "replay", task_id) == {
            "task_id": task_id,
            "webhooks": 0,
        }
        replayed = await run_webhooks_command(services, "replay", task_id, task_id, "--from-start")
        assert replayed["webhooks"] == 1
        claim = await deliverer.claim()
        assert claim.webhook.cursor == ""
        # The backoff is so long that even a slow command line finds it waiting.
        await deliverer.host().record_delivery(claim.claim_id, failed="HTTP 503", retry_after_s=600)
        code, out, _ = await command(services, "show", task_id)
        assert code == 0
        assert "state     waiting" in out
        assert "attempts: 1, last: HTTP 503" in out
        code, out, _ = await command(services, "list")
        assert out.split()[:5] == ["TASK", "WEBHOOK", "STATE", "SENT", "URL"]
        assert task_id in out
        code, _, err = await command(services, "show", task_id, "another")
        assert (code, "has no webhook 'another'" in err) == (1, True)
        code, _, err = await command(services, "replay", task_id, "another")
        assert (code, "has no webhook 'another'" in err) == (1, True)
        code, _, err = await command(services, "list", "--state", "lost")
        assert (code, "there are: idle, pending, waiting, dead, done" in err) == (2, True)
