"""The webhooks of a host's tasks, as a bridge sees them over a real connection."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from harness.agents.inline_agents import define, message
from harness.journal.opening import open_journal
from harness.mesh.identity import mesh_credentials
from trunkline.errors import (
    FencedError,
    InvalidArgumentError,
    PeerUnavailableError,
    TaskNotFoundError,
    WebhookNotFoundError,
)
from trunkline.mesh.client import ChannelPool, HostClient
from trunkline.mesh.server import MeshServer
from trunkline.processes.hosting import add_host_services
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.outbox import PushConfigs
from trunkline.v1 import (
    message_service_pb2,
    push_notification_pb2,
    snapshot_pb2,
    task_service_pb2,
    webhook_service_pb2,
)

Config = push_notification_pb2.TaskPushNotificationConfig
URL = "https://receiver.example/hook"
SECRETS = ("t0ken", "cr3dentials")


async def ask_or_answer(task: TaskContext) -> None:
    if task.turn == 1 and task.text == "ask":
        await task.require_input("what?")
    else:
        await task.complete(task.text)


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[HostClient]:
    journal = open_journal(tmp_path / "journal.db")
    async with TaskHost(journal, [define(ask_or_answer)]) as hosts:
        server = MeshServer(mesh_credentials())
        add_host_services(server, hosts)
        (address,) = await server.start("127.0.0.1:0")
        async with ChannelPool(mesh_credentials()) as channels:
            yield HostClient(channels.get(address))
        await server.stop(0)
    await journal.close()


def config(task_id: str = "", config_id: str = "", url: str = URL) -> Config:
    token, credentials = SECRETS
    return Config(
        id=config_id,
        task_id=task_id,
        url=url,
        token=token,
        authentication=push_notification_pb2.AuthenticationInfo(
            scheme="Bearer", credentials=credentials
        ),
    )


async def send(
    client: HostClient, text: str, *, task_id: str = "", webhook: Config | None = None
) -> snapshot_pb2.TaskSnapshot:
    submission = message_service_pb2.Submission(
        account="acme",
        push_notification_config=webhook,
        push_notification_version="1.0" if webhook else "",
    )
    answer = await client.send_message(
        agent="tested", message=message(text, task_id=task_id), submission=submission
    )
    assert isinstance(answer, snapshot_pb2.TaskSnapshot)
    return answer


async def claim(
    client: HostClient, *, wait_s: float = 0.0
) -> list[webhook_service_pb2.WebhookClaim]:
    return list(await client.claim_webhooks("tests", limit=10, lease_s=30, wait_s=wait_s))


async def get_config(client: HostClient, task_id: str, config_id: str, account: str) -> Config:
    request = task_service_pb2.GetPushNotificationConfigRequest(
        task_id=task_id, config_id=config_id, account=account
    )
    return (await client.tasks.GetPushNotificationConfig(request)).config


async def list_configs(client: HostClient, task_id: str, account: str) -> list[Config]:
    request = task_service_pb2.ListPushNotificationConfigsRequest(task_id=task_id, account=account)
    return list((await client.tasks.ListPushNotificationConfigs(request)).configs)


async def delete(client: HostClient, task_id: str, config_id: str, account: str) -> None:
    request = task_service_pb2.DeletePushNotificationConfigRequest(
        task_id=task_id, config_id=config_id, account=account
    )
    await client.tasks.DeletePushNotificationConfig(request)


async def test_a_webhook_is_set_shown_listed_and_removed(client: HostClient) -> None:
    task_id = (await send(client, "ask")).task.id
    first = await client.set_push_config(config(task_id), account="acme", version="1.0")
    assert (first.id, first.task_id, first.url) == (task_id, task_id, URL)
    second = await client.set_push_config(config(task_id, "other"), account="acme", version="0.3")
    listed = await list_configs(client, task_id, "acme")
    assert listed == [first, second]
    assert await get_config(client, task_id, "other", "acme") == second
    assert await get_config(client, task_id, "", "acme") == first
    for _ in range(2):
        await delete(client, task_id, "other", "acme")
    assert await list_configs(client, task_id, "acme") == [first]
    with pytest.raises(WebhookNotFoundError, match="no push notification config 'other'"):
        await get_config(client, task_id, "other", "acme")


@pytest.mark.parametrize("has_another", [False, True])
async def test_a_registration_without_an_id_is_repeated_without_harm(
    client: HostClient, monkeypatch: pytest.MonkeyPatch, *, has_another: bool
) -> None:
    """The trunk breaks after the commit, so the client calls again."""
    task_id = (await send(client, "ask", webhook=config() if has_another else None)).task.id
    trunk, set_config, calls = client._channel.trunk, PushConfigs.set, 0

    async def set_and_break(configs: PushConfigs, *args: Any, **fields: Any) -> Config:
        nonlocal calls
        calls += 1
        stored = await set_config(configs, *args, **fields)
        if calls == 1:
            assert trunk is not None
            assert trunk._connection is not None
            trunk._connection.close(PeerUnavailableError(trunk.peer, "the connection broke"))
        return stored

    monkeypatch.setattr(PushConfigs, "set", set_and_break)
    registered = await client.set_push_config(config(task_id), account="acme", version="1.0")
    assert calls == 2
    ids = [listed.id for listed in await list_configs(client, task_id, "acme")]
    assert ids == ([task_id, registered.id] if has_another else [task_id])
    again = await client.set_push_config(config(task_id), account="acme", version="1.0")
    assert again.id not in ids


async def test_a_webhook_is_shown_without_its_secrets(client: HostClient) -> None:
    task_id = (await send(client, "ask")).task.id
    answers = [
        str(await client.set_push_config(config(task_id), account="acme", version="1.0")),
        str(await get_config(client, task_id, task_id, "acme")),
        str(await list_configs(client, task_id, "acme")),
        str(await client.list_webhooks()),
    ]
    assert all(URL in answer for answer in answers)
    assert not [answer for answer in answers if any(secret in answer for secret in SECRETS)]
    (one_claim,) = await claim(client)
    assert one_claim.webhook.config == config(task_id, task_id)


async def test_another_accounts_task_has_no_webhooks(client: HostClient) -> None:
    task_id = (await send(client, "ask", webhook=config())).task.id
    with pytest.raises(TaskNotFoundError):
        await client.set_push_config(config(task_id), account="other", version="1.0")
    with pytest.raises(TaskNotFoundError):
        await get_config(client, task_id, task_id, "other")
    with pytest.raises(TaskNotFoundError):
        await list_configs(client, task_id, "other")
    with pytest.raises(TaskNotFoundError):
        await delete(client, task_id, task_id, "other")
    assert len(await list_configs(client, task_id, "acme")) == 1


async def test_a_webhook_without_an_address_is_refused_and_no_task_is_created(
    client: HostClient,
) -> None:
    task_id = (await send(client, "ask")).task.id
    with pytest.raises(InvalidArgumentError, match=r"config\.url"):
        await client.set_push_config(config(task_id, url=""), account="acme", version="1.0")
    with pytest.raises(InvalidArgumentError, match=r"config\.url"):
        await send(client, "hello", webhook=config(url=""))
    with pytest.raises(InvalidArgumentError, match=r"config\.url"):
        await send(client, "hello", task_id=task_id, webhook=config(url=""))
    assert (await send(client, "hello", task_id=task_id)).turn == 2


async def test_a_task_has_at_most_twenty_webhooks(client: HostClient) -> None:
    task_id = (await send(client, "ask")).task.id
    for number in range(20):
        push_config = config(task_id, str(number))
        await client.set_push_config(push_config, account="acme", version="1.0")
    with pytest.raises(InvalidArgumentError, match="20"):
        await client.set_push_config(config(task_id, "20"), account="acme", version="1.0")
    other = config(task_id, "19", url=f"{URL}/2")
    await client.set_push_config(other, account="acme", version="1.0")
    ids = [item.id for item in await list_configs(client, task_id, "acme")]
    assert ids == [str(number) for number in range(20)]


async def test_a_webhook_comes_with_a_new_task_and_with_the_next_message(
    client: HostClient,
) -> None:
    task = await send(client, "ask", webhook=config())
    (first,) = await claim(client)
    assert first.webhook.account == "acme"
    assert first.webhook.agent == "tested"
    assert first.webhook.version == "1.0"
    assert first.webhook.config.task_id == first.webhook.config.id == task.task.id
    await client.record_delivery(first.claim_id, finished=f"{task.sequence}.0")
    assert await claim(client) == []
    # A repeated registration changes nothing.
    ended = await send(client, "more", task_id=task.task.id, webhook=config())
    (second,) = await claim(client)
    assert second.webhook.cursor == f"{task.sequence}.0"
    await client.record_delivery(second.claim_id, sent=f"{ended.sequence - 1}.2")
    await client.record_delivery(second.claim_id, finished=f"{ended.sequence}.0")
    (registered,) = await client.list_webhooks(task.task.id)
    assert registered.state == webhook_service_pb2.WEBHOOK_STATE_DONE
    assert registered.cursor == f"{ended.sequence}.0"
    with pytest.raises(FencedError):
        await client.record_delivery(second.claim_id, finished="")


async def test_a_claim_waits_for_something_to_send(client: HostClient) -> None:
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(claim(client, wait_s=30))
        task = await send(client, "ask", webhook=config())
    (one_claim,) = waiting.result()
    assert one_claim.webhook.config.task_id == task.task.id
    await client.record_delivery(one_claim.claim_id, finished=f"{task.sequence}.0")
    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(claim(client, wait_s=30))
        await send(client, "more", task_id=task.task.id)
    assert [claimed.webhook.config.task_id for claimed in waiting.result()] == [task.task.id]


async def test_a_failed_post_waits_and_is_replayed_on_request(client: HostClient) -> None:
    task = await send(client, "hello", webhook=config())
    (one_claim,) = await claim(client)
    await client.record_delivery(one_claim.claim_id, failed="HTTP 500", retry_after_s=120.5)
    (waits,) = await client.list_webhooks(state=webhook_service_pb2.WEBHOOK_STATE_WAITING)
    assert (waits.attempts, waits.last_error) == (1, "HTTP 500")
    pause_ns = waits.next_attempt.ToNanoseconds() - waits.failing_since.ToNanoseconds()
    assert pause_ns == 120_500_000_000
    assert await client.replay_webhook(task.task.id) == 1
    (again,) = await claim(client)
    assert (again.webhook.attempts, again.webhook.last_error) == (0, "")
    await client.record_delivery(again.claim_id, finished=f"{task.sequence}.0")
    assert await client.replay_webhook(task.task.id) == 0
    assert await client.replay_webhook(task.task.id, task.task.id, from_start=True) == 1
    assert [claimed.webhook.cursor for claimed in await claim(client)] == [""]
    with pytest.raises(TaskNotFoundError):
        await client.replay_webhook(task.task.id, "nobody's")
    with pytest.raises(TaskNotFoundError):
        await client.replay_webhook("nobody's")
