"""A mesh with the page: agents, a workflow, spans, callers with API keys, and the page's API."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.a2a.bridged_mesh import BridgedMesh, Json, open_bridged_mesh
from harness.a2a.caller_keys import write_keys
from harness.a2a.graphql_mesh import Gate, flow
from harness.a2a.page_client import PageClient
from harness.agents.shop import Orders, shop
from harness.agents.teacher import teacher
from harness.mesh.identity import mesh_credentials
from harness.mesh.messages import join_messages
from trunkline import agent, from_workflow
from trunkline.core.settings import PageSettings, Settings
from trunkline.core.small_files import FolderFiles
from trunkline.mesh.server import MeshServer
from trunkline.mesh.server.trace_servicer import TraceServicer
from trunkline.observe.audit import open_audit_log
from trunkline.observe.traces import SpanStore
from trunkline.processes.workflow_catalog import StoredWorkflows
from trunkline.v1 import trace_service_pb2_grpc

KEYS: dict[str, Json] = {
    "ann": {},
    "bob": {"account": "other"},
    "reader": {"methods": ("read",)},
    "narrow": {"agents": ("teacher",)},
    "gatekeeper": {"agents": ("gate",)},
    "asker": {"methods": ("SendMessage", "SendStreamingMessage")},
    "operator": {"account": "ops"},
    "narrow-operator": {"account": "ops", "agents": ("teacher",)},
    "reading-operator": {"account": "ops", "methods": ("read",)},
}


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

    async def ask(
        self, agent_name: str, text: str, key: str = "ann", *, now: bool = False, **fields: Any
    ) -> Json:
        """Send a message by A2A; return the task, at the end of its turn or at once.

        `fields` are those of the configuration.
        """
        caller = self.bridged.at(f"/agents/{agent_name}")
        configuration = {"returnImmediately": now, **fields}
        params = {"message": caller.message(text), "configuration": configuration}
        task: Json = (await caller.call("SendMessage", params, self.at(key).headers))["task"]
        return task


@asynccontextmanager
async def open_page_mesh(
    folder: Path, *agents: Any, page: Mapping[str, Any] | None = None, **options: Any
) -> AsyncIterator[PageMesh]:
    """Open a mesh with `teacher`, `gate`, `apples`, the workflow `flow` and more agents.

    It has messages, spans, and an audit log in `data`. `page` are settings of the page, and
    `options` the other ones of the bridge; `api_keys_file=None` opens it to all callers.
    """
    keys = folder / "keys"
    write_keys(keys, KEYS)
    defaults: dict[str, Any] = {"default_agent": "teacher", "api_keys_file": keys}
    page_settings = PageSettings(**{"operators": ("ops",), **(page or {})})
    settings = Settings(**{**defaults, **options}, page=page_settings)
    gate, orders = Gate(), Orders()
    gate_agent = agent(name="gate", description="Waits.")(gate.pass_through)
    catalog = StoredWorkflows(FolderFiles(folder))
    async with AsyncExitStack() as stack:
        spans = stack.enter_context(SpanStore(folder / "spans.db"))
        audit = await stack.enter_async_context(
            open_audit_log(Settings(data_dir=folder / "data"), process="test")
        )
        mesh = await stack.enter_async_context(
            open_bridged_mesh(folder, settings, catalog=catalog, audit=audit)
        )
        await mesh.mesh.join(
            teacher, gate_agent, shop("apples", orders), from_workflow(flow(1), flow(2)), *agents
        )
        await join_messages(mesh.mesh, attempts=2)
        await _serve_spans(mesh, spans)
        yield PageMesh(mesh, gate, orders, spans)


async def _serve_spans(mesh: BridgedMesh, spans: SpanStore) -> None:
    server = MeshServer(mesh_credentials())
    server.add_service(
        "trunkline.v1.TraceService",
        trace_service_pb2_grpc.add_TraceServiceServicer_to_server,
        TraceServicer(spans),
    )
    await mesh.mesh.serve(server, "spans")
