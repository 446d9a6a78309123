"""The bridge over a small mesh on a real socket, and a client that sees every byte of it."""

import itertools
import json
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeAlias

import httpx2

from harness.a2a.server_sent_events import read_event
from harness.mesh.small_mesh import PATIENCE_S, SmallMesh, open_small_mesh
from trunkline.a2a_wire.v1_0.json_writer import V1EventWriter
from trunkline.core.settings import Settings
from trunkline.mesh.client import run_in_background
from trunkline.observe.audit import AuditLog
from trunkline.observe.metrics.prometheus import open_prometheus_metrics
from trunkline_bridge.a2a.streams.event_renderer import EventRenderer
from trunkline_bridge.a2a.versions.jsonrpc_envelope import event_frame
from trunkline_bridge.api.workflows.catalog import WorkflowCatalog
from trunkline_bridge.app import Bridge
from trunkline_bridge.callers.caller import Authenticator
from trunkline_bridge.http.server import serve_http

Json: TypeAlias = dict[str, Any]


def v1_renderer(request_id: str | int | None) -> EventRenderer:
    return EventRenderer(V1EventWriter(), event_frame(request_id))


@dataclass(frozen=True, slots=True)
class Event:
    """A server-sent event with its parsed JSON-RPC response."""

    id: str
    kind: str
    response: Json

    @property
    def result(self) -> Json:
        found: Json = self.response["result"]
        return found

    @property
    def state(self) -> str:
        """The state in the event, if it has one."""
        for name in ("task", "statusUpdate"):
            if name in self.result:
                return str(self.result[name]["status"]["state"])
        return ""

    @property
    def text(self) -> str:
        """The text of an artifact update."""
        parts = self.result.get("artifactUpdate", {}).get("artifact", {}).get("parts", [])
        return "".join(part.get("text", "") for part in parts)


class Stream:
    """An open event stream."""

    def __init__(self, response: httpx2.Response) -> None:
        self.headers = response.headers
        self.status_code = response.status_code
        self._lines = response.aiter_lines()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await read_event(self._lines)
        if event is None:
            raise StopAsyncIteration
        return Event(event.id, event.kind, json.loads(event.data or "null"))

    async def comment(self) -> str:
        """Read up to the next comment and return it; no event may come before it."""
        async for line in self._lines:
            if line:
                assert line.startswith(":"), line
                return line
        raise AssertionError("the stream ended without a comment")

    async def rest(self) -> list[Event]:
        """Read to the end."""
        return [event async for event in self]


class Caller:
    """Calls one agent through the bridge."""

    def __init__(self, client: httpx2.AsyncClient, url: str) -> None:
        self.url = url
        self.client = client
        self._ids = itertools.count(1)

    def body(self, method: str, params: object) -> Json:
        """A request's JSON."""
        return {"jsonrpc": "2.0", "id": next(self._ids), "method": method, "params": params}

    async def post(
        self, method: str, params: object, headers: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """Send a request and read its whole response."""
        return await self.client.post(
            self.url, json=self.body(method, params), headers=dict(headers or {})
        )

    async def call(
        self, method: str, params: object, headers: Mapping[str, str] | None = None
    ) -> Json:
        """Return the result of a call that must succeed."""
        answer = (await self.post(method, params, headers)).json()
        assert "error" not in answer, answer
        result: Json = answer["result"]
        return result

    async def error(
        self, method: str, params: object, headers: Mapping[str, str] | None = None
    ) -> Json:
        """Return the error of a call that must fail."""
        answer = (await self.post(method, params, headers)).json()
        assert "result" not in answer, answer
        error: Json = answer["error"]
        return error

    async def send(self, text: str, *, now: bool = False, **message: str) -> Json:
        """Send a message and return the task; `now` doesn't wait for the end of the turn."""
        configuration = {"returnImmediately": now}
        params = {"message": self.message(text, **message), "configuration": configuration}
        task: Json = (await self.call("SendMessage", params))["task"]
        return task

    def message(self, text: str, **fields: str) -> Json:
        """A user's message."""
        # Unique among all callers, because a repeated id would be the same message.
        message_fields = {"messageId": f"m-{uuid.uuid4().hex}", "role": "ROLE_USER", **fields}
        return {**message_fields, "parts": [{"text": text}]}

    @asynccontextmanager
    async def stream(
        self, method: str, params: object, headers: Mapping[str, str] | None = None
    ) -> AsyncIterator[Stream]:
        """Open a stream; assert that the response is one."""
        async with self.client.stream(
            "POST", self.url, json=self.body(method, params), headers=dict(headers or {})
        ) as response:
            assert response.headers["content-type"] == "text/event-stream", await response.aread()
            yield Stream(response)

    @asynccontextmanager
    async def streamed(self, text: str, **message: str) -> AsyncIterator[Stream]:
        """Send a message and follow the turn."""
        params = {"message": self.message(text, **message)}
        async with self.stream("SendStreamingMessage", params) as stream:
            yield stream


@dataclass(frozen=True, slots=True)
class BridgedMesh:
    """A mesh, a bridge to it, and clients."""

    mesh: SmallMesh
    bridge: Bridge
    url: str
    client: httpx2.AsyncClient

    def at(self, path: str) -> Caller:
        """A caller of the agent at a path."""
        return Caller(self.client, self.url + path)


@asynccontextmanager
async def open_bridged_mesh(
    folder: Path,
    settings: Settings | None = None,
    *,
    lease_s: float = 10.0,
    access: Authenticator | None = None,
    audit: AuditLog | None = None,
    catalog: WorkflowCatalog | None = None,
) -> AsyncIterator[BridgedMesh]:
    """Open a mesh with a bridge and without agents; the default agent is `echo`."""
    settings = settings or Settings(default_agent="echo")
    async with open_small_mesh(folder, lease_s=lease_s, audit=audit) as mesh:
        bridge = Bridge(
            mesh.directory,
            settings,
            authenticator=access,
            audit=audit,
            catalog=catalog,
            metrics=open_prometheus_metrics("test"),
        )
        async with (
            serve_http(
                bridge.http,
                host="127.0.0.1",
                port=0,
                grace_s=1,
                abort_requests=bridge.abort_requests,
            ) as url,
            httpx2.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client,
            run_in_background(bridge.deliver_webhooks()),
        ):
            bridge.addresses.http = url
            yield BridgedMesh(mesh, bridge, url, client)
