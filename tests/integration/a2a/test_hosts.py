"""DNS rebinding: the bridge serves only requests for its own hosts, with either parser of HTTP."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from harness.a2a.bridged_mesh import BridgedMesh, open_bridged_mesh
from harness.hostile.http_probe import Answer, HttpProbe, read_answer
from trunkline.core.settings import Settings
from trunkline_agents.echo.agent import echo
from trunkline_bridge.app import Bridge
from trunkline_bridge.http import server as serving
from trunkline_bridge.http.server import serve_http

pytestmark = pytest.mark.asyncio(loop_scope="module")

ORIGIN = "https://app.example"
CARD = "/.well-known/agent-card.json"
MESSAGE = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
SEND = json.dumps(
    {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": MESSAGE}}
).encode()
FOREIGN = (
    "evil.example",
    "EVIL.example.",
    "evil.example:{port}",
    "localhost.evil.example:{port}",
    "127.0.0.1.evil.example:{port}",
    "192.168.1.5:{port}",
    "[2001:db8::1]:{port}",
    "bridge",
    "2130706433:{port}",
    "0x7f.1:{port}",
)
MALFORMED = (
    "",
    " ",
    ":{port}",
    "a/b<c>",
    "http://localhost:{port}",
    "user@localhost:{port}",
    "localhost:{port}, evil.example",
    "localhost:{port}x",
    "localhost:99999",
    "localhost:-1",
    "local host",
    "a..b",
    ".",
    "[",
    "[::1",
    "[::1]]:{port}",
    "[::1%25lo]:{port}",
    "[v1.x]",
    "::1",
    "\xfcber.example",
)


@dataclass(frozen=True)
class Raw:
    """Sends requests with any Host to one server."""

    probe: HttpProbe
    bridged: BridgedMesh

    @property
    def port(self) -> int:
        return self.probe.place[1]

    async def send(
        self,
        *hosts: str,
        method: str = "GET",
        target: str = CARD,
        body: bytes = b"",
        version: str = "1.1",
    ) -> Answer:
        """Send a request with these Host headers; `{port}` is the server's port."""
        lines = [f"{method} {target} HTTP/{version}".replace("{port}", str(self.port))]
        lines += [f"Host: {host.replace('{port}', str(self.port))}" for host in hosts]
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
        reader, writer = await asyncio.open_connection(*self.probe.place)
        try:
            writer.write("\r\n".join([*lines, "", ""]).encode("latin-1") + body)
            return await read_answer(reader)
        finally:
            writer.transport.abort()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridged(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BridgedMesh]:
    settings = Settings(
        default_agent="echo",
        allowed_hosts=("bridge.internal", "other.internal:8443"),
        allowed_origins=(ORIGIN,),
    )
    async with open_bridged_mesh(tmp_path_factory.mktemp("mesh"), settings) as mesh:
        await mesh.mesh.join(echo)
        yield mesh


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["h11", "httptools"])
async def raw(bridged: BridgedMesh, request: pytest.FixtureRequest) -> AsyncIterator[Raw]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(serving, "_PARSER", request.param)
        async with serve_http(bridged.bridge.http, host="127.0.0.1", port=0, grace_s=0) as url:
            yield Raw(HttpProbe(url), bridged)


def parsed(answer: Answer) -> Any:
    return json.loads(answer.body)


async def count_tasks(bridged: BridgedMesh) -> int:
    total: int = (await bridged.at("/").call("ListTasks", {}))["totalSize"]
    return total


@pytest.mark.parametrize("host", FOREIGN)
async def test_a_foreign_host_is_refused_and_the_setting_named(raw: Raw, host: str) -> None:
    before = await count_tasks(raw.bridged)
    answer = await raw.send(host, method="POST", target="/", body=SEND)
    assert (answer.status, answer.headers["connection"]) == (421, "close")
    error = parsed(answer)
    assert (error["jsonrpc"], error["id"], error["error"]["code"]) == ("2.0", None, -32600)
    assert "allowed_hosts" in error["error"]["message"]
    assert await count_tasks(raw.bridged) == before
    card = await raw.send(host)
    assert (card.status, card.headers["cache-control"]) == (421, "no-store")
    assert "supportedInterfaces" not in parsed(card)


@pytest.mark.parametrize(
    ("method", "target"),
    [
        ("POST", "/agents/echo"),
        ("POST", "/message:send"),
        ("GET", "/agents/echo/tasks"),
        ("POST", "/v1/message:send"),
        ("POST", "/agents/echo/v1/message:send"),
        ("GET", "/artifacts/a/b/c"),
        ("GET", "/.well-known/agent.json"),
        ("GET", f"/agents/echo{CARD}"),
        ("GET", "/agent/authenticatedExtendedCard"),
        ("GET", "/nowhere"),
        ("PUT", "/"),
    ],
)
async def test_each_path_refuses_a_foreign_host_in_its_protocol(
    raw: Raw, method: str, target: str
) -> None:
    answer = await raw.send("evil.example", method=method, target=target, body=b"{}")
    assert answer.status == 421
    error = parsed(answer)
    if (method, target) == ("POST", "/agents/echo"):
        assert error["error"]["code"] == -32600
        return
    if method != "PUT":
        assert (error["error"]["code"], error["error"]["status"]) == (421, "INVALID_ARGUMENT")
    # Clients of v0.3 read the members of JSON-RPC.
    assert error.get("code") == (-32600 if "/v1/" in target else None)


@pytest.mark.parametrize(
    ("host", "canonical"),
    [
        ("127.0.0.1:{port}", "127.0.0.1:{port}"),
        ("127.8.8.8:{port}", "127.8.8.8:{port}"),
        ("localhost:{port}", "localhost:{port}"),
        ("LocalHost:{port}", "localhost:{port}"),
        ("localhost.:{port}", "localhost:{port}"),
        ("\t localhost:{port} \t", "localhost:{port}"),
        ("[::1]:{port}", "[::1]:{port}"),
        ("[0:0:0:0:0:0:0:1]:{port}", "[::1]:{port}"),
        # Tunnels and forwarded ports, and proxies that pass a host without its port.
        ("localhost:1", "localhost:1"),
        ("127.0.0.1:1", "127.0.0.1:1"),
        ("localhost", "localhost"),
        ("localhost:", "localhost"),
        ("bridge.internal", "bridge.internal"),
        ("Bridge.Internal.:1234", "bridge.internal:1234"),
        ("other.internal:8443", "other.internal:8443"),
    ],
)
async def test_a_card_has_the_own_host_that_the_caller_used(
    raw: Raw, host: str, canonical: str
) -> None:
    answer = await raw.send(host)
    assert answer.status == 200, answer
    url = parsed(answer)["supportedInterfaces"][0]["url"]
    assert url == f"http://{canonical.replace('{port}', str(raw.port))}/"
    sent = await raw.send(host, method="POST", target="/agents/echo", body=SEND)
    assert (sent.status, "result" in parsed(sent)) == (200, True)


@pytest.mark.parametrize("host", MALFORMED)
@pytest.mark.parametrize("target", [CARD, "/healthz"])
async def test_a_malformed_host_is_a_bad_request(raw: Raw, host: str, target: str) -> None:
    answer = await raw.send(host, target=target)
    assert answer.status == 400
    assert parsed(answer)["error"]["code"] == 400


@pytest.mark.parametrize(
    "hosts", [(), ("localhost:{port}", "localhost:{port}"), ("localhost:{port}", "evil.example")]
)
@pytest.mark.parametrize(("method", "target"), [("GET", CARD), ("POST", "/"), ("GET", "/readyz")])
async def test_a_request_has_one_host(
    raw: Raw, hosts: tuple[str, ...], method: str, target: str
) -> None:
    body = SEND if method == "POST" else b""
    answer = await raw.send(*hosts, method=method, target=target, body=body)
    assert (answer.status, answer.headers["connection"]) == (400, "close")


async def test_http_1_0_needs_no_host_but_may_have_none_that_is_foreign(raw: Raw) -> None:
    answer = await raw.send(version="1.0")
    assert answer.status == 200
    # The request names no host, so the card has the address that the bridge listens on.
    assert parsed(answer)["supportedInterfaces"][0]["url"] == f"{raw.bridged.url}/"
    assert (await raw.send("localhost:{port}", version="1.0")).status == 200
    assert (await raw.send("evil.example", version="1.0")).status == 421
    assert (await raw.send("", version="1.0")).status == 400


@pytest.mark.parametrize(
    ("target", "host", "status"),
    [
        ("http://localhost:{port}" + CARD, "evil.example", 200),
        ("HTTP://LOCALHOST.:{port}" + CARD + "?a=b", "127.0.0.1:{port}", 200),
        ("http://[::1]:{port}/agents/echo" + CARD, "localhost:{port}", 200),
        ("http://evil.example" + CARD, "localhost:{port}", 421),
        ("https://evil.example:{port}" + CARD, "localhost:{port}", 421),
        ("http://user@localhost:{port}" + CARD, "localhost:{port}", 400),
        ("http://[::1" + CARD, "localhost:{port}", 400),
        ("http://evil.example", "localhost:{port}", 421),
    ],
)
async def test_the_authority_of_the_target_wins(
    raw: Raw, target: str, host: str, status: int
) -> None:
    """RFC 9112, 3.2.2."""
    answer = await raw.send(host, target=target)
    assert answer.status == status
    assert b"evil.example" not in answer.body or status == 421


async def test_an_absolute_target_serves_messages(raw: Raw) -> None:
    target = "http://localhost:{port}/agents/echo"
    answer = await raw.send("evil.example", method="POST", target=target, body=SEND)
    assert (answer.status, "result" in parsed(answer)) == (200, True)
    tasks = "http://localhost:{port}/agents/%65cho/tasks?pageSize=1&contextId=http://y/"
    listed = await raw.send("localhost:{port}", target=tasks)
    assert (listed.status, parsed(listed)["pageSize"]) == (200, 1)


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
async def test_probes_may_have_any_host(raw: Raw, path: str) -> None:
    # Load balancers and orchestrators send an address of their choice.
    for host in ("10.1.2.3:8000", "evil.example", "localhost:{port}"):
        answer = await raw.send(host, target=path)
        assert (answer.status, list(parsed(answer))) == (200, ["status"])
    assert (await raw.send("evil.example", target=path + "/")).status == 421


async def test_the_card_of_a_public_url_is_the_same_for_all_hosts(tmp_path: Path) -> None:
    settings = Settings(default_agent="echo", public_url="https://mesh.example/a2a/")
    async with open_bridged_mesh(tmp_path, settings) as bridged:
        await bridged.mesh.join(echo)
        raw = Raw(HttpProbe(bridged.url), bridged)
        hosts = ("mesh.example", "mesh.example:443", "localhost:{port}", "127.0.0.1:{port}")
        answers = [await raw.send(host) for host in hosts]
        assert {answer.status for answer in answers} == {200}
        assert len({answer.body for answer in answers}) == 1
        url = parsed(answers[0])["supportedInterfaces"][0]["url"]
        assert url == "https://mesh.example/a2a/"
        for name in ("etag", "last-modified", "cache-control"):
            assert len({answer.headers[name] for answer in answers}) == 1
        assert answers[0].headers["cache-control"] == "public, max-age=60"
        assert (await raw.send("mesh.example:8000")).status == 421
        assert (await raw.send("evil.example")).status == 421


async def test_a_bridge_on_all_interfaces_accepts_addresses_at_any_port(
    bridged: BridgedMesh, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A published port differs from ours. No page of a foreign site has an address as its host."""
    everywhere = "0.0.0.0"  # noqa: S104  the case to test
    async with serve_http(bridged.bridge.http, host=everywhere, port=0, grace_s=0) as url:
        monkeypatch.setattr(bridged.bridge.addresses, "http", url)
        raw = Raw(HttpProbe(url.replace(everywhere, "127.0.0.1")), bridged)
        own = (
            "localhost:8080",
            "192.168.1.5:8080",
            "[2001:db8::1]",
            "0.0.0.0:{port}",
            f"{socket.gethostname()}:8080",
        )
        for host in own:
            assert (await raw.send(host)).status == 200, host
        for host in ("evil.example:{port}", "bridge:{port}", "x.localhost:{port}"):
            assert (await raw.send(host)).status == 421, host


def preflight(origin: str) -> dict[str, str]:
    return {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "a2a-version, authorization, content-type",
    }


def shared_with(response: httpx2.Response) -> str | None:
    return response.headers.get("access-control-allow-origin")


@pytest.mark.parametrize(
    "path",
    [
        *("/", "/agents/echo", "/message:send", "/agents/echo/message:stream", "/v1/message:send"),
        *("/tasks/1", "/messages/rooms", "/graphql", "/files/1", CARD, "/healthz"),
    ],
)
async def test_pages_of_listed_origins_may_call_every_path(bridged: BridgedMesh, path: str) -> None:
    url, client = bridged.url + path, bridged.client
    allowed = await client.options(url, headers=preflight(ORIGIN))
    assert (allowed.status_code, shared_with(allowed)) == (200, ORIGIN)
    assert "POST" in allowed.headers["access-control-allow-methods"]
    assert "a2a-version" in allowed.headers["access-control-allow-headers"]
    assert "access-control-allow-credentials" not in allowed.headers
    refused = await client.options(url, headers=preflight("https://evil.example"))
    assert (refused.status_code, shared_with(refused)) == (400, None)
    # Errors may be read, too.
    answered = await client.get(url, headers={"Origin": ORIGIN})
    assert shared_with(answered) == ORIGIN
    assert "Origin" in answered.headers["vary"]
    assert shared_with(await client.get(url, headers={"Origin": "https://evil.example"})) is None


async def test_a_stream_for_a_page_of_a_listed_origin_is_not_buffered(bridged: BridgedMesh) -> None:
    caller = bridged.at("/")
    params = {"message": caller.message("wait 600")}
    async with caller.stream("SendStreamingMessage", params, {"Origin": ORIGIN}) as stream:
        assert stream.headers["access-control-allow-origin"] == ORIGIN
        # It stays open until the task is canceled, which needs the first event.
        task_id = (await anext(stream)).result["task"]["id"]
        await caller.call("CancelTask", {"id": task_id})
        assert (await stream.rest())[-1].state == "TASK_STATE_CANCELED"


async def test_no_page_of_another_site_may_call_by_default(bridged: BridgedMesh) -> None:
    bridge = Bridge(bridged.mesh.directory, Settings(default_agent="echo"))
    async with serve_http(bridge.http, host="127.0.0.1", port=0, grace_s=0) as url:
        bridge.addresses.http = url
        asked = await bridged.client.options(url, headers=preflight(ORIGIN))
        answered = await bridged.client.get(url + CARD, headers={"Origin": ORIGIN})
    assert (asked.status_code, shared_with(asked)) == (405, None)
    assert (answered.status_code, shared_with(answered)) == (200, None)
