"""Third-party clients against a mesh in its own process, over each of their bindings."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from harness.a2a.sdk_processes import (
    KINDS,
    Json,
    Kind,
    Partner,
    PartnerError,
    make_environment,
    running_partner,
)
from harness.mesh.processes import MeshProcess, running_mesh
from harness.remote.token_issuer import write_api_keys
from harness.remote.webhook_receiver import WebhookReceiver, open_receiver

pytestmark = pytest.mark.asyncio(loop_scope="module")

TESTS = Path(__file__).parents[2]
KEY = "key-of-ann"
BINDINGS = ("JSONRPC", "HTTP+JSON", "GRPC")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MeshProcess]:
    folder = tmp_path_factory.mktemp("partners")
    keys = write_api_keys(folder / "keys.toml", [("ann", "acme", KEY)])
    agent = ("--agent", "harness.agents.partner_agent:partner", "--default", "partner")
    (folder / "trunkline.toml").write_text('[agent.echo]\na2a_grpc = "127.0.0.1:0"\n')
    async with running_mesh(
        folder,
        *agent,
        *("--allow-webhook", "127.0.0.1"),
        environment={"TRUNKLINE_API_KEYS_FILE": str(keys), "PYTHONPATH": str(TESTS)},
    ) as process:
        yield process


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def partners(mesh: MeshProcess) -> AsyncIterator[Mapping[str, Partner]]:
    make_environment()
    async with AsyncExitStack() as stack:
        yield {
            kind.name: await stack.enter_async_context(running_partner(kind, mesh.http_url, KEY))
            for kind in KINDS
        }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def receiver() -> AsyncIterator[WebhookReceiver]:
    async with open_receiver() as receiver:
        yield receiver


class Client:
    """A partner over one binding."""

    def __init__(self, partner: Partner, binding: str) -> None:
        self.partner = partner
        self._binding = binding

    async def call(self, name: str, **arguments: Any) -> Any:
        return await self.partner.call(name, binding=self._binding, **arguments)

    async def events(self, name: str, **arguments: Any) -> list[Json]:
        return [event async for event in self.opened(name, **arguments)]

    def opened(self, name: str, **arguments: Any) -> AsyncIterator[Json]:
        return self.partner.events(name, binding=self._binding, **arguments)


def all_but(call: str = "") -> pytest.MarkDecorator:
    """Return all clients over all bindings, except those whose SDK lacks a call."""
    spoken = [(kind, binding) for kind in KINDS for binding in BINDINGS if call not in kind.lacks]
    names = [f"{kind.name} {binding}" for kind, binding in spoken]
    return pytest.mark.parametrize("spoken", spoken, ids=names)


@pytest.fixture
def client(partners: Mapping[str, Partner], spoken: tuple[Kind, str]) -> Client:
    kind, binding = spoken
    return Client(partners[kind.name], binding)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_a_client_resolves_the_card(partners: Mapping[str, Partner], kind: Kind) -> None:
    assert await partners[kind.name].call("card") == {"name": "partner", "pushes": True}


@pytest.mark.parametrize(
    "kind", [kind for kind in KINDS if kind.version == "0.3"], ids=lambda kind: kind.name
)
async def test_a_client_of_v0_3_reaches_another_agent_over_grpc_by_its_card_alone(
    mesh: MeshProcess, kind: Kind
) -> None:
    make_environment()
    async with running_partner(kind, f"{mesh.http_url}/agents/echo", KEY) as partner:
        # This agent answers with the text itself.
        sent = await partner.call("send", binding="GRPC", text="hello")
        assert (sent["state"], sent["text"]) == ("completed", "hello")
        assert (await partner.call("get", binding="GRPC", task=sent["task"]))["text"] == "hello"
        events = [event async for event in partner.events("stream", binding="GRPC", text="count 3")]
        assert "".join(event["text"] for event in events if event["kind"] == "artifact") == "1 2 3 "


@all_but()
async def test_a_client_waits_for_a_task_and_reads_it(client: Client) -> None:
    completed = await client.call("send", text="count 3")
    assert (completed["kind"], completed["state"], completed["text"]) == (
        "task",
        "completed",
        "1 2 3 ",
    )
    task_read = await client.call("get", task=completed["task"])
    assert task_read == {**completed, "history": ["count 3"]}


@all_but()
async def test_a_client_does_not_wait_and_cancels(client: Client) -> None:
    submitted = await client.call("send", text="wait", now=True)
    assert submitted["state"] in ("submitted", "working")
    canceled = await client.call("cancel", task=submitted["task"])
    assert (canceled["task"], canceled["state"]) == (submitted["task"], "canceled")


@all_but()
async def test_a_client_streams(client: Client) -> None:
    first, *updates = await client.events("stream", text="count 40")
    assert first["kind"] == "task"
    assert {event["task"] for event in updates} == {first["task"]}
    texts = [event["text"] for event in updates if event["kind"] == "artifact"]
    assert "".join(texts) == "".join(f"{number} " for number in range(1, 41))
    assert updates[-1]["state"] == "completed"
    finals = [event["final"] for event in updates if "final" in event]
    assert not any(finals[:-1])
    assert finals[-1:] == ([True] if client.partner.kind.version == "0.3" else [])


@all_but()
async def test_a_client_gets_a_direct_reply(client: Client) -> None:
    reply = {"kind": "message", "text": "hello"}
    assert await client.call("send", text="message hello") == reply
    assert await client.events("stream", text="message hello") == [reply]


@all_but()
async def test_a_client_sends_a_file_and_gets_it_back(client: Client) -> None:
    completed = await client.call("send", text="look", file=[0, 1, 254, 255])
    assert (completed["text"], completed["files"]) == ("look", [[0, 1, 254, 255]])


@all_but()
async def test_a_client_continues_a_task_that_asked_for_input_and_credentials(
    client: Client,
) -> None:
    waiting = (await client.events("stream", text="ask your name?"))[-1]
    assert (waiting["state"], waiting["said"]) == ("input-required", "your name?")
    task = waiting["task"]
    # By the task's id alone.
    again = await client.call("send", text="login as Ada", task=task)
    assert (again["task"], again["state"], again["said"]) == (task, "auth-required", "as Ada")
    # By both ids.
    context = again["context"]
    events = await client.events("stream", text="done", task=task, context=context)
    assert (events[0]["task"], events[-1]["state"]) == (task, "completed")
    whole = await client.call("get", task=task)
    assert (whole["text"], whole["context"]) == ("turn 3: done", context)
    texts = ["ask your name?", "your name?", "login as Ada", "as Ada", "done"]
    assert [text for text in whole["history"] if text in texts] == whole["history"]
    assert whole["history"][0::2] == texts[0::2] or whole["history"] == texts
    latest = await client.call("get", task=task, history=1)
    assert latest["history"] == whole["history"][-1:]
    # By the context's id alone it is another task.
    other = await client.call("send", text="count 1", context=context)
    assert (other["context"], other["state"]) == (context, "completed")
    assert other["task"] != task


@all_but()
async def test_a_client_subscribes_and_sees_a_cancel(client: Client) -> None:
    sending = client.opened("stream", text="wait")
    task = (await anext(sending))["task"]
    subscription = client.opened("subscribe", task=task)
    assert (await anext(subscription))["task"] == task
    await client.call("cancel", task=task)
    for events in (sending, subscription):
        assert [event["state"] async for event in events][-1] == "canceled"


@all_but("list")
async def test_a_client_lists_a_conversation(client: Client) -> None:
    first = await client.call("send", text="count 1")
    context = first["context"]
    second = await client.call("send", text="count 2", context=context)
    listed = await client.call("list", context=context)
    assert listed == {"tasks": [second["task"], first["task"]], "total": 2}


@all_but()
async def test_a_client_registers_a_webhook_and_gets_posts(
    client: Client, receiver: WebhookReceiver
) -> None:
    task = (await client.call("send", text="ask more?"))["task"]
    config = {"id": "hook-1", "url": receiver.url}
    assert await client.call("set_push", task=task, config="hook-1", url=receiver.url) == config
    assert await client.call("get_push", task=task, config="hook-1") == config
    await client.call("send", text="that", task=task)
    await receiver.until(
        lambda seen: any(_reports_completion(post.json, task) for post in seen.accepted)
    )


def _reports_completion(post: Json, task: str) -> bool:
    """Return True if a post reports the task's completion in its version."""
    update = post.get("statusUpdate") or post.get("task") or post
    ids = (update.get("taskId"), update.get("id"))
    state = update.get("status", {}).get("state")
    return task in ids and state in ("TASK_STATE_COMPLETED", "completed")


@all_but("delete_push")
async def test_a_client_lists_and_deletes_webhooks(
    client: Client, receiver: WebhookReceiver
) -> None:
    task = (await client.call("send", text="ask more?"))["task"]
    for config in ("one", "two"):
        await client.call("set_push", task=task, config=config, url=receiver.url)
    assert sorted(await client.call("list_push", task=task)) == ["one", "two"]
    await client.call("delete_push", task=task, config="one")
    assert await client.call("list_push", task=task) == ["two"]


@all_but()
async def test_a_client_reads_the_extended_card(client: Client) -> None:
    assert await client.call("extended_card") == ["partner", "secret"]


@all_but()
async def test_a_client_understands_our_errors(client: Client) -> None:
    completed = (await client.call("send", text="count 1"))["task"]
    # Some SDKs of v0.3 have their own texts for errors, or only a status for all errors.
    with pytest.raises(PartnerError, match=r"no task 'nope'|Task not found|HTTP Error 404"):
        await client.call("get", task="nope")
    with pytest.raises(PartnerError, match=r"it is completed|be canceled|HTTP Error 400"):
        await client.call("cancel", task=completed)
    ended = r"has ended|not supported|HTTP Error 400"
    with pytest.raises(PartnerError, match=ended):
        await client.call("send", text="more", task=completed)
    with pytest.raises(PartnerError, match=ended):
        await client.events("stream", text="more", task=completed)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_a_client_reads_the_error_of_a_stream_that_never_begins(
    partners: Mapping[str, Partner], kind: Kind
) -> None:
    client = Client(partners[kind.name], "JSONRPC")
    completed = (await client.call("send", text="count 1"))["task"]
    for name, arguments, text in (
        ("subscribe", {"task": "nope"}, r"no task 'nope'|Task not found"),
        ("stream", {"text": "more", "task": completed}, "has ended|not supported"),
    ):
        with pytest.raises(PartnerError, match=text):
            await client.events(name, **arguments)
