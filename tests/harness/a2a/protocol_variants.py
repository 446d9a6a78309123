"""One client interface to every version and binding of A2A, so that one test covers them all.

Requests are JSON, over gRPC protobuf built from it. They are written out here for each version and
not built by the bridge's codecs, so a mistake in these shows. Answers are read as `TaskView`.
"""

import asyncio
import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

import grpc
import httpx2
from a2a.compat.v0_3 import a2a_v0_3_pb2
from a2a.types import a2a_pb2
from google.protobuf.message import Message

from harness.a2a.bridged_mesh import open_bridged_mesh
from harness.a2a.grpc_client import GrpcMesh, open_bridge_grpc, refusal_of
from harness.a2a.server_sent_events import read_events
from harness.mesh.small_mesh import PATIENCE_S
from harness.remote.token_issuer import write_api_keys
from trunkline.a2a_wire.protocol import RESUME_EXTENSION
from trunkline.core.json_values import message_to_dict, parse_dict
from trunkline.core.settings import Settings
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


class RefusedError(Exception):
    """An error, identified by the reason that all bindings have.

    `code` is the code in the binding: a number of JSON-RPC, an HTTP status, or a name of gRPC.
    """

    def __init__(self, code: int | str, text: str, info: Json, violations: Json) -> None:
        self.code = code
        self.reason: str = info.get("reason") or str(code)
        self.metadata: Json = info.get("metadata", {})
        self.violations = violations
        """The problem of each field."""
        super().__init__(f"{self.reason}: {text}")


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

    async def attempt(
        self, operation: str, headers: Headers | None = None, **fields: Any
    ) -> RefusedError | None:
        """Call an operation and read its whole answer; return its error, if it fails."""
        try:
            if operation in STREAMS:
                async with aclosing(self.watch(operation, headers, **fields)) as events:
                    async for _ in events:
                        pass
            else:
                await self.ask(operation, headers, **fields)
        except RefusedError as error:
            return error
        return None

    async def refusal(
        self, operation: str, headers: Headers | None = None, **fields: Any
    ) -> RefusedError:
        """Return the error of an operation that must fail."""
        error = await self.attempt(operation, headers, **fields)
        assert error is not None, f"{operation} succeeds"
        return error

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
        call = json_rpc_request(self.version, operation, fields)
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
        verb, path, params = rest_request(self.version, operation, fields)
        request: Json = {"params": params} if verb in ("GET", "DELETE") else {"json": params}
        return {
            "method": verb,
            "url": self.mesh.bridged.url + path,
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
        method, request = grpc_request(self.version, operation, fields)
        stub = self.mesh.v0_3 if self.version == "0.3" else self.mesh.v1
        pairs = {"A2A-Version": self.version, **self._headers, **(headers or {})}
        metadata = [(name.lower(), value) for name, value in pairs.items()]
        return getattr(stub, method)(request, metadata=metadata, timeout=PATIENCE_S)

    def _dict(self, message: Any) -> Json:
        result: Json = message_to_dict(message)
        return result


AsyncGen: TypeAlias = Any
STREAMS = frozenset({"stream", "subscribe"})
WEBHOOK_URL = "http://127.0.0.1:9/hook"
MISSING_TASK = "00000000-0000-0000-0000-000000000000"
_EXAMPLES: Mapping[str, Json] = {
    "send": {"text": "hi"},
    "stream": {"text": "hi"},
    "get": {},
    "list": {},
    "cancel": {},
    "subscribe": {},
    "set_push": {"config": "c", "url": WEBHOOK_URL},
    "get_push": {"config": "c"},
    "list_push": {},
    "delete_push": {"config": "c"},
    "extended_card": {},
}
_WITHOUT_TASK = frozenset({"list", "extended_card"})
_LACKING = {"0.3": {"list"}, "0.1": {"list", "list_push", "delete_push", "extended_card"}}


def operations_of(version: str, *, on_tasks: bool = False) -> frozenset[str]:
    """Return the operations of a version; with `on_tasks`, those whose request names a task."""
    lacking = _LACKING.get(version, set()) | (_WITHOUT_TASK if on_tasks else set())
    return frozenset(_EXAMPLES.keys() - lacking)


def example_fields(operation: str, task: str = "") -> Json:
    """Return the fields of a valid request; `task` is the id of its task."""
    return {**_EXAMPLES[operation], **({"task": task} if task else {})}


Spoken: TypeAlias = tuple[str, type[ProtocolVariant]]
SPOKEN: tuple[Spoken, ...] = (
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


def json_rpc_request(version: str, operation: str, fields: Json) -> Call:
    """Return the method and the parameters of a request over JSON-RPC."""
    return {"1.0": _v1, "0.3": _v0_3, "0.1": _v0_1}[version](operation, fields)


def rest_request(version: str, operation: str, fields: Json) -> tuple[str, str, Json]:
    """Return the method, the path and the query or body of a request over HTTP+JSON."""
    is_old = version == "0.3"
    call = (_v0_3_proto if is_old else _v1)(operation, fields)
    verb, path = _PATHS[operation]
    if is_old and operation == "extended_card":
        path = "/card"
    names = {name: quote(str(fields.get(name)), safe="") for name in ("task", "config")}
    in_path = _IN_PATH if operation == "set_push" else (*_IN_PATH, "id")
    params = {name: value for name, value in call.params.items() if name not in in_path}
    return verb, ("/v1" if is_old else "") + path.format(**names), params


def grpc_request(version: str, operation: str, fields: Json) -> tuple[str, Message]:
    """Return the method and the message of a request over gRPC."""
    is_old = version == "0.3"
    call = (_v0_3_proto if is_old else _v1)(operation, fields)
    kind = _OTHER_REQUESTS.get((version, call.name), f"{call.name}Request")
    kind = kind.replace("SendStreamingMessage", "SendMessage")
    request = getattr(a2a_v0_3_pb2 if is_old else a2a_pb2, kind)()
    return call.name, parse_dict(call.params, request)


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
        raise _refused_by(error, error.get("data", ()))
    return answer["result"]


def _rest_result(status: int, answer: Any) -> Any:
    if status == 200 and "error" not in answer:
        return answer
    raise _refused_by(answer["error"], answer["error"]["details"])


def _refused_by(error: Json, details: Sequence[Json]) -> RefusedError:
    info = next((detail for detail in details if "reason" in detail), {})
    violations = {
        violation["field"]: violation["description"]
        for detail in details
        for violation in detail.get("fieldViolations", ())
    }
    return RefusedError(error["code"], error["message"], info, violations)


def _refused(error: grpc.aio.AioRpcError) -> RefusedError:
    refusal = refusal_of(error)
    info = {"reason": refusal.reason, "metadata": refusal.metadata}
    return RefusedError(refusal.code, refusal.text, info, refusal.violations)


async def _sse(response: httpx2.Response) -> AsyncIterator[tuple[str, Json]]:
    async for event in read_events(response.aiter_lines()):
        yield event.id, json.loads(event.data)


@asynccontextmanager
async def open_variants(folder: Path, *agents: Agent, **settings: Any) -> AsyncIterator[GrpcMesh]:
    """Open a mesh with a bridge and its gRPC edge; the first agent is the default one.

    Callers authenticate with an API key: `HEADERS` has Ann's. `settings` are more settings of the
    bridge.
    """
    bridge_settings = Settings(
        default_agent=agents[0].card.name,
        api_keys_file=write_api_keys(folder / "keys.toml", [("ann", "acme", _KEY)]),
        allow_webhook=("127.0.0.1",),
        **settings,
    )
    async with open_bridged_mesh(folder, bridge_settings) as bridged:
        await bridged.mesh.join(*agents)
        async with open_bridge_grpc(bridged) as mesh:
            yield mesh


def find_variant(mesh: GrpcMesh, spoken: Spoken, headers: Headers = HEADERS) -> ProtocolVariant:
    """Return one of `SPOKEN` to the default agent of a mesh, by default with Ann's key."""
    version, kind = spoken
    return kind(mesh, version, headers)


def name_of(spoken: Spoken) -> str:
    """Return the version and the binding, as in the names of tests."""
    return f"{spoken[0]} {spoken[1].binding}"
