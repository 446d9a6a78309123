"""One client interface to every version and binding of A2A, so that one test covers them all.

Requests are JSON, over gRPC protobuf built from it. They are written out here for each version and
not built by the bridge's codecs, so a mistake in these shows. Answers are read as `SeenTask`.
"""

import asyncio
import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import grpc
import httpx2
from a2a.compat.v0_3 import a2a_v0_3_pb2
from a2a.types import a2a_pb2

from harness.a2a.bridged_mesh import open_bridged_mesh
from harness.a2a.grpc_client import GrpcMesh, open_bridge_grpc, refusal_of
from harness.mesh.small_mesh import PATIENCE_S
from harness.remote.token_issuer import write_api_keys
from trunkline.a2a_wire.protocol import RESUME_EXTENSION
from trunkline.json_values import message_to_dict, parse_dict
from trunkline.settings import Settings
from trunkline.tasks.agent import Agent

Json: TypeAlias = dict[str, Any]
Headers: TypeAlias = Mapping[str, str]

_KEY = "key-of-ann"
HEADERS = {"X-API-Key": _KEY}

_ids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class TaskView:
    """An answer or an event of any version."""

    kind: str
    """task, status, artifact or message."""
    task: str = ""
    context: str = ""
    state: str = ""
    """In lower case with hyphens, for example input-required."""
    status_text: str = ""
    """The status's message."""
    text: str = ""
    """The text of the artifacts, the artifact or the message."""
    history: tuple[str, ...] = ()
    is_final: bool | None = None
    """None if the version has no such field."""
    id: str = ""
    """The id of the event."""
    """0 in versions before A2A 1.1."""


class RefusedError(Exception):
    """An error, identified by the reason that all bindings have."""

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(f"{reason}: {text}")
        self.reason = reason


class Call(NamedTuple):
    """The request for an operation in one version: its method name and parameters."""

    name: str
    params: Json


class ProtocolVariant(ABC):
    """A client of the default agent by one version over one binding."""

    binding: str

    def __init__(self, mesh: GrpcMesh, version: str, headers: Headers) -> None:
        self.mesh = mesh
        self.version = version
        self._headers = headers

    async def send(self, text: str, *, headers: Headers | None = None, **options: Any) -> TaskView:
        """Send a message: `task`, `context`, `now`, `history`, `message_id`, `part`, `hook`.

        `modes` are the accepted output modes, and `more` are further fields of the message.
        """
        return parse_task(await self.ask("send", headers, text=text, **options))

    @asynccontextmanager
    async def stream(
        self, text: str, *, headers: Headers | None = None, **options: Any
    ) -> AsyncIterator[AsyncIterator[TaskView]]:
        """Send a message and follow its turn."""
        async with aclosing(self.watch("stream", headers, text=text, **options)) as events:
            yield events

    async def streamed(
        self, text: str, *, headers: Headers | None = None, **options: Any
    ) -> list[TaskView]:
        """Send a message and return all events of its turn."""
        async with (
            asyncio.timeout(PATIENCE_S),
            self.stream(text, headers=headers, **options) as all_,
        ):
            return [event async for event in all_]

    @asynccontextmanager
    async def subscribe(
        self, task: str, *, headers: Headers | None = None
    ) -> AsyncIterator[AsyncIterator[TaskView]]:
        """Follow a task."""
        async with aclosing(self.watch("subscribe", headers, task=task)) as events:
            yield events

    async def get(self, task: str, **options: Any) -> TaskView:
        """Get a task; `history` is the number of messages in its history."""
        return parse_task(await self.ask("get", task=task, **options))

    async def cancel(self, task: str) -> TaskView:
        """Cancel a task."""
        return parse_task(await self.ask("cancel", task=task))

    @abstractmethod
    async def ask(self, operation: str, headers: Headers | None = None, **fields: Any) -> Any:
        """Return the JSON of an answer. Raises RefusedError."""

    @abstractmethod
    def watch(self, operation: str, headers: Headers | None = None, **fields: Any) -> "AsyncGen":
        """Yield the events of an answer. Raises RefusedError."""


class JsonRpcVariant(ProtocolVariant):
    """JSON-RPC, of all versions."""

    binding = "JSON-RPC"

    async def ask(self, operation: str, headers: Headers | None = None, **fields: Any) -> Any:
        response = await self._client.post(
            self.mesh.bridged.url, **self._post(operation, headers, fields)
        )
        return _rpc_result(response.json())

    async def watch(
        self, operation: str, headers: Headers | None = None, **fields: Any
    ) -> "AsyncGen":
        url, post = self.mesh.bridged.url, self._post(operation, headers, fields)
        async with self._client.stream("POST", url, **post) as response:
            if not response.headers["content-type"].startswith("text/event-stream"):
                _rpc_result(json.loads(await response.aread()))
                raise AssertionError("the response is no stream")
            async for event_id, data in _sse(response):
                yield parse_task(_rpc_result(data), event_id)

    @property
    def _client(self) -> httpx2.AsyncClient:
        return self.mesh.bridged.client

    def _post(self, operation: str, headers: Headers | None, fields: Json) -> Json:
        call = _JSON_RPC[self.version](operation, fields)
        body = {"jsonrpc": "2.0", "id": next(_ids), "method": call.name, "params": call.params}
        version = {"A2A-Version": self.version}
        return {"json": body, "headers": {**version, **self._headers, **(headers or {})}}


class RestVariant(ProtocolVariant):
    """HTTP+JSON, of both versions."""

    binding = "HTTP+JSON"

    async def ask(self, operation: str, headers: Headers | None = None, **fields: Any) -> Any:
        request = self._request(operation, headers, fields)
        response = await self.mesh.bridged.client.request(**request)
        return _rest_result(response.status_code, response.json())

    async def watch(
        self, operation: str, headers: Headers | None = None, **fields: Any
    ) -> "AsyncGen":
        request = self._request(operation, headers, fields)
        async with self.mesh.bridged.client.stream(**request) as response:
            if not response.headers["content-type"].startswith("text/event-stream"):
                _rest_result(response.status_code, json.loads(await response.aread()))
                raise AssertionError("the response is no stream")
            async for event_id, data in _sse(response):
                yield parse_task(_rest_result(200, data), event_id)

    def _request(self, operation: str, headers: Headers | None, fields: Json) -> Json:
        is_old = self.version == "0.3"
        call = (_v0_3_proto if is_old else _v1)(operation, fields)
        verb, path = _PATHS[operation]
        path = path.format(task=fields.get("task"), config=fields.get("config"))
        if is_old and operation == "extended_card":
            path = "/card"
        in_path = _IN_PATH if operation == "set_push" else (*_IN_PATH, "id")
        params = {name: value for name, value in call.params.items() if name not in in_path}
        request: Json = {"params": params} if verb in ("GET", "DELETE") else {"json": params}
        return {
            "method": verb,
            "url": f"{self.mesh.bridged.url}{'/v1' if is_old else ''}{path}",
            "headers": {"A2A-Version": self.version, **self._headers, **(headers or {})},
            **request,
        }


class GrpcVariant(ProtocolVariant):
    """gRPC, of both packages."""

    binding = "gRPC"

    async def ask(self, operation: str, headers: Headers | None = None, **fields: Any) -> Any:
        try:
            return self._dict(await self._call(operation, headers, fields))
        except grpc.aio.AioRpcError as error:
            raise _refused(error) from None

    async def watch(
        self, operation: str, headers: Headers | None = None, **fields: Any
    ) -> "AsyncGen":
        call = self._call(operation, headers, fields)
        try:
            async for event in call:
                wrapped = self._dict(event)
                (content,) = wrapped.values()
                yield parse_task(
                    wrapped, (content.get("metadata") or {}).get(f"{RESUME_EXTENSION}/eventId", "")
                )
        except grpc.aio.AioRpcError as error:
            raise _refused(error) from None
        finally:
            call.cancel()

    def _call(self, operation: str, headers: Headers | None, fields: Json) -> Any:
        is_old = self.version == "0.3"
        call = (_v0_3_proto if is_old else _v1)(operation, fields)
        stub, module = (self.mesh.v0_3, a2a_v0_3_pb2) if is_old else (self.mesh.v1, a2a_pb2)
        kind = _OTHER_REQUESTS.get((self.version, call.name), f"{call.name}Request")
        kind = kind.replace("SendStreamingMessage", "SendMessage")
        request = parse_dict(call.params, getattr(module, kind)())
        pairs = {"a2a-version": self.version, **self._headers, **(headers or {})}
        metadata = [(name.lower(), value) for name, value in pairs.items()]
        return getattr(stub, call.name)(request, metadata=metadata, timeout=PATIENCE_S)

    def _dict(self, message: Any) -> Json:
        result: Json = message_to_dict(message)
        return result


AsyncGen: TypeAlias = Any
OPERATIONS = frozenset(
    {
        "send", "stream", "get", "list", "cancel", "subscribe",
        "set_push", "get_push", "list_push", "delete_push", "extended_card",
    }
)  # fmt: skip
SPOKEN = (
    ("1.0", JsonRpcVariant),
    ("1.0", RestVariant),
    ("1.0", GrpcVariant),
    ("0.3", JsonRpcVariant),
    ("0.3", RestVariant),
    ("0.3", GrpcVariant),
    ("0.1", JsonRpcVariant),
)
"""Every combination of a released version and a binding."""


# Requests.

_PUSH = "TaskPushNotificationConfig"
_NAMES = {
    "send": "SendMessage",
    "stream": "SendStreamingMessage",
    "get": "GetTask",
    "list": "ListTasks",
    "cancel": "CancelTask",
    "subscribe": "SubscribeToTask",
    "set_push": f"Create{_PUSH}",
    "get_push": f"Get{_PUSH}",
    "list_push": f"List{_PUSH}s",
    "delete_push": f"Delete{_PUSH}",
    "extended_card": "GetExtendedAgentCard",
}
_CONFIGS = "/tasks/{task}/pushNotificationConfigs"
_PATHS = {
    "send": ("POST", "/message:send"),
    "stream": ("POST", "/message:stream"),
    "get": ("GET", "/tasks/{task}"),
    "list": ("GET", "/tasks"),
    "cancel": ("POST", "/tasks/{task}:cancel"),
    "subscribe": ("GET", "/tasks/{task}:subscribe"),
    "set_push": ("POST", _CONFIGS),
    "get_push": ("GET", f"{_CONFIGS}/{{config}}"),
    "list_push": ("GET", _CONFIGS),
    "delete_push": ("DELETE", f"{_CONFIGS}/{{config}}"),
    "extended_card": ("GET", "/extendedAgentCard"),
}
_IN_PATH = ("taskId", "name", "parent")
_OTHER_REQUESTS = {
    ("1.0", f"Create{_PUSH}"): _PUSH,
    ("0.3", "GetAgentCard"): "GetAgentCardRequest",
}


def _v1(operation: str, fields: Json) -> Call:
    params: Json = {}
    match operation:
        case "send" | "stream":
            part = fields.get("part", {"text": fields["text"]})
            message = _message(fields, role="ROLE_USER", parts=[part])
            webhook = fields.get("hook")
            configuration = {
                **_picked(fields, now="returnImmediately", history="historyLength"),
                **({"taskPushNotificationConfig": {"url": webhook}} if webhook else {}),
                **_picked(fields, modes="acceptedOutputModes"),
            }
            params = {"message": message, "configuration": configuration}
        case "get" | "cancel" | "subscribe":
            params = _picked(fields, task="id", history="historyLength")
        case "list":
            params = fields
        case "extended_card":
            pass
        case _:
            params = _picked(fields, task="taskId", config="id", url="url")
            params |= fields.get("secrets", {})
    return Call(_NAMES[operation], params)


def _v0_3(operation: str, fields: Json) -> Call:
    names = {"send": "message/send", "stream": "message/stream", "subscribe": "tasks/resubscribe"}
    name = names.get(operation, f"tasks/{operation}")
    if operation in ("send", "stream"):
        part = fields.get("part", {"kind": "text", "text": fields["text"]})
        message = _message(fields, kind="message", role="user", parts=[part])
        return Call(name, {"message": message, "configuration": _old_configuration(fields)})
    if operation.endswith("_push"):
        name = f"tasks/pushNotificationConfig/{operation.removesuffix('_push')}"
        if operation == "set_push":
            config = {**_picked(fields, config="id", url="url"), **fields.get("secrets", {})}
            return Call(name, {"taskId": fields["task"], "pushNotificationConfig": config})
        return Call(name, _picked(fields, task="id", config="pushNotificationConfigId"))
    if operation == "extended_card":
        return Call("agent/getAuthenticatedExtendedCard", {})
    return Call(name, _picked(fields, task="id", history="historyLength"))


def _v0_3_proto(operation: str, fields: Json) -> Call:
    names = {
        "subscribe": "TaskSubscription",
        "list_push": f"List{_PUSH}",
        "extended_card": "GetAgentCard",
    }
    name = names.get(operation, _NAMES[operation])
    task = f"tasks/{fields.get('task')}"
    if operation in ("send", "stream"):
        part = fields.get("part", {"text": fields["text"]})
        message = _message(fields, role="ROLE_USER", content=[part])
        configuration = _old_configuration(fields)
        webhook = configuration.pop("pushNotificationConfig", None)
        if webhook:
            configuration["pushNotification"] = webhook
        # The field has one name over HTTP and another in the schema. Both are read.
        return Call(name, {"message": message, "configuration": configuration})
    if operation == "set_push":
        webhook = {**_picked(fields, config="id", url="url"), **fields.get("secrets", {})}
        config = {"pushNotificationConfig": webhook}
        params = {"parent": task, "configId": fields.get("config", ""), "config": config}
        return Call(name, params)
    if operation == "list_push":
        return Call(name, {"parent": task})
    if operation == "extended_card":
        return Call(name, {})
    if "config" in fields:
        return Call(name, {"name": f"{task}/pushNotificationConfigs/{fields['config']}"})
    return Call(name, {"name": task, **_picked(fields, history="historyLength")})


def _v0_1(operation: str, fields: Json) -> Call:
    names = {"stream": "sendSubscribe", "subscribe": "resubscribe"}
    name = f"tasks/{names.get(operation, operation)}"
    if operation in ("send", "stream"):
        part = fields.get("part", {"type": "text", "text": fields["text"]})
        # In this version the client chooses the id.
        task = fields.get("task") or f"chosen-{next(_ids)}"
        params = {"id": task, "message": {"role": "user", "parts": [part]}}
        return Call(
            name,
            {
                **params,
                **_picked(
                    fields,
                    context="sessionId",
                    history="historyLength",
                    modes="acceptedOutputModes",
                ),
            },
        )
    if operation.endswith("_push"):
        name = f"tasks/pushNotification/{operation.removesuffix('_push')}"
        config = {"pushNotificationConfig": {"url": fields["url"]}} if "url" in fields else {}
        return Call(name, {"id": fields["task"], **config})
    return Call(name, _picked(fields, task="id", history="historyLength"))


_JSON_RPC = {"1.0": _v1, "0.3": _v0_3, "0.1": _v0_1}


def _message(given: Json, **fields: Any) -> Json:
    named = {"messageId": given.get("message_id") or f"m-{next(_ids)}"}
    ids = _picked(given, task="taskId", context="contextId")
    return {**named, **ids, **fields, **given.get("more", {})}


def _old_configuration(fields: Json) -> Json:
    webhook = {"pushNotificationConfig": {"url": fields["hook"]}} if "hook" in fields else {}
    blocking = {"blocking": not fields.get("now", False)}
    return {
        **blocking,
        **webhook,
        **_picked(fields, history="historyLength", modes="acceptedOutputModes"),
    }


def _picked(fields: Json, **names: str) -> Json:
    return {to: fields[name] for name, to in names.items() if fields.get(name) is not None}


# Answers.


def parse_task(answer: Json, event_id: str = "") -> TaskView:
    """Read an answer or an event of any version."""
    for name in ("task", "message", "msg", "statusUpdate", "artifactUpdate"):
        # Protobuf wraps them in a member named after their type.
        if isinstance(answer.get(name), dict) and "kind" not in answer and "status" not in answer:
            return _seen(answer[name], event_id)
    return _seen(answer, event_id)


def _seen(answer: Json, event_id: str) -> TaskView:
    if "parts" in answer or "content" in answer:
        return TaskView("message", text=_text(answer), id=event_id)
    task = answer.get("taskId") or answer.get("id", "")
    context = answer.get("contextId") or answer.get("sessionId", "")
    if "artifact" in answer:
        text = _text(answer["artifact"])
        return TaskView("artifact", task, context, text=text, id=event_id)
    status = answer["status"]
    state = status["state"].removeprefix("TASK_STATE_").lower().replace("_", "-")
    is_update = "taskId" in answer or "final" in answer
    status_text = _text(status.get("message") or status.get("update") or {})
    return TaskView(
        "status" if is_update else "task",
        task,
        context,
        state.replace("cancelled", "canceled"),
        status_text,
        "".join(_text(artifact) for artifact in answer.get("artifacts", ())),
        tuple(_text(message) for message in answer.get("history", ())),
        answer.get("final"),
        event_id,
    )


def _text(holder: Json) -> str:
    parts = holder.get("parts") or holder.get("content") or ()
    return "".join(part.get("text", "") for part in parts)


def _rpc_result(answer: Json) -> Any:
    if "error" in answer:
        error = answer["error"]
        reason = next(
            (detail["reason"] for detail in error.get("data", ()) if "reason" in detail), ""
        )
        raise RefusedError(reason or str(error["code"]), error["message"])
    return answer["result"]


def _rest_result(status: int, answer: Any) -> Any:
    if status == 200 and "error" not in answer:
        return answer
    error = answer["error"]
    raise RefusedError(error["details"][0]["reason"], error["message"])


def _refused(error: grpc.aio.AioRpcError) -> RefusedError:
    refusal = refusal_of(error)
    return RefusedError(refusal.reason, refusal.text)


async def _sse(response: httpx2.Response) -> AsyncIterator[tuple[str, Json]]:
    fields: dict[str, str] = {}
    async for line in response.aiter_lines():
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            fields[name] = value
        elif not line and fields:
            yield fields.get("id", ""), json.loads(fields["data"])
            fields = {}


@asynccontextmanager
async def open_variants(
    folder: Path, *agents: Agent, auth_wait_s: float = 600.0
) -> AsyncIterator[GrpcMesh]:
    """Open a mesh with a bridge and its gRPC edge; the first agent is the default one.

    Callers authenticate with an API key: `HEADERS` has Ann's.
    """
    settings = Settings(
        default_agent=agents[0].card.name,
        api_keys_file=write_api_keys(folder / "keys.toml", [("ann", "acme", _KEY)]),
        allow_webhook=("127.0.0.1",),
        auth_wait_s=auth_wait_s,
    )
    async with open_bridged_mesh(folder, settings) as bridged:
        await bridged.mesh.join(*agents)
        async with open_bridge_grpc(bridged) as mesh:
            yield mesh


def find_variant(mesh: GrpcMesh, spoken: tuple[str, type[ProtocolVariant]]) -> ProtocolVariant:
    """Return one of `SPOKEN` to the default agent of a mesh, with Ann's key."""
    version, kind = spoken
    return kind(mesh, version, HEADERS)
