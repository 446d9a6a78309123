"""The reference client, a2a-sdk, gets on with the bridge."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientConfig, create_client
from a2a.types import a2a_pb2
from a2a.utils.errors import TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

from harness.bridge import BridgedMesh, open_bridged_mesh
from harness.small_mesh import PATIENCE_S
from trunkline.agents.echo import echo


@pytest.fixture
async def bridged(tmp_path: Path) -> AsyncIterator[BridgedMesh]:
    async with asyncio.timeout(PATIENCE_S), open_bridged_mesh(tmp_path) as mesh:
        await mesh.mesh.join(echo)
        yield mesh


async def connect(
    bridged: BridgedMesh, http: httpx.AsyncClient, *, streaming: bool = True
) -> Client:
    card = await A2ACardResolver(http, f"{bridged.url}/agents/echo").get_agent_card()
    assert card.name == "echo"
    return await create_client(card, ClientConfig(streaming=streaming, httpx_client=http))


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client:
        yield client


def message(text: str, **fields: str) -> a2a_pb2.SendMessageRequest:
    request = a2a_pb2.SendMessageRequest()
    request.message.message_id = "m-1"
    request.message.role = a2a_pb2.ROLE_USER
    request.message.task_id = fields.get("task_id", "")
    request.message.parts.add(text=text)
    return request


async def everything(events: AsyncIterator[a2a_pb2.StreamResponse]) -> list[a2a_pb2.StreamResponse]:
    return [event async for event in events]


async def test_it_sends_and_waits(bridged: BridgedMesh, http: httpx.AsyncClient) -> None:
    client = await connect(bridged, http, streaming=False)
    (answer,) = await everything(client.send_message(message("count 3")))
    assert answer.task.status.state == a2a_pb2.TASK_STATE_COMPLETED
    assert answer.task.artifacts[0].parts[0].text == "1 2 3 "
    got = await client.get_task(a2a_pb2.GetTaskRequest(id=answer.task.id))
    assert got == answer.task


async def test_it_streams(bridged: BridgedMesh, http: httpx.AsyncClient) -> None:
    client = await connect(bridged, http)
    events = await everything(client.send_message(message("count 50 0 20")))
    assert events[0].HasField("task")
    updates = [event.artifact_update for event in events if event.HasField("artifact_update")]
    assert [update.artifact.parts[0].text.split()[0] for update in updates] == [
        str(number) for number in range(1, 51)
    ]
    assert events[-1].status_update.status.state == a2a_pb2.TASK_STATE_COMPLETED


async def test_it_gets_a_direct_reply(bridged: BridgedMesh, http: httpx.AsyncClient) -> None:
    client = await connect(bridged, http)
    (event,) = await everything(client.send_message(message("message hello")))
    assert event.message.parts[0].text == "hello"


async def test_it_answers_a_question(bridged: BridgedMesh, http: httpx.AsyncClient) -> None:
    client = await connect(bridged, http)
    asked = await everything(client.send_message(message("ask what?")))
    task_id = asked[0].task.id
    answered = await everything(client.send_message(message("this", task_id=task_id)))
    assert answered[-1].status_update.status.state == a2a_pb2.TASK_STATE_COMPLETED


async def test_it_subscribes_and_cancels(bridged: BridgedMesh, http: httpx.AsyncClient) -> None:
    client = await connect(bridged, http)
    streaming = client.send_message(message("wait 3600"))
    task_id = (await anext(streaming)).task.id
    subscription = client.subscribe(a2a_pb2.SubscribeToTaskRequest(id=task_id))
    assert (await anext(subscription)).task.id == task_id
    canceled = await client.cancel_task(a2a_pb2.CancelTaskRequest(id=task_id))
    assert canceled.status.state == a2a_pb2.TASK_STATE_CANCELED
    for events in (streaming, subscription):
        last = (await everything(events))[-1]
        assert last.status_update.status.state == a2a_pb2.TASK_STATE_CANCELED


async def test_it_lists(bridged: BridgedMesh, http: httpx.AsyncClient) -> None:
    client = await connect(bridged, http)
    for text in ("one", "two"):
        await everything(client.send_message(message(text)))
    page = await client.list_tasks(a2a_pb2.ListTasksRequest(page_size=1))
    assert (len(page.tasks), page.total_size, page.page_size) == (1, 2, 1)
    assert page.next_page_token


async def test_it_understands_our_errors(bridged: BridgedMesh, http: httpx.AsyncClient) -> None:
    client = await connect(bridged, http, streaming=False)
    with pytest.raises(TaskNotFoundError):
        await client.get_task(a2a_pb2.GetTaskRequest(id="nope"))
    (done,) = await everything(client.send_message(message("done")))
    with pytest.raises(TaskNotCancelableError):
        await client.cancel_task(a2a_pb2.CancelTaskRequest(id=done.task.id))
    with pytest.raises(UnsupportedOperationError):
        await everything(client.send_message(message("more", task_id=done.task.id)))
