"""JSON-RPC over a failing mesh: scripted hosts return results that are rare on real ones."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self

import httpx2
import pytest

from trunkline.core.settings import Settings
from trunkline.errors import (
    AgentNotFoundError,
    OverloadedError,
    PeerTimeoutError,
    PeerUnavailableError,
    TaskNotFoundError,
)
from trunkline.v1 import registry_service_pb2, snapshot_pb2, task_service_pb2
from trunkline_bridge.app import Bridge

SEND = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}


@dataclass
class ScriptedHost:
    """A host whose calls have a scripted result."""

    failure: Exception | None = None

    async def send_message(self, **_call: object) -> snapshot_pb2.TaskSnapshot:
        if self.failure is not None:
            raise self.failure
        return snapshot_pb2.TaskSnapshot()

    @property
    def tasks(self) -> Self:
        return self

    async def ListTasks(  # noqa: N802
        self, _request: object
    ) -> task_service_pb2.ListTasksResponse:
        rows = [snapshot_pb2.TaskSummary(task_id=task_id) for task_id in ("a", "gone", "b")]
        return task_service_pb2.ListTasksResponse(tasks=rows, total_size=3)

    async def get_task(self, task_id: str, **_call: object) -> snapshot_pb2.TaskSnapshot:
        if task_id == "gone":
            raise TaskNotFoundError(task_id)
        if self.failure is not None:
            raise self.failure
        snapshot = snapshot_pb2.TaskSnapshot()
        snapshot.task.id = task_id
        return snapshot


@dataclass
class ScriptedDirectory:
    """A mesh with one agent, `tested`."""

    host: ScriptedHost

    def get_agent(self, name: str) -> registry_service_pb2.AgentRegistration:
        if name != "tested":
            raise AgentNotFoundError(name)
        return registry_service_pb2.AgentRegistration()

    def choose_host(self, name: str, **_options: str) -> registry_service_pb2.Host:
        self.get_agent(name)
        return registry_service_pb2.Host(address="tested:1", journal_ids=["jrnl0001"])

    def list_readers(self, name: str) -> list[registry_service_pb2.Host]:
        return [self.choose_host(name)]

    def group_by_store(
        self, hosts: Sequence[registry_service_pb2.Host]
    ) -> list[list[registry_service_pb2.Host]]:
        return [[host] for host in hosts]

    def client_at(self, address: str) -> ScriptedHost:
        assert address == "tested:1"
        return self.host

    def client_for_task(self, task_id: str) -> ScriptedHost:
        return self.host

    def get_task_host(self, task_id: str) -> registry_service_pb2.Host:
        return self.choose_host("tested")

    def choose_reader(self, task_id: str, *, besides: str = "") -> None:
        return None

    @asynccontextmanager
    async def submit(self, name: str, **_call: object) -> AsyncIterator[None]:
        self.get_agent(name)
        if self.host.failure is not None:
            raise self.host.failure
        yield


async def post(host: ScriptedHost, method: str, params: object = SEND) -> httpx2.Response:
    # The scripted directory has only the methods that these calls use.
    directory: Any = ScriptedDirectory(host)
    transport = httpx2.ASGITransport(app=Bridge(directory, Settings(default_agent="tested")).http)
    body = {"jsonrpc": "2.0", "id": "r-1", "method": method, "params": params}
    async with httpx2.AsyncClient(transport=transport, base_url="http://test") as client:
        return await client.post("/", json=body, headers={"A2A-Version": "1.0"})


@pytest.mark.parametrize(
    ("failure", "status", "retry_after"),
    [
        (OverloadedError("tested", "7"), 429, "7"),
        (PeerUnavailableError("host", "gone"), 503, "1"),
        (PeerTimeoutError("host", "late"), 504, None),
    ],
)
async def test_an_unavailable_mesh_sets_the_http_status(
    failure: Exception, status: int, retry_after: str | None
) -> None:
    answer = await post(ScriptedHost(failure), "SendMessage")
    assert answer.status_code == status
    assert answer.headers.get("retry-after") == retry_after
    assert answer.json()["id"] == "r-1"
    assert answer.json()["error"]["message"].startswith(str(failure))


async def test_an_internal_error_before_the_answer_is_redacted() -> None:
    answer = await post(ScriptedHost(RuntimeError("hunter2")), "SendMessage")
    assert answer.status_code == 200
    assert answer.json()["error"]["code"] == -32603
    assert "hunter2" not in answer.text


async def test_a_task_deleted_during_a_list_is_omitted() -> None:
    answer = await post(ScriptedHost(), "ListTasks", {"includeArtifacts": True})
    result = answer.json()["result"]
    assert [(task["id"], task["artifacts"]) for task in result["tasks"]] == [("a", []), ("b", [])]


async def test_a_list_that_cannot_be_completed_is_an_error() -> None:
    failure = PeerUnavailableError("host", "gone")
    answer = await post(ScriptedHost(failure), "ListTasks", {"includeArtifacts": True})
    assert answer.json()["error"]["message"].startswith(str(failure))
