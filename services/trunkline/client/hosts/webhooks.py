"""Calls about webhooks: what clients say about those of their tasks, and how they are delivered."""

from collections.abc import Sequence
from typing import Final

import grpc
from google.protobuf import duration_pb2

from trunkline.client.hosts.calls import UNARY_TIMEOUT_S, HostCalls, Method
from trunkline.v1 import (
    push_notification_pb2,
    task_service_pb2,
    task_service_pb2_grpc,
    webhook_service_pb2,
    webhook_service_pb2_grpc,
)

Config = push_notification_pb2.TaskPushNotificationConfig

_TASKS: Final = "trunkline.v1.TaskService/"
_WEBHOOKS: Final = "trunkline.v1.WebhookService/"
# Waiting ends this much before its call does, so that what was claimed arrives.
_MARGIN_S: Final = 10.0
_ANY: Final = webhook_service_pb2.WEBHOOK_STATE_UNSPECIFIED


class WebhookCalls(HostCalls):
    """The webhooks of a host's tasks."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        super().__init__(channel)
        tasks = task_service_pb2_grpc.TaskServiceStub(channel)
        webhooks = webhook_service_pb2_grpc.WebhookServiceStub(channel)
        of_tasks, of_webhooks = task_service_pb2, webhook_service_pb2
        self._set_config = Method(
            f"{_TASKS}SetPushNotificationConfig",
            tasks.SetPushNotificationConfig,
            of_tasks.SetPushNotificationConfigResponse,
        )
        self._get_config = Method(
            f"{_TASKS}GetPushNotificationConfig",
            tasks.GetPushNotificationConfig,
            of_tasks.GetPushNotificationConfigResponse,
        )
        self._list_configs = Method(
            f"{_TASKS}ListPushNotificationConfigs",
            tasks.ListPushNotificationConfigs,
            of_tasks.ListPushNotificationConfigsResponse,
        )
        self._delete_config = Method(
            f"{_TASKS}DeletePushNotificationConfig",
            tasks.DeletePushNotificationConfig,
            of_tasks.DeletePushNotificationConfigResponse,
        )
        self._claim = Method(
            f"{_WEBHOOKS}ClaimWebhooks", webhooks.ClaimWebhooks, of_webhooks.ClaimWebhooksResponse
        )
        self._record = Method(
            f"{_WEBHOOKS}RecordDelivery",
            webhooks.RecordDelivery,
            of_webhooks.RecordDeliveryResponse,
        )
        self._list_webhooks = Method(
            f"{_WEBHOOKS}ListWebhooks", webhooks.ListWebhooks, of_webhooks.ListWebhooksResponse
        )
        self._replay = Method(
            f"{_WEBHOOKS}ReplayWebhook", webhooks.ReplayWebhook, of_webhooks.ReplayWebhookResponse
        )

    async def set_push_config(self, config: Config, *, account: str, version: str) -> Config:
        """Register a webhook of the task that it names; return it with its id, without secrets.

        One with the same id makes way; the very same one just goes on. Repeating it is harmless.
        """
        request = task_service_pb2.SetPushNotificationConfigRequest(
            account=account, config=config, version=version
        )
        return (await self.read(self._set_config, request)).config

    async def get_push_config(self, task_id: str, config_id: str, account: str) -> Config:
        """Return a webhook without its secrets; without an id, the one registered first.

        Raises:
            WebhookNotFoundError: the task has none such.
            TaskNotFoundError: no such task of the account.
        """
        request = task_service_pb2.GetPushNotificationConfigRequest(
            account=account, task_id=task_id, config_id=config_id
        )
        return (await self.read(self._get_config, request)).config

    async def list_push_configs(self, task_id: str, account: str) -> list[Config]:
        """Return all webhooks of a task without their secrets, those registered first first."""
        request = task_service_pb2.ListPushNotificationConfigsRequest(
            account=account, task_id=task_id
        )
        return list((await self.read(self._list_configs, request)).configs)

    async def delete_push_config(self, task_id: str, config_id: str, account: str) -> None:
        """Remove a webhook. Repeating it is harmless."""
        request = task_service_pb2.DeletePushNotificationConfigRequest(
            account=account, task_id=task_id, config_id=config_id
        )
        await self.read(self._delete_config, request)

    async def claim_webhooks(
        self, claimant: str, *, limit: int, lease_s: float, wait_s: float
    ) -> Sequence[webhook_service_pb2.WebhookClaim]:
        """Claim webhooks that have something to send; with none, wait for one, at most 50 s.

        A claim holds for the lease, from its beginning and from each record of something sent.
        """
        request = webhook_service_pb2.ClaimWebhooksRequest(
            claimant=claimant, limit=limit, lease=_duration(lease_s), wait=_duration(wait_s)
        )
        timeout_s = min(UNARY_TIMEOUT_S, wait_s + _MARGIN_S)
        return (await self.call(self._claim, request, timeout_s=timeout_s)).claims

    async def record_delivery(
        self,
        claim_id: str,
        *,
        sent: str | None = None,
        finished: str | None = None,
        failed: str | None = None,
        gone: str | None = None,
        retry_after_s: float = 0.0,
    ) -> None:
        """Record what became of a post; give one of the four.

        `sent` up to this event id and going on, `finished` up to this one (empty: it stays where
        it was) with nothing left, `failed` and why (and for how long the receiver wants to be left
        alone), or `gone` and why: for good. All but the first end the claim.

        Raises:
            FencedError: the claim is over, perhaps because this was recorded before.
        """
        request = webhook_service_pb2.RecordDeliveryRequest(claim_id=claim_id)
        if sent is not None:
            request.sent = sent
        elif finished is not None:
            request.finished = finished
        elif failed is not None:
            request.failed = failed
            if retry_after_s > 0:
                request.retry_after.CopyFrom(_duration(retry_after_s))
        elif gone is not None:
            request.gone = gone
        await self.call(self._record, request)

    async def list_webhooks(
        self,
        task_id: str = "",
        state: webhook_service_pb2.WebhookState.ValueType = _ANY,
    ) -> Sequence[webhook_service_pb2.Webhook]:
        """Return webhooks of one task or of all, without their secrets, the last made first."""
        request = webhook_service_pb2.ListWebhooksRequest(task_id=task_id, state=state)
        return (await self.read(self._list_webhooks, request)).webhooks

    async def replay_webhook(
        self, task_id: str, config_id: str = "", *, from_start: bool = False
    ) -> int:
        """Send again what webhooks of a task were given up on, or all; return how many are tried.

        Raises:
            TaskNotFoundError: the host has no such webhook.
        """
        request = webhook_service_pb2.ReplayWebhookRequest(
            task_id=task_id, config_id=config_id, from_start=from_start
        )
        return (await self.call(self._replay, request)).count


def _duration(seconds: float) -> duration_pb2.Duration:
    duration = duration_pb2.Duration()
    duration.FromNanoseconds(int(seconds * 1e9))
    return duration
