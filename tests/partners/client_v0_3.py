"""Runs the client of a2a-sdk 0.3, in the environment of scripts/partners: URL, API key."""

import asyncio
import base64
import sys
from collections.abc import AsyncIterator
from importlib import import_module
from typing import Any
from uuid import uuid4

import grpc

from partners.driving import drive

# The type checker sees another version of the SDK.
httpx: Any = import_module("httpx")
sdk: Any = import_module("a2a.client")
types: Any = import_module("a2a.types")

_TIMEOUT_S = 60


class Driver:
    """Maps the calls of the tests to those of the SDK."""

    def __init__(self, url: str, key: str) -> None:
        self._url = url
        self._key = key
        headers = {"X-API-Key": key}
        self._http = httpx.AsyncClient(trust_env=False, timeout=_TIMEOUT_S, headers=headers)
        self._clients: dict[Any, Any] = {}

    async def card(self) -> Any:
        card = await sdk.A2ACardResolver(self._http, self._url).get_agent_card()
        return {"name": card.name, "pushes": card.capabilities.push_notifications}

    async def send(self, binding: str, *, now: bool = False, **message: Any) -> Any:
        client = await self._client(binding, streaming=False)
        configuration = types.MessageSendConfiguration(blocking=not now)
        answers = client.send_message(_message(message), configuration=configuration)
        return [_to_json(answer) async for answer in answers][-1]

    async def stream(self, binding: str, **message: Any) -> AsyncIterator[Any]:
        client = await self._client(binding)
        async for event in client.send_message(_message(message)):
            yield _to_json(event)

    async def get(self, binding: str, task: str, history: int | None = None) -> Any:
        client = await self._client(binding)
        return _task(await client.get_task(types.TaskQueryParams(id=task, history_length=history)))

    async def cancel(self, binding: str, task: str) -> Any:
        client = await self._client(binding)
        return _task(await client.cancel_task(types.TaskIdParams(id=task)))

    async def subscribe(self, binding: str, task: str) -> AsyncIterator[Any]:
        client = await self._client(binding)
        async for event in client.resubscribe(types.TaskIdParams(id=task)):
            yield _to_json(event)

    async def set_push(self, binding: str, task: str, config: str, url: str) -> Any:
        client = await self._client(binding)
        fields = types.PushNotificationConfig(id=config, url=url)
        created = await client.set_task_callback(
            types.TaskPushNotificationConfig(task_id=task, push_notification_config=fields)
        )
        return _config(created)

    async def get_push(self, binding: str, task: str, config: str) -> Any:
        client = await self._client(binding)
        config_ = await client.get_task_callback(
            types.GetTaskPushNotificationConfigParams(id=task, push_notification_config_id=config)
        )
        return _config(config_)

    async def extended_card(self, binding: str) -> Any:
        client = await self._client(binding)
        return [skill.id for skill in (await client.get_card()).skills]

    async def _client(self, binding: str, *, streaming: bool = True) -> Any:
        if (binding, streaming) not in self._clients:
            config = sdk.ClientConfig(
                streaming=streaming,
                httpx_client=self._http,
                grpc_channel_factory=self._channel,
                supported_transports=[binding],
            )
            card = await sdk.A2ACardResolver(self._http, self._url).get_agent_card()
            self._clients[binding, streaming] = sdk.ClientFactory(config).create(card)
        return self._clients[binding, streaming]

    def _channel(self, address: str) -> grpc.aio.Channel:
        with_key = (_UnaryWithKey(self._key), _StreamWithKey(self._key))
        return grpc.aio.insecure_channel(address, interceptors=with_key)


class _UnaryWithKey(grpc.aio.UnaryUnaryClientInterceptor):  # type: ignore[misc,unused-ignore]
    """Adds the API key, because this SDK has no credentials for gRPC."""

    def __init__(self, key: str) -> None:
        self._key = key

    async def intercept_unary_unary(self, continuation: Any, details: Any, request: Any) -> Any:
        return await continuation(_with_key(details, self._key), request)


class _StreamWithKey(grpc.aio.UnaryStreamClientInterceptor):  # type: ignore[misc,unused-ignore]
    def __init__(self, key: str) -> None:
        self._key = key

    async def intercept_unary_stream(self, continuation: Any, details: Any, request: Any) -> Any:
        return await continuation(_with_key(details, self._key), request)


def _with_key(details: Any, key: str) -> Any:
    fields = tuple(details.metadata or ())
    return details._replace(metadata=grpc.aio.Metadata(*fields, ("x-api-key", key)))


def _message(fields: dict[str, Any]) -> Any:
    parts = [types.Part(root=types.TextPart(text=fields["text"]))]
    if "file" in fields:
        content = base64.b64encode(bytes(fields["file"])).decode()
        file = types.FileWithBytes(bytes=content, mime_type="image/png", name="dot.png")
        parts.append(types.Part(root=types.FilePart(file=file)))
    return types.Message(
        message_id=fields.get("message_id") or str(uuid4()),
        role=types.Role.user,
        parts=parts,
        task_id=fields.get("task"),
        context_id=fields.get("context"),
    )


def _to_json(answer: Any) -> Any:
    if isinstance(answer, types.Message):
        return {"kind": "message", "text": _text(answer.parts)}
    task, update = answer
    if update is None:
        return _task(task)
    if isinstance(update, types.TaskStatusUpdateEvent):
        status = _status(update.status)
        return {"kind": "status", "task": update.task_id, **status, "final": update.final}
    return {"kind": "artifact", "task": update.task_id, "text": _text(update.artifact.parts)}


def _task(task: Any) -> Any:
    artifacts = task.artifacts or []
    return {
        "kind": "task",
        "task": task.id,
        "context": task.context_id,
        **_status(task.status),
        "text": "".join(_text(artifact.parts) for artifact in artifacts),
        "files": [
            list(base64.b64decode(part.root.file.bytes))
            for artifact in artifacts
            for part in artifact.parts
            if part.root.kind == "file"
        ],
        "history": [_text(message.parts) for message in task.history or []],
    }


def _status(status: Any) -> Any:
    said = _text(status.message.parts) if status.message else ""
    return {"state": status.state.value, "said": said}


def _text(parts: Any) -> str:
    return "".join(part.root.text for part in parts if part.root.kind == "text")


def _config(config_: Any) -> Any:
    config = config_.push_notification_config
    return {"id": config.id, "url": config.url}


async def main() -> None:
    driver = Driver(*sys.argv[1:])
    await drive({name: getattr(driver, name) for name in dir(driver) if name[0] != "_"})


if __name__ == "__main__":
    asyncio.run(main())
