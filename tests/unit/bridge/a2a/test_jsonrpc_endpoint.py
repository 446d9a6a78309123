"""JSON-RPC over a failing mesh: scripted hosts return results that are rare on real ones."""

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
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
from trunkline.v1 import event_pb2, registry_service_pb2, snapshot_pb2, task_service_pb2
from trunkline_bridge.app import Bridge

SEND = {"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}}


@dataclass
class ScriptedStream:
    """A stream of batches with a scripted end."""

    batches: Sequence[event_pb2.EventBatch] = ()
    failure: Exception | None = None
    snapshot: snapshot_pb2.TaskSnapshot | None = None
    message: None = None

    def take_snapshot(self) -> snapshot_pb2.TaskSnapshot | None:
        return self.snapshot

    async def __aiter__(self) -> AsyncIterator[list[bytes]]:
        if self.batches:
            yield [batch.SerializeToString() for batch in self.batches]
        if self.failure is not None:
            raise self.failure


@dataclass
class ScriptedHost:
    """A host whose calls have a scripted result."""

    failure: Exception | None = None
    script: ScriptedStream = field(default_factory=ScriptedStream)

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

    def stream_message(self, **_call: object) -> AbstractAsyncContextManager[ScriptedStream]:
        @asynccontextmanager
        async def open_stream() -> AsyncIterator[ScriptedStream]:
            if self.failure is not None:
                raise self.failure
            yield self.script

        return open_stream()


@dataclass
class ScriptedDirectory:
    """A mesh with one agent, `tested`."""

    host: ScriptedHost

    def get_agent(self, name: str) -> registry_service_pb2.AgentRegistration:
        if name != "tested":
            raise AgentNotFoundError(name)
        return registry_service_pb2.AgentRegistration()

    def get_agent_host(self, name: str) -> registry_service_pb2.Host:
        self.get_agent(name)
        return registry_service_pb2.Host(journal_ids=["jrnl0001"])

    def client_for_agent(self, name: str) -> ScriptedHost:
        self.get_agent(name)
        return self.host

    def submit(self, name: str, **_call: object) -> AbstractAsyncContextManager[ScriptedStream]:
        self.get_agent(name)
        return self.host.stream_message()


def open_client(host: ScriptedHost, version: str = "1.0") -> httpx2.AsyncClient:
    """Return a client of a bridge that serves the draft of A2A 1.1, too."""
    # The scripted directory has only the methods that these calls use.
    directory: Any = ScriptedDirectory(host)
    app = Bridge(directory, Settings(default_agent="tested"))
    return httpx2.AsyncClient(
        transport=httpx2.ASGITransport(app=app),
        base_url="http://test",
        headers={"A2A-Version": version},
    )


async def post(
    host: ScriptedHost, method: str, params: object = SEND, *, version: str = "1.0"
) -> httpx2.Response:
    body = {"jsonrpc": "2.0", "id": "r-1", "method": method, "params": params}
    async with open_client(host, version) as client:
        return await client.post("/", json=body)


def created_batch() -> event_pb2.EventBatch:
    header = event_pb2.BatchHeader(task_id="jrnl0001-task", first_sequence=1, count=1)
    created = event_pb2.TaskCreated(context_id="ctx", agent="tested")
    return event_pb2.EventBatch(header=header, events=[event_pb2.Event(created=created)])


def parse_events(answer: httpx2.Response) -> list[dict[str, Any]]:
    """Return the fields of each event."""
    return [
        dict(line.split(": ", 1) for line in event.split("\n"))
        for event in answer.text.split("\n\n")
        if event
    ]


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
@pytest.mark.parametrize(
    ("failure", "status", "retry_after"),
    [
        (OverloadedError("tested", "7"), 429, "7"),
        (PeerUnavailableError("host", "gone"), 503, "1"),
        (PeerTimeoutError("host", "late"), 504, None),
    ],
)
async def test_an_unavailable_mesh_sets_the_http_status(
    method: str, failure: Exception, status: int, retry_after: str | None
) -> None:
    answer = await post(ScriptedHost(failure), method)
    assert answer.status_code == status
    assert answer.headers.get("retry-after") == retry_after
    assert answer.json()["id"] == "r-1"
    assert answer.json()["error"]["message"].startswith(str(failure))


@pytest.mark.parametrize("method", ["SendMessage", "SendStreamingMessage"])
async def test_an_internal_error_before_the_answer_is_redacted(method: str) -> None:
    answer = await post(ScriptedHost(RuntimeError("hunter2")), method)
    assert answer.status_code == 200
    assert answer.json()["error"]["code"] == -32603
    assert "hunter2" not in answer.text


@pytest.mark.parametrize(
    ("failure", "code"),
    [(PeerUnavailableError("host", "gone"), -32000), (RuntimeError("hunter2"), -32603)],
)
async def test_an_error_within_a_stream_is_its_last_event(failure: Exception, code: int) -> None:
    script = ScriptedStream([created_batch()], failure)
    answer = await post(ScriptedHost(script=script), "SendStreamingMessage")
    assert answer.status_code == 200
    first, last = parse_events(answer)
    assert first["id"] == "1.0"
    assert last["event"] == "error"
    assert json.loads(last["data"])["error"]["code"] == code
    assert json.loads(last["data"])["id"] == "r-1"
    assert "hunter2" not in answer.text


async def test_a_task_deleted_during_a_list_is_omitted() -> None:
    answer = await post(ScriptedHost(), "ListTasks", {"includeArtifacts": True})
    result = answer.json()["result"]
    assert [(task["id"], task["artifacts"]) for task in result["tasks"]] == [("a", []), ("b", [])]


async def test_a_list_that_cannot_be_completed_is_an_error() -> None:
    failure = PeerUnavailableError("host", "gone")
    answer = await post(ScriptedHost(failure), "ListTasks", {"includeArtifacts": True})
    assert answer.json()["error"]["message"].startswith(str(failure))
