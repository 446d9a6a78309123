"""A mesh with the page, and callers of it: two accounts, an operator and narrower credentials."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from harness.a2a.bridged_mesh import BridgedMesh, Json, Stream, open_bridged_mesh
from harness.a2a.graphql_mesh import flow
from harness.agents.shop import Orders, shop
from trunkline import agent, from_workflow
from trunkline.audit import open_audit_log
from trunkline.mesh.workflow_catalog import DataFolderCatalog
from trunkline.settings import PageSettings, Settings
from trunkline.tasks.context import TaskContext
from trunkline_agents.echo.agent import echo
from trunkline_bridge.edge.api_keys import ApiKey, hash_key, save_keys
from trunkline_bridge.settings import BridgeSettings

API = "/ui/api"
KEYS: dict[str, Json] = {
    "ann": {},
    "bob": {"account": "other"},
    "ops": {"account": "operators"},
    "reading-ops": {"account": "operators", "methods": ("read",)},
    "narrow": {"agents": ("echo",)},
}


@agent(name="gate", description="Passes on what it gets.")
async def gate(task: TaskContext) -> str:
    """Answer with the text."""
    return f"passed {task.text}"


@dataclass(frozen=True, slots=True)
class PageCaller:
    """Calls the page's API with one API key."""

    client: httpx2.AsyncClient
    url: str
    headers: dict[str, str]

    async def request(self, method: str, path: str, body: object = None) -> httpx2.Response:
        return await self.client.request(
            method, f"{self.url}{API}{path}", json=body, headers=self.headers
        )

    async def get(self, path: str) -> Json:
        return _content(await self.request("GET", path))

    async def post(self, path: str, body: object = None) -> Json:
        return _content(await self.request("POST", path, body or {}))

    async def refusal(self, method: str, path: str, body: object = None) -> str:
        """Return the reason of a request that must fail."""
        response = await self.request(method, path, body)
        error = response.json()["error"]
        assert error["code"] == response.status_code
        return str(error["details"][0]["reason"])

    @asynccontextmanager
    async def events(
        self, path: str, body: object = None, *, method: str = "GET"
    ) -> AsyncIterator[Stream]:
        async with self.client.stream(
            method, f"{self.url}{API}{path}", json=body, headers=self.headers
        ) as response:
            assert response.headers["content-type"] == "text/event-stream", await response.aread()
            yield Stream(response)


@dataclass(frozen=True, slots=True)
class PageMesh:
    """The mesh, its page, and the orders that its shop got."""

    mesh: BridgedMesh
    orders: Orders

    def at(self, key: str = "ann") -> PageCaller:
        headers = {"X-API-Key": f"key-of-{key}"} if key else {}
        return PageCaller(self.mesh.client, self.mesh.url, headers)

    async def send(
        self, text: str, *, agent: str = "echo", key: str = "ann", **fields: Any
    ) -> Json:
        caller = self.mesh.at(f"/agents/{agent}")
        params = {"message": caller.message(text), **fields}
        found = await caller.call("SendMessage", params, self.at(key).headers)
        task: Json = found["task"]
        return task


def _content(response: httpx2.Response) -> Json:
    assert response.status_code == 200, response.text
    content: Json = response.json()
    return content


@asynccontextmanager
async def open_page_mesh(folder: Path, **options: Any) -> AsyncIterator[PageMesh]:
    """Open a mesh with agents, a workflow in two versions, an audit log and callers.

    `options` are those of the bridge's settings.
    """
    entries = [
        ApiKey(
            name,
            fields.get("account", "acme"),
            hash_key(f"key-of-{name}"),
            agents=fields.get("agents", ()),
            methods=fields.get("methods", ()),
        )
        for name, fields in KEYS.items()
    ]
    save_keys(folder / "keys", entries)
    defaults = {
        "default_agent": "echo",
        "api_keys_file": folder / "keys",
        "page": PageSettings(operators=("operators",)),
    }
    settings = BridgeSettings(**{**defaults, **options})
    orders = Orders()
    async with AsyncExitStack() as stack:
        audit = await stack.enter_async_context(
            open_audit_log(Settings(data_dir=folder / "data"), process="test")
        )
        catalog = DataFolderCatalog(folder)
        mesh = await stack.enter_async_context(
            open_bridged_mesh(folder, settings, audit=audit, catalog=catalog)
        )
        await mesh.mesh.join(echo, gate, shop("apples", orders), from_workflow(flow(1), flow(2)))
        yield PageMesh(mesh, orders)
