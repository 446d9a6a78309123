"""With a database, the data directory has nothing that is missed when it is lost."""

import base64
import hashlib
import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx2

from harness.a2a.sse_client import call, user_message
from harness.journal.postgres_server import new_database
from harness.mesh.command_line import run_command
from harness.mesh.processes import MeshProcess, running_mesh
from harness.polling import poll
from harness.workflows.parrot import PARROT

TESTS = Path(__file__).parents[2]
SENT = bytes(range(256)) * 1000
HELD = """
name: held
nodes:
  - {id: start, type: start}
  - {id: hold, type: wait, duration: 1h}
  - {id: end, type: end}
edges:
  - {from: start, to: hold}
  - {from: hold, to: end}
"""
# What processes keep on their machine. docs/storage.md says why none of it is missed.
LOCAL = {
    "private/hosts.json",
    "private/keyring.lock",
    "private/log.jsonl",
    "private/traces.db",
}


class Mesh:
    """A running mesh, and what its commands and endpoints show."""

    def __init__(self, process: MeshProcess, folder: Path, store: str) -> None:
        self._process = process
        self._folder = folder
        self._store = store

    async def request(self, path: str, method: str, **params: Any) -> Any:
        answer = await call(self._process.http_url, path, method, params)
        assert "error" not in answer, answer
        return answer["result"]

    async def run(self, *words: str) -> str:
        """Return what a command prints."""
        done = await run_command(*words, folder=self._folder, TRUNKLINE_STORE=self._store)
        assert done.exit == 0, done.err
        return done.out

    async def run_at_mesh(self, *words: str) -> str:
        return await self.run(*words, "--mesh", self._process.mesh_address)

    async def use(self) -> None:
        """Use each feature that stores something."""
        message = user_message("file 7 1", contextId="context-1")
        message["parts"].append({"raw": base64.b64encode(SENT).decode(), "filename": "sent.bin"})
        await self.request("/agents/files", "SendMessage", message=message)
        again = user_message("again", contextId="context-1")
        await self.request("/agents/echo", "SendMessage", message=again)
        await self.request("/agents/parrot", "SendMessage", message=user_message("hello"))
        held = await self.request(
            "/agents/held",
            "SendMessage",
            message=user_message("wait"),
            configuration={"returnImmediately": True},
        )
        config = {"taskId": held["task"]["id"], "id": "hook", "url": "http://127.0.0.1:9/hook"}
        await self.request("/agents/held", "CreateTaskPushNotificationConfig", **config)
        await self.run_at_mesh("messages", "send", "echo", "hello", "--id", "message-1")
        await self.run("docs", "add", str(self._folder / "handbook.md"))

    async def show(self) -> dict[str, Any]:
        """Return what users see of it."""
        tasks, running, hooks = [], [], []
        for agent in ("files", "echo", "parrot", "held"):
            path = f"/agents/{agent}"
            page = await self.request(path, "ListTasks", includeArtifacts=True, historyLength=9)
            for task in page["tasks"]:
                if agent != "held":
                    tasks.append(task)
                    continue
                # It continues, so its metadata has another attempt.
                running.append((task["id"], task["status"]["state"], task["history"]))
                method = "ListTaskPushNotificationConfigs"
                found = await self.request(path, method, taskId=task["id"])
                hooks += [(hook["id"], hook["url"]) for hook in found["configs"]]
        return {
            # The URLs of files have the port of the bridge.
            "tasks": json.dumps(tasks).replace(self._process.http_url, "http://bridge"),
            "running": running,
            "files": sorted([await self._digest(url) for url in find_urls(tasks)]),
            "webhooks": hooks,
            "workflows": await self.run("workflow", "list", "--json"),
            "message": (await self.run_at_mesh("messages", "show", "message-1", "--json")),
            "documents": await self.run("docs", "search", "paid", "leave", "--json"),
            "secret": await self.run("webhooks", "secret"),
            "traces": len(json.loads(await self.run_at_mesh("trace", "--json"))) > 0,
        }

    async def list_acts(self) -> Sequence[Any]:
        return [
            json.loads(line)["action"] for line in (await self.run("audit", "--json")).splitlines()
        ]

    async def _digest(self, url: str) -> str:
        async with httpx2.AsyncClient() as client:
            response = await client.get(url.replace("https://", "http://"))
        assert response.status_code == 200
        return hashlib.sha256(response.content).hexdigest()


def find_urls(value: Any) -> set[str]:
    """Return the URLs of files in a value of JSON."""
    if isinstance(value, dict):
        own = {str(value["url"])} if "url" in value else set()
        return own.union(*map(find_urls, value.values()))
    return set().union(*map(find_urls, value)) if isinstance(value, list) else set()


async def test_a_mesh_whose_folder_is_lost_shows_all_of_it_again(tmp_path: Path) -> None:
    (tmp_path / "handbook.md").write_text("# Time off\n\nEmployees have 28 days of paid leave.\n")
    (tmp_path / "flows").mkdir()
    (tmp_path / "flows" / "parrot.yaml").write_text(PARROT)
    (tmp_path / "flows" / "held.yaml").write_text(HELD)
    flags = (
        *("--workflow", str(tmp_path / "flows")),
        *("--agent", "harness.agents.file_agent:files"),
        *("--allow-webhook", "127.0.0.1:9"),
    )
    async with new_database() as store:
        environment = {"TRUNKLINE_STORE": store, "PYTHONPATH": str(TESTS)}
        async with running_mesh(tmp_path, *flags, environment=environment) as process:
            mesh = Mesh(process, tmp_path, store)
            await mesh.use()
            before = await poll(mesh.show, lambda shown: shown["traces"])
            assert len(before["files"]) == 2
            (running,) = before["running"]
            assert running[1] == "TASK_STATE_WORKING"
        acts = await mesh.list_acts()

        data = tmp_path / "data"
        left = {
            str(path.relative_to(data)).removesuffix("-wal").removesuffix("-shm")
            for path in data.rglob("*")
            if path.is_file() and not path.name.startswith(".")
        }
        assert left <= LOCAL | {path for path in left if path.startswith("private/tool-skills/")}
        shutil.rmtree(data)

        async with running_mesh(tmp_path, *flags, environment=environment) as process:
            mesh = Mesh(process, tmp_path, store)
            await poll(mesh.show, lambda shown: shown["traces"])
            assert await mesh.show() == before
            assert (await mesh.list_acts())[: len(acts)] == acts
            assert "message.send" in acts
