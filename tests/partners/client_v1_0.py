"""Runs the client of a2a-sdk 1.x: URL, API key."""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import grpc
import httpx
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, create_client
from a2a.types import a2a_pb2

from partners.driving import drive

_TIMEOUT_S = 60


class Driver:
    """Maps the calls of the tests to those of the SDK."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._http = httpx.AsyncClient(trust_env=False, timeout=_TIMEOUT_S)
        self._context = ClientCallContext(service_parameters={"x-api-key": key})
        self._clients: dict[Any, Client] = {}

    async def card(self) -> Any:
        card = await A2ACardResolver(self._http, self._url).get_agent_card()
        return {"name": card.name, "pushes": card.capabilities.push_notifications}

    async def send(self, binding: str, *, now: bool = False, **message: Any) -> Any:
        client = await self._client(binding, streaming=False)
        request = _request(message)
        request.configuration.return_immediately = now
        events = [
            _to_json(event) async for event in client.send_message(request, context=self._context)
        ]
        return events[-1]

    async def stream(self, binding: str, **message: Any) -> AsyncIterator[Any]:
        client = await self._client(binding)
        async for event in client.send_message(_request(message), context=self._context):
            yield _to_json(event)

    async def get(self, binding: str, task: str, history: int | None = None) -> Any:
        request = a2a_pb2.GetTaskRequest(id=task, history_length=history)
        client = await self._client(binding)
        return _task(await client.get_task(request, context=self._context))

    async def list(self, binding: str, context: str) -> Any:
        request = a2a_pb2.ListTasksRequest(context_id=context)
        client = await self._client(binding)
        page = await client.list_tasks(request, context=self._context)
        return {"tasks": [task.id for task in page.tasks], "total": page.total_size}

    async def cancel(self, binding: str, task: str) -> Any:
        client = await self._client(binding)
        request = a2a_pb2.CancelTaskRequest(id=task)
        return _task(await client.cancel_task(request, context=self._context))

    async def subscribe(self, binding: str, task: str) -> AsyncIterator[Any]:
        client = await self._client(binding)
        request = a2a_pb2.SubscribeToTaskRequest(id=task)
        async for event in client.subscribe(request, context=self._context):
            yield _to_json(event)

    async def set_push(self, binding: str, task: str, config: str, url: str) -> Any:
        client = await self._client(binding)
        request = a2a_pb2.TaskPushNotificationConfig(task_id=task, id=config, url=url)
        created = await client.create_task_push_notification_config(request, context=self._context)
        return {"id": created.id, "url": created.url}

    async def get_push(self, binding: str, task: str, config: str) -> Any:
        client = await self._client(binding)
        request = a2a_pb2.GetTaskPushNotificationConfigRequest(task_id=task, id=config)
        config_ = await client.get_task_push_notification_config(request, context=self._context)
        return {"id": config_.id, "url": config_.url}

    async def list_push(self, binding: str, task: str) -> Any:
        client = await self._client(binding)
        request = a2a_pb2.ListTaskPushNotificationConfigsRequest(task_id=task)
        page = await client.list_task_push_notification_configs(request, context=self._context)
        return [config.id for config in page.configs]

    async def delete_push(self, binding: str, task: str, config: str) -> Any:
        client = await self._client(binding)
        request = a2a_pb2.DeleteTaskPushNotificationConfigRequest(task_id=task, id=config)
        await client.delete_task_push_notification_config(request, context=self._context)

    async def extended_card(self, binding: str) -> Any:
        client = await self._client(binding)
        request = a2a_pb2.GetExtendedAgentCardRequest()
        card = await client.get_extended_agent_card(request, context=self._context)
        return [skill.id for skill in card.skills]

    async def _client(self, binding: str, *, streaming: bool = True) -> Client:
        if (binding, streaming) not in self._clients:
            config = ClientConfig(
                streaming=streaming,
                httpx_client=self._http,
                grpc_channel_factory=grpc.aio.insecure_channel,
                supported_protocol_bindings=[binding],
            )
            card = await A2ACardResolver(self._http, self._url).get_agent_card()
            self._clients[binding, streaming] = await create_client(card, config)
        return self._clients[binding, streaming]


def _request(fields: dict[str, Any]) -> a2a_pb2.SendMessageRequest:
    request = a2a_pb2.SendMessageRequest()
    message = request.message
    message.message_id = fields.get("message_id") or str(uuid4())
    message.role = a2a_pb2.ROLE_USER
    message.task_id, message.context_id = fields.get("task", ""), fields.get("context", "")
    message.parts.add(text=fields["text"])
    if "file" in fields:
        message.parts.add(raw=bytes(fields["file"]), media_type="image/png", filename="dot.png")
    return request


def _to_json(event: a2a_pb2.StreamResponse) -> Any:
    match event.WhichOneof("payload"):
        case "task":
            return _task(event.task)
        case "message":
            return {"kind": "message", "text": _text(event.message.parts)}
        case "status_update":
            update = event.status_update
            return {"kind": "status", "task": update.task_id, **_status(update.status)}
        case _:
            artifact = event.artifact_update
            text = _text(artifact.artifact.parts)
            return {"kind": "artifact", "task": artifact.task_id, "text": text}


def _task(task: a2a_pb2.Task) -> Any:
    return {
        "kind": "task",
        "task": task.id,
        "context": task.context_id,
        **_status(task.status),
        "text": "".join(_text(artifact.parts) for artifact in task.artifacts),
        "files": [list(p.raw) for a in task.artifacts for p in a.parts if p.HasField("raw")],
        "history": [_text(message.parts) for message in task.history],
    }


def _status(status: a2a_pb2.TaskStatus) -> Any:
    name = a2a_pb2.TaskState.Name(status.state).removeprefix("TASK_STATE_")
    return {"state": name.lower().replace("_", "-"), "said": _text(status.message.parts)}


def _text(parts: Any) -> str:
    return "".join(part.text for part in parts)


async def main() -> None:
    driver = Driver(*sys.argv[1:])
    await drive({name: getattr(driver, name) for name in dir(driver) if name[0] != "_"})


if __name__ == "__main__":
    asyncio.run(main())
