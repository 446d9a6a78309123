"""Webhooks through a real bridge, a real host and a real receiver."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import pytest_asyncio

from harness.a2a.bridged_mesh import BridgedMesh, Caller, open_bridged_mesh
from harness.agents.stepped_agent import SteppedAgent
from harness.polling import poll
from harness.remote.webhook_receiver import (
    OK,
    Answer,
    ReceivedPost,
    WebhookReceiver,
    accept,
    open_receiver,
    status,
)
from trunkline.core.settings import Settings
from trunkline.mesh.client import run_in_background
from trunkline.v1 import webhook_service_pb2
from trunkline_agents.echo.agent import echo
from trunkline_bridge.a2a.webhooks.signatures import generate_secret
from trunkline_bridge.app import Bridge

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json: TypeAlias = dict[str, Any]

SECRETS = ("opaque-77", "hook-secret-1")
UNRESOLVABLE = "later.invalid"
SETTINGS = Settings(
    default_agent="echo",
    allow_webhook=("127.0.0.1", UNRESOLVABLE),
    webhook_secret=generate_secret(),
)
DEAD = webhook_service_pb2.WEBHOOK_STATE_DEAD
WAITING = webhook_service_pb2.WEBHOOK_STATE_WAITING
DONE = webhook_service_pb2.WEBHOOK_STATE_DONE
OLD = {"A2A-Version": "0.3"}


@pytest.fixture(scope="module")
def gate() -> SteppedAgent:
    return SteppedAgent()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(
    tmp_path_factory: pytest.TempPathFactory, gate: SteppedAgent
) -> AsyncIterator[BridgedMesh]:
    folder = tmp_path_factory.mktemp("webhooks")
    async with open_bridged_mesh(folder, SETTINGS, lease_s=10.0) as bridged:
        await bridged.mesh.join(echo, gate.agent())
        yield bridged


@pytest.fixture
def caller(mesh: BridgedMesh) -> Caller:
    return mesh.at("/")


@pytest_asyncio.fixture(loop_scope="module")
async def receiver() -> AsyncIterator[WebhookReceiver]:
    async with open_receiver() as opened:
        yield opened


def config(receiver: WebhookReceiver, **fields: object) -> Json:
    return {"url": receiver.url, **fields}


async def send(caller: Caller, text: str, webhook: Json, *, now: bool = False) -> Json:
    configuration = {"taskPushNotificationConfig": webhook, "returnImmediately": now}
    params = {"message": caller.message(text), "configuration": configuration}
    task: Json = (await caller.call("SendMessage", params))["task"]
    return task


def kinds(posts: Sequence[ReceivedPost]) -> list[str]:
    return [next(iter(post.json)) for post in posts]


def states(posts: Sequence[ReceivedPost]) -> list[str]:
    """Return the states in v1.0 posts."""
    bodies = [post.json.get("task") or post.json.get("statusUpdate") for post in posts]
    return [
        body["status"]["state"].removeprefix("TASK_STATE_") for body in bodies if body is not None
    ]


def text(posts: Sequence[ReceivedPost]) -> str:
    """Return the folded text of the artifact updates in v1.0 posts."""
    whole = ""
    for post in posts:
        update = post.json.get("artifactUpdate")
        if update is not None:
            piece = "".join(part["text"] for part in update["artifact"]["parts"])
            whole = whole + piece if update.get("append") else piece
    return whole


def has_ended(seen: WebhookReceiver) -> bool:
    return "COMPLETED" in states(seen.accepted)


async def test_a_task_is_posted_from_its_first_event_to_its_last(
    caller: Caller, receiver: WebhookReceiver
) -> None:
    webhook = config(receiver, token=SECRETS[0])
    webhook["authentication"] = {"scheme": "Bearer", "credentials": SECRETS[1]}
    task = await send(caller, "count 5 20", webhook)
    await receiver.until(has_ended)
    posts = receiver.accepted
    assert kinds(posts)[0] == "task"
    assert states(posts) == ["SUBMITTED", "WORKING", "COMPLETED"]
    assert text(posts) == "1 2 3 4 5 "
    assert kinds(posts)[-1] == "statusUpdate"
    # Ids increase, and each is posted once.
    sequences = [int(post.id.rpartition(".")[0].rpartition(".")[2]) for post in posts]
    assert sequences == sorted(set(sequences))
    for post in posts:
        assert post.id.startswith(f"{task['id']}.")
        assert post.headers["content-type"] == "application/a2a+json"
        assert post.headers["x-a2a-notification-token"] == SECRETS[0]
        assert post.headers["authorization"] == f"Bearer {SECRETS[1]}"
        assert re.fullmatch(r"v1,[A-Za-z0-9+/]{43}=", post.headers["webhook-signature"])


async def test_a_webhook_in_a_later_message_is_registered_before_the_message(
    caller: Caller, receiver: WebhookReceiver
) -> None:
    task = await caller.send("ask Which one?")
    configuration = {"taskPushNotificationConfig": config(receiver)}
    message = caller.message("this one", taskId=task["id"])
    await caller.call("SendMessage", {"message": message, "configuration": configuration})
    await receiver.until(has_ended)
    assert states(receiver.accepted)[0] == "INPUT_REQUIRED"


async def test_a_webhook_in_a_message_to_an_ended_task_is_not_registered(
    caller: Caller, receiver: WebhookReceiver
) -> None:
    task = await caller.send("echo hello")
    configuration = {"taskPushNotificationConfig": config(receiver)}
    message = caller.message("more", taskId=task["id"])
    params = {"message": message, "configuration": configuration}
    assert (await caller.error("SendMessage", params))["code"] == -32004
    found = await caller.call("ListTaskPushNotificationConfigs", {"taskId": task["id"]})
    assert found["configs"] == []


async def test_several_bridges_post_each_event_once(
    mesh: BridgedMesh, caller: Caller, receiver: WebhookReceiver
) -> None:
    bridges = [Bridge(mesh.mesh.directory, SETTINGS) for _ in range(2)]
    async with (
        run_in_background(bridges[0].deliver_webhooks()),
        run_in_background(bridges[1].deliver_webhooks()),
    ):
        async with asyncio.TaskGroup() as group:
            for _ in range(10):
                group.create_task(send(caller, "count 3 5", config(receiver)))
        await receiver.until(lambda seen: states(seen.accepted).count("COMPLETED") == 10)
    assert len(receiver.all) == len(set(receiver.ids()))


async def test_an_ended_task_is_posted_once(
    mesh: BridgedMesh, caller: Caller, receiver: WebhookReceiver
) -> None:
    task = await caller.send("echo hello")
    await caller.call("CreateTaskPushNotificationConfig", config(receiver, taskId=task["id"]))
    await receiver.until(lambda seen: seen.accepted)
    assert receiver.accepted[0].json == {"task": task}
    await until(mesh, task["id"], DONE)
    assert len(receiver.all) == 1


async def test_each_of_several_webhooks_gets_everything(
    caller: Caller, receiver: WebhookReceiver
) -> None:
    async with open_receiver() as other:
        task = await send(caller, "ask Which one?", config(receiver, id="first"))
        params = config(other, taskId=task["id"], id="second")
        await caller.call("CreateTaskPushNotificationConfig", params)
        await caller.send("this one", taskId=task["id"])
        await receiver.until(has_ended)
        await other.until(has_ended)
        assert states(receiver.accepted) == ["SUBMITTED", "INPUT_REQUIRED", "WORKING", "COMPLETED"]
        assert states(other.accepted) == ["INPUT_REQUIRED", "WORKING", "COMPLETED"]
        assert text(receiver.accepted) == text(other.accepted) == "answer: this one"


async def test_expired_events_are_replaced_by_a_snapshot(
    tmp_path: Path, receiver: WebhookReceiver
) -> None:
    async def decide(received: ReceivedPost) -> Answer:
        return OK if "task" in received.json else status(503)

    receiver.decide = decide
    gate = SteppedAgent()
    async with open_bridged_mesh(tmp_path, SETTINGS) as bridged, asyncio.TaskGroup() as group:
        await bridged.mesh.join(gate.agent(), compact_after_s=0.01, lease_s=1.0)
        caller = bridged.at("/agents/tested")
        sending = group.create_task(send(caller, "go", config(receiver)))
        gate.write("hello")
        await receiver.until(lambda seen: len(seen.all) > len(seen.accepted) > 0)
        # The refused events expire before the next attempt.
        gate.write("")
        task = await sending
        await receiver.until(lambda seen: len(seen.accepted) == 2)
        await until(bridged, task["id"], DONE)
    assert states(receiver.accepted) == ["SUBMITTED", "COMPLETED"]
    assert receiver.accepted[1].json == {"task": task}
    assert len(receiver.all) > 2


async def test_a_receiver_that_answers_gone_gets_no_more_posts(
    mesh: BridgedMesh, caller: Caller, receiver: WebhookReceiver
) -> None:
    async def decide(_received: ReceivedPost) -> Answer:
        return status(410)

    receiver.decide = decide
    task = await send(caller, "echo hello", config(receiver))
    client = mesh.mesh.client("echo")
    await until(mesh, task["id"], DEAD)
    (webhook,) = await client.list_webhooks(task["id"])
    assert webhook.last_error == "it answered 410"
    assert len(receiver.all) == 1
    # The operator repairs the receiver.
    receiver.decide = accept
    assert await client.replay_webhook(task["id"]) == 1
    await receiver.until(has_ended)


async def test_a_post_that_fails_waits_for_the_next_attempt(
    mesh: BridgedMesh, caller: Caller, receiver: WebhookReceiver
) -> None:
    async def decide(_received: ReceivedPost) -> Answer:
        return status(500)

    receiver.decide = decide
    task = await send(caller, "echo hello", config(receiver))
    await until(mesh, task["id"], WAITING)
    client = mesh.mesh.client("echo")
    (webhook,) = await client.list_webhooks(task["id"])
    assert webhook.last_error == "it answered 500"
    receiver.decide = accept
    assert await client.replay_webhook(task["id"]) == 1
    await receiver.until(has_ended)


async def test_text_whose_response_was_lost_is_not_doubled(
    mesh: BridgedMesh, gate: SteppedAgent, receiver: WebhookReceiver
) -> None:
    lost_ids: list[str] = []

    async def decide(received: ReceivedPost) -> Answer:
        if "artifactUpdate" in received.json and len(lost_ids) < 2:
            lost_ids.append(received.id)
            gate.write(f"meanwhile {len(lost_ids)} ")
            # The post arrived, but its response is lost.
            return None
        if "artifactUpdate" in received.json and len(lost_ids) == 2:
            lost_ids.append("")
            gate.write("")
        return OK

    receiver.decide = decide
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(send(mesh.at("/agents/tested"), "go", config(receiver)))
        gate.write("one ", "two ", "three ")
        await receiver.until(has_ended)
        task = await sending
    whole = task["artifacts"][0]["parts"][0]["text"]
    assert whole == "one two three meanwhile 1 meanwhile 2 "
    assert text(receiver.accepted) == whole
    # Also for a receiver that applied every post, each id once.
    each = {post.id: post for post in receiver.all}
    assert text(list(each.values())) == whole


async def test_waiting_text_is_joined_into_one_update(
    mesh: BridgedMesh, gate: SteppedAgent, receiver: WebhookReceiver
) -> None:
    proceed = asyncio.Event()

    async def decide(received: ReceivedPost) -> Answer:
        if "task" not in received.json:
            await proceed.wait()
        return OK

    receiver.decide = decide
    caller = mesh.at("/agents/tested")
    async with asyncio.TaskGroup() as group:
        sending = group.create_task(send(caller, "go", config(receiver)))
        gate.write("begin ")
        await receiver.until(lambda seen: len(seen.all) == 2)
        gate.write(*(f"{number} " for number in range(90)), "")
        task = await sending
        proceed.set()
        await receiver.until(has_ended)
    assert text(receiver.accepted) == task["artifacts"][0]["parts"][0]["text"]
    assert kinds(receiver.accepted).count("artifactUpdate") < 10


async def test_a_webhook_of_v0_3_gets_the_whole_task_whenever_its_status_changes(
    caller: Caller, receiver: WebhookReceiver
) -> None:
    message = {
        "kind": "message",
        "messageId": "m-1",
        "role": "user",
        "parts": [{"kind": "text", "text": "count 3"}],
    }
    webhook = config(receiver, token=SECRETS[0])
    webhook["authentication"] = {"schemes": ["Bearer"], "credentials": SECRETS[1]}
    configuration = {"pushNotificationConfig": webhook, "blocking": True}
    params = {"message": message, "configuration": configuration}
    task = await caller.call("message/send", params, OLD)
    await receiver.until(lambda seen: len(seen.accepted) == 3)
    bodies = [post.json for post in receiver.accepted]
    assert [body["kind"] for body in bodies] == ["task"] * 3
    assert [body["status"]["state"] for body in bodies] == ["submitted", "working", "completed"]
    assert "artifacts" not in bodies[0]
    assert bodies[-1] == task
    headers = receiver.accepted[0].headers
    assert headers["content-type"] == "application/json"
    assert headers["authorization"] == f"Bearer {SECRETS[1]}"
    assert headers["x-a2a-notification-token"] == SECRETS[0]


async def test_a_webhook_of_the_original_wire_gets_tasks_by_the_ids_of_their_clients(
    caller: Caller, receiver: WebhookReceiver
) -> None:
    message = {"role": "user", "parts": [{"type": "text", "text": "echo hello"}]}
    params = {"id": "my own id/1", "message": message, "pushNotification": config(receiver)}
    task = await caller.call("tasks/send", params)
    await receiver.until(lambda seen: len(seen.accepted) == 3)
    bodies = [post.json for post in receiver.accepted]
    assert [body["id"] for body in bodies] == ["my own id/1"] * 3
    assert [body["status"]["state"] for body in bodies] == ["submitted", "working", "completed"]
    assert bodies[-1]["artifacts"] == task["artifacts"]
    # A second registration replaces the same webhook, which continues at its cursor.
    again = {"id": "my own id/1", "pushNotificationConfig": config(receiver)}
    created = await caller.call("tasks/pushNotification/set", again)
    assert created == again
    assert await caller.call("tasks/pushNotification/get", {"id": "my own id/1"}) == again


async def test_a_webhook_that_is_removed_gets_nothing_more(
    caller: Caller, receiver: WebhookReceiver
) -> None:
    task = await send(caller, "ask Which one?", config(receiver, id="mine"))
    await receiver.until(lambda seen: "INPUT_REQUIRED" in states(seen.accepted))
    config_params = {"taskId": task["id"], "id": "mine"}
    await caller.call("DeleteTaskPushNotificationConfig", config_params)
    async with open_receiver() as other:
        params = config(other, taskId=task["id"], id="other")
        await caller.call("CreateTaskPushNotificationConfig", params)
        await caller.send("this one", taskId=task["id"])
        await other.until(has_ended)
    assert states(receiver.accepted)[-1] == "INPUT_REQUIRED"


WRONG: list[tuple[Json, str]] = [
    ({"url": "http://example.com/"}, "url"),
    ({"url": "https://10.0.0.1/"}, "url"),
    ({"url": "https://169.254.169.254/latest"}, "url"),
    ({"url": "https://localhost/"}, "url"),
    ({"url": "https://does-not-exist.invalid/"}, "url"),
    ({"url": "https://user:secret@example.com/"}, "url"),
    ({"url": "not a url"}, "url"),
    ({"url": ""}, "url"),
    ({"id": "a/b"}, "id"),
    ({"id": "x" * 201}, "id"),
    ({"token": "line\r\nX-Evil: 1"}, "token"),
    ({"token": "x" * 5000}, "token"),
    ({"token": "smörgås"}, "token"),
    ({"authentication": {"scheme": "Bea rer", "credentials": "x"}}, "authentication.scheme"),
    ({"authentication": {"scheme": "", "credentials": "x"}}, "authentication.scheme"),
    (
        {"authentication": {"scheme": "Bearer", "credentials": "a\nb"}},
        "authentication.credentials",
    ),
]


@pytest.mark.parametrize(("fields", "name"), WRONG)
async def test_an_invalid_webhook_is_refused_with_its_field(
    caller: Caller, receiver: WebhookReceiver, fields: Json, name: str
) -> None:
    webhook = config(receiver) | fields
    message = caller.message("echo hello")
    params = {"message": message, "configuration": {"taskPushNotificationConfig": webhook}}
    error = await caller.error("SendMessage", params)
    assert error["code"] == -32602
    violations = error["data"][1]["fieldViolations"]
    assert [violation["field"] for violation in violations] == [
        f"configuration.taskPushNotificationConfig.{name}"
    ]
    assert "secret" not in str(error)
    assert receiver.connections == 0


async def test_a_host_that_can_t_be_resolved_is_not_called_private(caller: Caller) -> None:
    task = await caller.send("ask Which one?")
    params = {"taskId": task["id"], "url": "https://does-not-exist.invalid/"}
    error = await caller.error("CreateTaskPushNotificationConfig", params)
    assert error["code"] == -32602
    assert "can't be resolved now" in error["message"]
    assert "public" not in error["message"]


async def test_an_allowed_host_that_can_t_be_resolved_is_accepted_and_retried(
    mesh: BridgedMesh, caller: Caller
) -> None:
    task = await caller.send("ask Which one?")
    params = {"taskId": task["id"], "url": f"http://{UNRESOLVABLE}/hook"}
    await caller.call("CreateTaskPushNotificationConfig", params)
    await until(mesh, task["id"], WAITING)
    client = mesh.mesh.directory.client_for_task(task["id"])
    (webhook,) = await client.list_webhooks(task["id"])
    assert webhook.last_error == "its host can't be resolved now"


async def until(
    mesh: BridgedMesh, task_id: str, state: webhook_service_pb2.WebhookState.ValueType
) -> None:
    """Wait until the webhooks of a task are in a state."""
    client = mesh.mesh.directory.client_for_task(task_id)
    await poll(
        partial(client.list_webhooks, task_id),
        lambda webhooks: all(webhook.state == state for webhook in webhooks),
    )


async def test_a_big_file_is_posted_as_a_url(caller: Caller, receiver: WebhookReceiver) -> None:
    await send(caller, "file 100000", config(receiver))
    await receiver.until(has_ended)
    bodies = [post.json for post in receiver.accepted]
    artifacts = [body["artifactUpdate"]["artifact"] for body in bodies if "artifactUpdate" in body]
    (url,) = (part["url"] for artifact in artifacts for part in artifact["parts"] if "url" in part)
    assert (await caller.client.get(url)).content == (bytes(range(256)) * 400)[:100_000]
