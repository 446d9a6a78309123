"""The servicer of trunkline.v1.TaskService: reads, watches and cancels the tasks of a host."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, TypeAlias

import grpc

from trunkline.journal.listing import build_summary
from trunkline.mesh.server.batch_stream import BatchStream
from trunkline.observe.audit import Action, AuditLog, process_actor, recording
from trunkline.tasks.approvals import render_decision
from trunkline.tasks.host import TaskHost
from trunkline.v1 import task_service_pb2, task_service_pb2_grpc

_Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

SERVICE = task_service_pb2.DESCRIPTOR.services_by_name["TaskService"].full_name

_CHANGES_INTERVAL_S: Final = 0.1


class TaskServicer(task_service_pb2_grpc.TaskServiceServicer):
    """Serves the tasks of a host."""

    def __init__(self, host: TaskHost, audit: AuditLog | None = None) -> None:
        """Without an audit log, nothing is recorded."""
        self._host = host
        self._audit = audit

    async def GetTask(
        self, request: task_service_pb2.GetTaskRequest, _context: _Context
    ) -> task_service_pb2.GetTaskResponse:
        snapshot = await self._host.snapshot(request.task_id, account=request.account)
        return task_service_pb2.GetTaskResponse(snapshot=snapshot)

    async def ListTasks(
        self, request: task_service_pb2.ListTasksRequest, _context: _Context
    ) -> task_service_pb2.ListTasksResponse:
        return await self._host.list(request)

    async def CancelTask(
        self, request: task_service_pb2.CancelTaskRequest, context: _Context
    ) -> task_service_pb2.CancelTaskResponse:
        with recording(
            self._audit,
            Action.TASK_CANCEL,
            lambda: process_actor(context.peer(), account=request.account),
            task=request.task_id,
        ):
            snapshot = await self._host.cancel(
                request.task_id,
                account=request.account,
                reason=request.reason,
            )
        return task_service_pb2.CancelTaskResponse(snapshot=snapshot)

    async def PauseTask(
        self, request: task_service_pb2.PauseTaskRequest, context: _Context
    ) -> task_service_pb2.PauseTaskResponse:
        with recording(
            self._audit,
            Action.TASK_PAUSE,
            lambda: process_actor(context.peer(), account=request.account),
            task=request.task_id,
        ):
            snapshot = await self._host.pause(request.task_id, account=request.account)
        return task_service_pb2.PauseTaskResponse(snapshot=snapshot)

    async def ResumeTask(
        self, request: task_service_pb2.ResumeTaskRequest, context: _Context
    ) -> task_service_pb2.ResumeTaskResponse:
        with recording(
            self._audit,
            Action.TASK_RESUME,
            lambda: process_actor(context.peer(), account=request.account),
            task=request.task_id,
        ):
            snapshot = await self._host.resume(request.task_id, account=request.account)
        return task_service_pb2.ResumeTaskResponse(snapshot=snapshot)

    # A coroutine whose carrier takes the batches. The generated stubs know only iterators.
    async def WatchTask(  # type: ignore[override]
        self, request: task_service_pb2.WatchTaskRequest, _context: _Context
    ) -> BatchStream:
        watch = await self._host.watch(
            request.task_id,
            account=request.account,
            after=request.after_sequence if request.HasField("after_sequence") else None,
            epoch=request.epoch,
            with_snapshot=request.with_snapshot,
            until_head=request.until_head,
            until_turn_ends=request.until_turn_ends,
        )
        snapshot = await watch.snapshot()
        return BatchStream(task_service_pb2.WatchTaskResponse(snapshot=snapshot), watch)

    async def WatchTasks(
        self, request: task_service_pb2.WatchTasksRequest, _context: _Context
    ) -> AsyncIterator[task_service_pb2.WatchTasksResponse]:
        with self._host.watch_changes(request.account) as changes:
            yield task_service_pb2.WatchTasksResponse()
            while True:
                rows, is_incomplete = await changes.take()
                summaries = [build_summary(row) for row in rows]
                if request.with_text:
                    for summary in summaries:
                        await self._host.read_text(summary)
                yield task_service_pb2.WatchTasksResponse(
                    tasks=summaries, is_incomplete=is_incomplete
                )
                # A task that changes often is one row of the next response.
                await asyncio.sleep(_CHANGES_INTERVAL_S)

    async def AnswerApproval(
        self, request: task_service_pb2.AnswerApprovalRequest, context: _Context
    ) -> task_service_pb2.AnswerApprovalResponse:
        with recording(
            self._audit,
            Action.APPROVAL_ANSWER,
            lambda: process_actor(context.peer(), account=request.account),
            decision=render_decision(request.decision),
            approval=request.approval_id,
            task=request.task_id,
        ):
            approval = await self._host.answer_approval(request)
        return task_service_pb2.AnswerApprovalResponse(approval=approval)

    async def SetPushNotificationConfig(
        self, request: task_service_pb2.SetPushNotificationConfigRequest, context: _Context
    ) -> task_service_pb2.SetPushNotificationConfigResponse:
        with recording(
            self._audit,
            Action.WEBHOOK_CREATE,
            lambda: process_actor(context.peer(), account=request.account),
            task=request.config.task_id,
            webhook=request.config.id,
        ):
            await self._host.journals.acquire(
                request.config.task_id, request.account, may_have_ended=True
            )
            config = await self._host.push_configs.set(
                request.config,
                account=request.account,
                version=request.version,
                request_id=request.request_id,
            )
        return task_service_pb2.SetPushNotificationConfigResponse(config=config)

    async def GetPushNotificationConfig(
        self, request: task_service_pb2.GetPushNotificationConfigRequest, _context: _Context
    ) -> task_service_pb2.GetPushNotificationConfigResponse:
        config = await self._host.push_configs.get(
            request.task_id, request.config_id, account=request.account
        )
        return task_service_pb2.GetPushNotificationConfigResponse(config=config)

    async def ListPushNotificationConfigs(
        self, request: task_service_pb2.ListPushNotificationConfigsRequest, _context: _Context
    ) -> task_service_pb2.ListPushNotificationConfigsResponse:
        configs, next_page_token = await self._host.push_configs.list(
            request.task_id,
            account=request.account,
            page_size=request.page_size,
            page_token=request.page_token,
        )
        return task_service_pb2.ListPushNotificationConfigsResponse(
            configs=configs, next_page_token=next_page_token
        )

    async def DeletePushNotificationConfig(
        self, request: task_service_pb2.DeletePushNotificationConfigRequest, context: _Context
    ) -> task_service_pb2.DeletePushNotificationConfigResponse:
        with recording(
            self._audit,
            Action.WEBHOOK_DELETE,
            lambda: process_actor(context.peer(), account=request.account),
            task=request.task_id,
            webhook=request.config_id,
        ):
            await self._host.journals.acquire(request.task_id, request.account, may_have_ended=True)
            await self._host.push_configs.delete(
                request.task_id, request.config_id, account=request.account
            )
        return task_service_pb2.DeletePushNotificationConfigResponse()

    async def SetTaskAlias(
        self, request: task_service_pb2.SetTaskAliasRequest, _context: _Context
    ) -> task_service_pb2.SetTaskAliasResponse:
        task_id = await self._host.set_alias(
            request.account, request.alias, request.task_id, replaces=request.replaces
        )
        return task_service_pb2.SetTaskAliasResponse(task_id=task_id)

    async def ResolveTaskAlias(
        self, request: task_service_pb2.ResolveTaskAliasRequest, _context: _Context
    ) -> task_service_pb2.ResolveTaskAliasResponse:
        task_id = await self._host.resolve_alias(request.account, request.alias)
        return task_service_pb2.ResolveTaskAliasResponse(task_id=task_id)
