"""The requests of a task as curl commands, in each version of A2A. They have no credentials."""

import shlex
import uuid
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple
from urllib.parse import quote

from trunkline.a2a.v1 import a2a_pb2
from trunkline.a2a_wire.json_values import Json, dumps
from trunkline.a2a_wire.protocol import LAST_EVENT_ID_HEADER, V0_1, V0_3, V1_0, VERSION_HEADER
from trunkline.a2a_wire.v0_1 import json_writer as v0_1_json
from trunkline.a2a_wire.v0_3 import json_writer as v0_3_json
from trunkline.a2a_wire.v0_3 import proto_reader
from trunkline.a2a_wire.v0_3.proto_json import proto_message_json
from trunkline.a2a_wire.v1_0 import json_writer as v1_json
from trunkline.v1 import message_pb2, snapshot_pb2
from trunkline_bridge.a2a.projection import FileLinks

_MAX_BODY_CHARS: Final = 16 * 1024
_MAX_MESSAGES: Final = 20
# The id of the first event of every task. A stream after it has all later events.
_FIRST_EVENT: Final = "1.0"


class MethodNames(NamedTuple):
    """The names of the operations over JSON-RPC in a version."""

    stream: str
    get: str
    subscribe: str
    cancel: str


METHODS: Final[Mapping[str, MethodNames]] = {
    V1_0: MethodNames("SendStreamingMessage", "GetTask", "SubscribeToTask", "CancelTask"),
    V0_3: MethodNames("message/stream", "tasks/get", "tasks/resubscribe", "tasks/cancel"),
    V0_1: MethodNames("tasks/sendSubscribe", "tasks/get", "tasks/resubscribe", "tasks/cancel"),
}


class TaskCommands:
    """Builds the commands for one task, in one version."""

    def __init__(self, version: str, url: str, links: FileLinks) -> None:
        """`url` is the address of the task's agent."""
        self._version = version
        self._url = url
        self._links = links
        self._names = METHODS[version]

    def build(self, snapshot: snapshot_pb2.TaskSnapshot) -> Iterator[Json]:
        """Yield the commands, each with a title. A command that is too long is left out."""
        task = snapshot.task
        sent = [message for message in task.history if message.role == message_pb2.ROLE_USER]
        for number, message in enumerate(sent[:_MAX_MESSAGES], 1):
            yield from self._send(f"Message {number}", message, is_first=number == 1)
        names, params, path = self._names, {"id": task.id}, f"/tasks/{quote(task.id, safe='')}"
        resumed = {LAST_EVENT_ID_HEADER: _FIRST_EVENT}
        yield from self._command("The task", names.get, params, "GET", path)
        yield from self._command(
            "Its events after the first",
            names.subscribe,
            params,
            "GET" if self._version == V0_3 else "POST",
            f"{path}:subscribe",
            headers=resumed,
        )
        yield from self._command("Cancel it", names.cancel, params, "POST", f"{path}:cancel")

    def _send(self, title: str, message: message_pb2.Message, *, is_first: bool) -> Iterator[Json]:
        """Yield the commands that send a message again. The first one starts another task."""
        request = a2a_pb2.SendMessageRequest()
        request.message.CopyFrom(message)
        self._links.to_urls(request.message.parts)
        # The host filled the context in. With its old id, a message is another one of the same id.
        request.message.message_id, request.message.context_id = str(uuid.uuid4()), ""
        if is_first:
            request.message.task_id = ""
        body: Json = {}
        if self._version == V0_1:
            client_id = request.message.task_id or str(uuid.uuid4())
            params = v0_1_json.send_params_json(request.message, client_id=client_id)
        elif self._version == V0_3:
            params = v0_3_json.send_params_json(request)
            body = proto_message_json(proto_reader.to_v0_3_send(request))
        else:
            params = body = v1_json.send_params_json(request)
        path = "/message:stream"
        yield from self._command(title, self._names.stream, params, "POST", path, body=body)

    def _command(  # noqa: PLR0913  the parts of a request, in both bindings
        self,
        title: str,
        method: str,
        params: Json,
        http_method: str,
        path: str,
        *,
        body: Json | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Iterator[Json]:
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        yield from self._curl(f"{title}: JSON-RPC {method}", "POST", self._url, call, headers)
        if self._version == V0_1:
            # It has JSON-RPC only.
            return
        path = f"/v1{path}" if self._version == V0_3 else path
        content = body or {} if http_method == "POST" else None
        url = self._url + path
        yield from self._curl(f"{title}: {http_method} {path}", http_method, url, content, headers)

    def _curl(
        self,
        title: str,
        http_method: str,
        url: str,
        body: Json | None,
        headers: Mapping[str, str] | None,
    ) -> Iterator[Json]:
        words = ["curl", "-sN"]
        fields = {VERSION_HEADER: self._version, **(headers or {})}
        if body is not None:
            fields["content-type"] = "application/json"
        if http_method != "GET":
            words += ["-X", http_method]
        words.append(url)
        for name, value in fields.items():
            words += ["-H", f"{name}: {value}"]
        if body is not None:
            words += ["-d", dumps(body)]
        if len(words[-1]) <= _MAX_BODY_CHARS:
            yield {"title": title, "curl": shlex.join(words)}
