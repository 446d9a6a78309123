"""The reference client, a2a-sdk, with the bridge over each of HTTP's bindings."""

from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from a2a.client import A2ACardResolver, Client, ClientConfig, create_client
from a2a.types import a2a_pb2
from a2a.utils.errors import (
    TaskNotCancelableError,
    TaskNotFoundError,
    UnsupportedOperationError,
)

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from harness.mesh.small_mesh import PATIENCE_S
from trunkline_agents.echo.agent import echo

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridged(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BridgedMesh]:
    async with open_bridged_mesh(tmp_path_factory.mktemp("sdk")) as mesh:
        await mesh.mesh.join(echo)
        yield mesh


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client:
        yield client


@pytest.fixture(
    params=[("JSONRPC", "1.0"), ("JSONRPC", "0.3"), ("HTTP+JSON", "1.0"), ("HTTP+JSON", "0.3")]
)
def spoken(request: pytest.FixtureRequest) -> tuple[str, str]:
    """The client's binding and version."""
    binding, version = request.param
    return binding, version


@pytest_asyncio.fixture(loop_scope="module")
async def client(bridged: BridgedMesh, http: httpx.AsyncClient, spoken: tuple[str, str]) -> Client:
    return await connect(bridged, http, spoken)


@pytest_asyncio.fixture(loop_scope="module")
async def waiting_client(
    bridged: BridgedMesh, http: httpx.AsyncClient, spoken: tuple[str, str]
) -> Client:
    """A client that waits for answers, without streaming."""
    return await connect(bridged, http, spoken, streaming=False)


async def connect(
    bridged: BridgedMesh,
    http: httpx.AsyncClient,
    spoken: tuple[str, str],
    *,
    streaming: bool = True,
) -> Client:
    card = await A2ACardResolver(http, f"{bridged.url}/agents/echo").get_agent_card()
    assert card.name == "echo"
    # Otherwise the client uses the newest version.
    cards = [
        interface
        for interface in card.supported_interfaces
        if (interface.protocol_binding, interface.protocol_version[:3]) == spoken
    ]
    card.ClearField("supported_interfaces")
    card.supported_interfaces.extend(cards)
    config = ClientConfig(
        streaming=streaming, httpx_client=http, supported_protocol_bindings=[spoken[0]]
    )
    return await create_client(card, config)


def message(text: str, **fields: str) -> a2a_pb2.SendMessageRequest:
    request = a2a_pb2.SendMessageRequest()
    request.message.message_id = "m-1"
    request.message.role = a2a_pb2.ROLE_USER
    request.message.task_id = fields.get("task_id", "")
    request.message.parts.add(text=text)
    return request


async def everything(events: AsyncIterator[a2a_pb2.StreamResponse]) -> list[a2a_pb2.StreamResponse]:
    return [event async for event in events]


async def test_it_sends_and_waits(waiting_client: Client) -> None:
    (answer,) = await everything(waiting_client.send_message(message("count 3")))
    assert answer.task.status.state == a2a_pb2.TASK_STATE_COMPLETED
    assert answer.task.artifacts[0].parts[0].text == "1 2 3 "
    task_read = await waiting_client.get_task(a2a_pb2.GetTaskRequest(id=answer.task.id))
    assert task_read == answer.task


async def test_it_streams(client: Client) -> None:
    events = await everything(client.send_message(message("count 50 0 20")))
    assert events[0].HasField("task")
    updates = [event.artifact_update for event in events if event.HasField("artifact_update")]
    assert [update.artifact.parts[0].text.split()[0] for update in updates] == [
        str(number) for number in range(1, 51)
    ]
    assert events[-1].status_update.status.state == a2a_pb2.TASK_STATE_COMPLETED


async def test_it_gets_a_direct_reply(client: Client) -> None:
    (event,) = await everything(client.send_message(message("message hello")))
    assert event.message.parts[0].text == "hello"


async def test_it_answers_a_question(client: Client) -> None:
    waiting = await everything(client.send_message(message("ask what?")))
    task_id = waiting[0].task.id
    answered = await everything(client.send_message(message("this", task_id=task_id)))
    assert answered[-1].status_update.status.state == a2a_pb2.TASK_STATE_COMPLETED


async def test_it_subscribes_and_cancels(client: Client) -> None:
    streaming = client.send_message(message("wait 3600"))
    task_id = (await anext(streaming)).task.id
    subscription = client.subscribe(a2a_pb2.SubscribeToTaskRequest(id=task_id))
    assert (await anext(subscription)).task.id == task_id
    canceled = await client.cancel_task(a2a_pb2.CancelTaskRequest(id=task_id))
    assert canceled.status.state == a2a_pb2.TASK_STATE_CANCELED
    for events in (streaming, subscription):
        last = (await everything(events))[-1]
        assert last.status_update.status.state == a2a_pb2.TASK_STATE_CANCELED


@pytest.mark.parametrize("spoken", [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0")], indirect=True)
async def test_it_lists(client: Client) -> None:
    ids = []
    for text in ("one", "two"):
        events = await everything(client.send_message(message(text)))
        ids.append(events[0].task.id)
    request = a2a_pb2.ListTasksRequest(page_size=1, include_artifacts=True, history_length=1)
    page = await client.list_tasks(request)
    assert [task.id for task in page.tasks] == ids[1:]
    assert (page.tasks[0].artifacts[0].parts[0].text, page.page_size) == ("two", 1)
    request.page_token = page.next_page_token
    request.status = a2a_pb2.TASK_STATE_COMPLETED
    request.status_timestamp_after.FromJsonString("2020-01-31T12:00:00.000Z")
    assert [task.id for task in (await client.list_tasks(request)).tasks] == ids[:1]


async def test_it_understands_our_errors(waiting_client: Client) -> None:
    with pytest.raises(TaskNotFoundError):
        await waiting_client.get_task(a2a_pb2.GetTaskRequest(id="nope"))
    (completed,) = await everything(waiting_client.send_message(message("done")))
    with pytest.raises(TaskNotCancelableError):
        await waiting_client.cancel_task(a2a_pb2.CancelTaskRequest(id=completed.task.id))
    with pytest.raises(UnsupportedOperationError):
        await everything(waiting_client.send_message(message("more", task_id=completed.task.id)))


async def test_it_understands_errors_of_streams(client: Client) -> None:
    with pytest.raises(TaskNotFoundError):
        await everything(client.subscribe(a2a_pb2.SubscribeToTaskRequest(id="nope")))
    with pytest.raises(TaskNotFoundError):
        await everything(client.send_message(message("more", task_id="nope")))
    completed = await everything(client.send_message(message("done")))
    with pytest.raises(UnsupportedOperationError):
        await everything(client.send_message(message("more", task_id=completed[0].task.id)))
