"""The servicer of trunkline.v1.WebhookService: the webhook outbox of a host."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, TypeAlias

import grpc

from trunkline.observe.audit import Action, AuditLog, process_actor, recording
from trunkline.tasks.host import TaskHost
from trunkline.v1 import webhook_service_pb2, webhook_service_pb2_grpc

_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

SERVICE = webhook_service_pb2.DESCRIPTOR.services_by_name["WebhookService"].full_name

_CHANGES_INTERVAL_S: Final = 0.1


class WebhookServicer(webhook_service_pb2_grpc.WebhookServiceServicer):
    """Gives claims of webhooks to bridges that deliver them, and lists and replays webhooks."""

    def __init__(self, host: TaskHost, audit: AuditLog | None = None) -> None:
        """Without an audit log, nothing is recorded."""
        self._journals = host.journals
        self._outbox = host.push_configs.outbox
        self._audit = audit

    async def ClaimWebhooks(
        self, request: webhook_service_pb2.ClaimWebhooksRequest, _context: _Context
    ) -> webhook_service_pb2.ClaimWebhooksResponse:
        claims = await self._outbox.claim(
            limit=request.limit,
            lease_s=request.lease.ToNanoseconds() / 1e9,
            wait_s=request.wait.ToNanoseconds() / 1e9,
        )
        return webhook_service_pb2.ClaimWebhooksResponse(claims=claims)

    async def RecordDelivery(
        self, request: webhook_service_pb2.RecordDeliveryRequest, _context: _Context
    ) -> webhook_service_pb2.RecordDeliveryResponse:
        await self._outbox.record(request)
        return webhook_service_pb2.RecordDeliveryResponse()

    async def ListWebhooks(
        self, request: webhook_service_pb2.ListWebhooksRequest, _context: _Context
    ) -> webhook_service_pb2.ListWebhooksResponse:
        webhooks = await self._outbox.list(
            task_id=request.task_id,
            state=request.state,
            account=request.account,
            whole_store=request.whole_store,
        )
        return webhook_service_pb2.ListWebhooksResponse(webhooks=webhooks)

    async def WatchWebhooks(
        self, request: webhook_service_pb2.WatchWebhooksRequest, _context: _Context
    ) -> AsyncIterator[webhook_service_pb2.WatchWebhooksResponse]:
        with self._outbox.watch(request.account) as changes:
            yield webhook_service_pb2.WatchWebhooksResponse()
            while True:
                keys, is_incomplete = await changes.take()
                webhooks = [await self._outbox.describe(key) for key in keys]
                yield webhook_service_pb2.WatchWebhooksResponse(
                    webhooks=webhooks, is_incomplete=is_incomplete
                )
                # A webhook that changes often is in the next response once.
                await asyncio.sleep(_CHANGES_INTERVAL_S)

    async def ReplayWebhook(
        self, request: webhook_service_pb2.ReplayWebhookRequest, context: _Context
    ) -> webhook_service_pb2.ReplayWebhookResponse:
        with recording(
            self._audit,
            Action.WEBHOOK_REPLAY,
            lambda: process_actor(context.peer()),
            task=request.task_id,
            webhook=request.config_id,
        ):
            await self._journals.acquire(request.task_id, None, may_have_ended=True)
            count = await self._outbox.replay(
                request.task_id, request.config_id, from_start=request.from_start
            )
        return webhook_service_pb2.ReplayWebhookResponse(count=count)
