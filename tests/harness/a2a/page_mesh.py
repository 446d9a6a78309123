"""A mesh with the page: agents, a workflow, spans, callers with API keys, and the page's API."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from harness.a2a.bridged_mesh import BridgedMesh, Json, Stream, open_bridged_mesh
from harness.a2a.graphql_mesh import Gate, flow
from harness.agents.shop import Orders, shop
from harness.agents.teacher import teacher
from harness.mesh.identity import mesh_credentials
from harness.mesh.messaging import join_messages
from trunkline import agent, from_workflow
from trunkline.audit import AuditLog
from trunkline.mesh.workflow_catalog import DataFolderCatalog
from trunkline.server import MeshServer
from trunkline.settings import PageSettings
from trunkline.traces import SpanStore, TraceServicer
from trunkline.v1 import registry_service_pb2, trace_service_pb2_grpc
from trunkline_bridge.edge.api_keys import ApiKey, hash_key, save_keys
from trunkline_bridge.settings import BridgeSettings

TRACE_SERVICE = "trunkline.v1.TraceService"
KEYS: dict[str, Json] = {
    "ann": {},
    "bob": {"account": "other"},
    "reader": {"methods": ("read",)},
    "narrow": {"agents": ("teacher",)},
    "operator": {"account": "ops"},
    "narrow-operator": {"account": "ops", "agents": ("teacher",)},
}


class PageClient:
    """Calls the page's API with one API key."""

    def __init__(self, client: httpx2.AsyncClient, url: str, key: str) -> None:
        self._client = client
        self._url = f"{url}/ui/api"
        self._headers = {"X-API-Key": f"key-of-{key}"} if key else {}

    async def get(self, path: str, **params: Any) -> httpx2.Response:
        """Return the response to a read."""
        return await self._client.get(self._url + path, params=params, headers=self._headers)

    async def read(self, path: str, **params: Any) -> Json:
        """Return the JSON of a read that must succeed."""
        response = await self.get(path, **params)
        assert response.status_code == 200, response.text
        body: Json = response.json()
        return body

    async def post(self, path: str, **body: Any) -> httpx2.Response:
        """Return the response to a change."""
        return await self._client.post(self._url + path, json=body, headers=self._headers)

    async def change(self, path: str, **body: Any) -> Json:
        """Return the JSON of a change that must succeed."""
        response = await self.post(path, **body)
        assert response.status_code == 200, response.text
        changed: Json = response.json()
        return changed

    @asynccontextmanager
    async def stream(
        self, path: str, *, last_id: str | None = None, **params: Any
    ) -> AsyncIterator[Stream]:
        """Open a stream that must be one."""
        headers = dict(self._headers)
        if last_id is not None:
            headers["Last-Event-ID"] = last_id
        async with self._client.stream(
            "GET", self._url + path, params=params, headers=headers
        ) as response:
            assert response.status_code == 200, await response.aread()
            assert response.headers["content-type"] == "text/event-stream"
            yield Stream(response)


@dataclass(frozen=True, slots=True)
class PageMesh:
    """The mesh of a test."""

    bridged: BridgedMesh
    gate: Gate
    orders: Orders
    spans: SpanStore

    def at(self, key: str = "ann") -> PageClient:
        """Return a client with a key of `KEYS`."""
        return PageClient(self.bridged.client, self.bridged.url, key)

    async def ask(self, agent_name: str, text: str, key: str = "ann", *, now: bool = False) -> Json:
        """Send a message by A2A; return the task, at the end of its turn or at once."""
        caller = self.bridged.at(f"/agents/{agent_name}")
        params = {"message": caller.message(text), "configuration": {"returnImmediately": now}}
        headers = {"X-API-Key": f"key-of-{key}"}
        task: Json = (await caller.call("SendMessage", params, headers))["task"]
        return task


@asynccontextmanager
async def open_page_mesh(
    folder: Path, audit: AuditLog | None = None, **options: Any
) -> AsyncIterator[PageMesh]:
    """Open a mesh with the agents `teacher`, `gate` and `apples`, and the workflow `flow`."""
    keys = folder / "keys"
    save_keys(
        keys,
        [
            ApiKey(
                name,
                fields.get("account", "acme"),
                hash_key(f"key-of-{name}"),
                agents=fields.get("agents", ()),
                methods=fields.get("methods", ()),
            )
            for name, fields in KEYS.items()
        ],
    )
    settings = BridgeSettings(
        default_agent="teacher",
        api_keys_file=keys,
        page=PageSettings(operators=("ops",), **options),
    )
    gate, orders = Gate(), Orders()
    gate_agent = agent(name="gate", description="Waits.")(gate.pass_through)
    catalog = DataFolderCatalog(folder)
    async with AsyncExitStack() as stack:
        spans = stack.enter_context(SpanStore(folder / "spans.db"))
        mesh = await stack.enter_async_context(
            open_bridged_mesh(folder, settings, catalog=catalog, audit=audit)
        )
        await mesh.mesh.join(
            teacher, gate_agent, shop("apples", orders), from_workflow(flow(1), flow(2))
        )
        await join_messages(mesh.mesh, attempts=2)
        await _serve_spans(mesh, spans)
        yield PageMesh(mesh, gate, orders, spans)


async def _serve_spans(mesh: BridgedMesh, spans: SpanStore) -> None:
    server = MeshServer(mesh_credentials())
    server.add_service(
        TRACE_SERVICE,
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server,
        TraceServicer(spans),
    )
    (address,) = await server.start("127.0.0.1:0")
    mesh.mesh.on_close(server.stop, 0)
    host = registry_service_pb2.Host(host_id="spans", address=address, services=[TRACE_SERVICE])
    await mesh.mesh.register(host)
