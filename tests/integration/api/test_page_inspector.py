"""The page's inspector: cards, messages and streams of other agents, within its limits."""

import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import ed25519
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from harness.a2a.bridged_mesh import Event, Json
from harness.a2a.grpc_client import open_bridge_grpc
from harness.a2a.page_client import reason
from harness.a2a.page_mesh import PageMesh, open_page_mesh
from harness.polling import poll
from harness.remote import scripted_agent as remote
from harness.remote.scripted_agent import ScriptedAgent, scripted_agent
from trunkline_agents.echo.agent import echo

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PageMesh]:
    """Open a mesh whose page may inspect agents of this machine, such as its own."""
    folder = tmp_path_factory.mktemp("inspector")
    key = folder / "card.pem"
    key.touch(0o600)
    key.write_bytes(
        ed25519.Ed25519PrivateKey.generate().private_bytes(
            Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
        )
    )
    settings = {"inspect_allow": ("127.0.0.1",)}
    async with (
        open_page_mesh(folder, echo, default_agent="echo", page=settings, card_key=key) as mesh,
        open_bridge_grpc(mesh.bridged),
    ):
        yield mesh


@pytest_asyncio.fixture(loop_scope="module")
async def other() -> AsyncIterator[ScriptedAgent]:
    async with scripted_agent() as scripted:
        yield scripted


async def inspect(page: PageMesh, url: str, action: str = "card", **fields: object) -> list[Event]:
    """Return the events of an inspection; it has ended with `done`."""
    body = {"url": url, "action": action, **fields}
    async with page.at("operator").post_stream("/inspect", **body) as stream:
        events = await stream.rest()
    assert events[-1].kind == "done", events[-1]
    return events


def steps(events: list[Event]) -> dict[str, Json]:
    """Return the last step of each name."""
    return {event.response["name"]: event.response for event in events if event.kind == "step"}


def frames(events: list[Event]) -> list[Json]:
    return [event.response for event in events if event.kind == "frame"]


async def test_a_card_is_fetched_and_its_signature_verified(page: PageMesh) -> None:
    events = await inspect(page, f"{page.bridged.url}/agents/echo")
    found = steps(events)
    assert list(found) == ["address", "fetch", "card", "signature", "interface"]
    assert all(step["ok"] for step in found.values()), found
    assert found["signature"]["detail"].startswith("valid: EdDSA by key ")
    assert "JSONRPC 1.0" in found["interface"]["detail"]
    (card,) = frames(events)
    assert card["json"]["name"] == "echo"
    assert events[-1].response == {"ok": True}


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON", "GRPC"])
@pytest.mark.parametrize("version", ["1.0", "0.3"])
@pytest.mark.parametrize("action", ["send", "stream"])
async def test_messages_are_sent_over_each_binding_and_version(
    page: PageMesh, binding: str, version: str, action: str
) -> None:
    choice = {
        "binding": binding,
        "version": version,
        "text": "count 3",
        "headers": page.at().headers,
    }
    events = await inspect(page, f"{page.bridged.url}/agents/echo", action, **choice)
    found = steps(events)
    assert events[-1].response == {"ok": True}, found
    assert f"{binding} {version}" in found["interface"]["detail"]
    sent, *received = frames(events)[1:]
    assert sent["direction"] == "sent"
    assert "count 3" in json.dumps(sent["json"])
    text = json.dumps(received)
    assert all(number in text for number in ("1 ", "2 ", "3 "))
    assert "in state completed" in found[action]["detail"]
    # Headers may hold credentials.
    assert "key-of-ann" not in json.dumps([event.response for event in events])


async def test_a_wrong_signature_and_a_wrong_field_are_steps_that_failed(
    page: PageMesh, other: ScriptedAgent
) -> None:
    other.card["signatures"] = [{"protected": "e30", "signature": "AA"}]
    other.card["capabilities"]["streaming"] = "yes"
    events = await inspect(page, other.url)
    found = steps(events)
    assert not found["signature"]["ok"]
    wrong = found["card"]
    assert (wrong["field"], wrong["expected"]) == ("capabilities.streaming", "true or false")
    assert events[-1].response == {"ok": False}


async def test_streams_that_break_and_refusals_are_steps_that_failed(
    page: PageMesh, other: ScriptedAgent
) -> None:
    other.on("SendStreamingMessage", remote.stream(remote.task(), remote.chunk("half")))
    events = await inspect(page, other.url, "stream", text="hi")
    assert "although the turn is not over" in steps(events)["stream"]["detail"]
    assert not events[-1].response["ok"]
    other.on("SendMessage", remote.error(-32602, "no such skill"))
    events = await inspect(page, other.url, "send", text="hi")
    assert "no such skill" in steps(events)["send"]["detail"]
    other.on("SendMessage", remote.error(-32602, "unpaired \ud800"))
    events = await inspect(page, other.url, "send", text="hi")
    assert "unpaired ?" in steps(events)["send"]["detail"]
    other.on("SendMessage", remote.result({"task": {"id": float("nan")}}))
    events = await inspect(page, other.url, "send", text="hi")
    assert "NaN" in frames(events)[-1]["text"]
    events = await inspect(page, f"{page.bridged.url}/agents/echo", "send", text="hi")
    assert "set them in the field Headers" in steps(events)["send"]["detail"]
    other.on("card", remote.http("302 Found", more="location: http://10.0.0.1/\r\n"))
    assert "redirects" in steps(await inspect(page, other.url))["fetch"]["detail"]
    other.on("card", remote.http("200 OK", "no card"))
    assert "no JSON" in steps(await inspect(page, other.url))["card"]["detail"]


async def test_a_stream_without_end_is_bounded(page: PageMesh, other: ScriptedAgent) -> None:
    chunks = [remote.chunk("x") for _ in range(1500)]
    other.on("SendStreamingMessage", remote.stream(remote.task(), *chunks))
    events = await inspect(page, other.url, "stream", text="hi")
    assert "the limit of inspections" in steps(events)["stream"]["detail"]
    assert len(frames(events)) <= 1000


async def test_few_inspections_run_at_once_and_end_with_their_reader(
    page: PageMesh, other: ScriptedAgent
) -> None:
    other.on("SendMessage", remote.silence)
    body = {"url": other.url, "action": "send", "text": "hi"}
    async with AsyncExitStack() as stack:
        openings = [page.at("operator").post_stream("/inspect", **body) for _ in range(4)]
        streams = [await stack.enter_async_context(opening) for opening in openings]
        for stream in streams:
            assert (await anext(stream)).response["name"] == "address"
        refused = await page.at("operator").post("/inspect", **body)
        assert reason(refused) == "RESOURCE_EXHAUSTED"
    # The bridge sees a moment later that the readers have left.
    await poll(
        lambda: page.at("operator").post("/inspect", url=other.url),
        lambda response: response.is_success,
    )


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data",
        "https://10.0.0.1/",
        "http://example.com/",
        "https://[::1]:8443/",
        "https://localhost:8443/",
        "https://2130706433/",
        "ftp://127.0.0.1/",
        "https://user:secret@example.com/",
    ],
)
async def test_addresses_outside_the_allow_list_are_not_called(page: PageMesh, url: str) -> None:
    events = await inspect(page, url)
    found = steps(events)
    assert list(found) == ["address"]
    assert not found["address"]["ok"]
    assert not frames(events)


@pytest.mark.parametrize("binding", ["JSONRPC", "GRPC"])
async def test_a_card_leads_to_no_other_address(
    page: PageMesh, other: ScriptedAgent, binding: str
) -> None:
    url = "http://localhost:1" if binding == "JSONRPC" else "localhost:1"
    other.card["supportedInterfaces"] = [
        {"url": url, "protocolBinding": binding, "protocolVersion": "1.0"}
    ]
    events = await inspect(page, other.url, "send", text="hi")
    assert not steps(events)["interface"]["ok"]
    assert "leads to localhost:1" in steps(events)["interface"]["detail"]


async def test_inspections_are_in_the_audit_log(page: PageMesh, other: ScriptedAgent) -> None:
    await inspect(page, other.url)
    query = {"action": "agent.inspect", "pageSize": 1}
    # Records are written some time after the act.
    found = await poll(
        lambda: page.at("operator").read("/audit", **query),
        lambda found: [each["object"] for each in found["records"]] == [{"host": "127.0.0.1"}],
    )
    assert found["records"][0]["actor"]["account"] == "ops"


async def test_the_inspector_is_for_operators_who_may_send(page: PageMesh) -> None:
    body = {"url": f"{page.bridged.url}/agents/echo"}
    assert reason(await page.at().post("/inspect", **body)) == "PERMISSION_DENIED"
    reader = page.at("reading-operator")
    async with reader.post_stream("/inspect", **body) as stream:
        assert (await stream.rest())[-1].response == {"ok": True}
    send = {**body, "action": "send", "text": "hi"}
    assert reason(await reader.post("/inspect", **send)) == "PERMISSION_DENIED"
    for wrong in (
        {"url": ""},
        {"action": "delete"},
        {"action": "send"},
        {"binding": "SOAP"},
        {"version": "0.1"},
        {"headers": {"Host": "x"}},
        {"headers": {"X-Key": "a\nb"}},
    ):
        refused = await page.at("operator").post("/inspect", **{**body, **wrong})
        assert reason(refused) == "INVALID_PARAMS", wrong
