"""Participants of a real `trunkline.toml`, over TLS both ways, in a mesh of several processes."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from websockets.asyncio.client import ClientConnection, connect
from websockets.asyncio.server import ServerConnection, serve

from harness.mesh.processes import open_services
from harness.remote.certificates import CertificateAuthority
from trunkline import Client
from trunkline_bridge.callers.api_keys import ApiKey, hash_key, save_keys
from trunkline_bridge.http.server import serve_http
from trunkline_bridge.http.server_certificate import CertificateFiles, ServerCertificate

Json = dict[str, Any]
WAIT_S = 120.0
TRACE = "a" * 32
SETTINGS = """
default_agent = "posted"
api_keys_file = "keys"

[tls]
certificate = "server.pem"
key = "server.key"

[messaging]
attempts = 1

[participant.posted]
url = "{http}/posted"
token_env = "POSTED_TOKEN"
backoff_s = 0.01
retries = 2
headers = {{X-Plain = "plain"}}
headers_env = {{X-Team = "POSTED_TEAM"}}
headers_file = {{X-Tenant = "tenant"}}

[participant.keyed]
url = "{http}/keyed"
api_key_file = "secret"
api_key_header = "X-Key"
timeout_s = 0.3
retries = 0
breaker_failures = 1
breaker_open_s = 0.5
breaker_successes = 1

[participant.called]
url = "{socket}/"
username = "joe"
password_file = "secret"
"""


class Participants:
    """Servers outside, and what they have seen."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], Json]] = []
        self.handshakes: list[dict[str, str]] = []
        self.frames: list[Json] = []
        self.failures = 0
        self.is_silent = asyncio.Event()

    async def post(self, request: Request) -> Response:
        body = await request.json()
        self.requests.append((request.url.path, dict(request.headers), body))
        if body.get("text") == "flaky" and self.failures < 2:
            self.failures += 1
            return Response(status_code=503)
        if body.get("text") == "silence":
            await self.is_silent.wait()
        return JSONResponse({"type": "answer", "text": f"posted: {body.get('text')}"})

    async def talk(self, connection: ServerConnection) -> None:
        assert connection.request is not None
        self.handshakes.append(dict(connection.request.headers.items()))
        async for text in connection:
            frame = json.loads(text)
            self.frames.append(frame)
            envelope = frame["message"]
            # Messages of the mesh itself have no text.
            replies = f"said: {envelope['text']}" if "text" in envelope else []
            reply = {"replyTo": envelope["envelopeId"], "replies": replies}
            await connection.send(json.dumps(reply))


@asynccontextmanager
async def serve_participants(folder: Path) -> AsyncIterator[tuple[Participants, str, str]]:
    """Serve participants by HTTPS and by a WebSocket over TLS; yield both addresses."""
    files = CertificateFiles(
        folder / "server.pem", folder / "server.key", None, requires_client=False
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    participants = Participants()
    app = Starlette(routes=[Route("/{name}", participants.post, methods=["POST"])])
    async with (
        serve_http(
            app, host="127.0.0.1", port=0, grace_s=0, certificate=ServerCertificate(files)
        ) as url,
        serve(participants.talk, "127.0.0.1", 0, ssl=context) as server,
    ):
        port = server.sockets[0].getsockname()[1]
        yield participants, url, f"wss://127.0.0.1:{port}"
        participants.is_silent.set()


async def wait_for_agents(client: httpx2.AsyncClient, *names: str) -> None:
    """Wait until the bridge knows agents."""
    async with asyncio.timeout(WAIT_S):
        while True:
            ready = (await client.get("/readyz")).json()
            if set(names) <= ready.get("agents", {}).keys() and "messages" in ready:
                return
            await asyncio.sleep(0.05)


def write_files(folder: Path) -> CertificateAuthority:
    """Write certificates, secrets and keys of callers; return the authority."""
    authority = CertificateAuthority()
    authority.issue("server", address="127.0.0.1").write(folder, "server")
    (folder / "roots.pem").write_bytes(authority.certificate)
    for name, content in (("tenant", "tenant-9"), ("secret", "of-a-file")):
        (folder / name).write_text(f"{content}\n")
    save_keys(folder / "keys", [ApiKey("ann", "acme", hash_key("key-of-ann"))])
    return authority


async def read_until(connection: ClientConnection, sender: str) -> Json:
    """Read the messages of a room; return the first one of a sender."""
    async with asyncio.timeout(WAIT_S):
        async for text in connection:
            envelope: Json = json.loads(text).get("message", {}).get("envelope", {})
            if envelope.get("sender") == sender:
                return envelope
    raise AssertionError("the connection ended")


async def test_participants_over_tls_in_a_mesh_of_several_processes(tmp_path: Path) -> None:
    authority = write_files(tmp_path)
    roots = tmp_path / "roots.pem"
    environment = {
        "SSL_CERT_FILE": str(roots),
        "POSTED_TOKEN": "token-1",
        "POSTED_TEAM": "team-2",
    }
    async with (
        serve_participants(tmp_path) as (participants, http, socket),
        open_services(tmp_path, environment=environment) as services,
    ):
        (tmp_path / "trunkline.toml").write_text(SETTINGS.format(http=http, socket=socket))
        await services.start("registry", "registry")
        await services.launch("messages", "messages")
        await services.launch("bridge", "bridge")
        await services.launch("outside", "agents", "posted", "keyed", "called")
        for name in ("messages", "bridge", "outside"):
            await services.ready(name)
        assert services.http_url.startswith("https://")
        credentials = {"X-API-Key": "key-of-ann"}
        trust = authority.client_context()
        async with (
            httpx2.AsyncClient(
                base_url=services.http_url,
                headers=credentials,
                verify=trust,
                trust_env=False,
                timeout=WAIT_S,
            ) as http_client,
            Client(services.http_url, key="key-of-ann", authority=roots) as client,
        ):
            await wait_for_agents(http_client, "posted", "keyed", "called")

            # HTTP with a bearer token and further headers; tries again, in the sender's trace.
            body = {"recipient": "posted", "type": "user_message", "text": "flaky"}
            trace = {"traceparent": f"00-{TRACE}-{'b' * 16}-01"}
            answer = await http_client.post("/messages:request", json=body, headers=trace)
            assert answer.json()["text"] == "posted: flaky"
            assert len(participants.requests) == 3
            assert len({seen["idempotency-key"] for _, seen, _ in participants.requests}) == 1
            path, seen, _ = participants.requests[0]
            assert path == "/posted"
            assert seen["authorization"] == "Bearer token-1"
            assert (seen["x-plain"], seen["x-team"], seen["x-tenant"]) == (
                "plain", "team-2", "tenant-9",
            )  # fmt: skip
            assert seen["traceparent"].split("-")[1] == TRACE

            # An API key, a timeout, and the breaker, which opens and closes again.
            with_silence = {"recipient": "keyed", "type": "user_message", "text": "silence"}
            refused = await http_client.post("/messages:request", json=with_silence)
            assert "no answer in 0.3 s" in refused.json()["error"]["message"]
            assert participants.requests[-1][1]["x-key"] == "of-a-file"
            assert (
                await client.request("keyed", "again", timeout_s=WAIT_S)
            ).text == "posted: again"

            # Basic authentication over a WebSocket with TLS.
            reply = await client.request("called", "hello", timeout_s=WAIT_S)
            assert reply.text == "said: hello"
            assert participants.handshakes[0]["authorization"] == "Basic am9lOm9mLWEtZmlsZQ=="
            assert (
                participants.frames[0]["traceparent"].split("-")[1]
                == (participants.frames[0]["message"]["traceparent"].split("-")[1])
            )

            # The other way round: a participant outside is in a room, over TLS.
            await client.join("den", "called")
            room = f"{services.http_url.replace('https', 'wss')}/messages/rooms/den/socket"
            async with connect(room, ssl=trust, additional_headers=credentials, proxy=None) as ann:
                joined = json.loads(await ann.recv())["joined"]
                assert joined["room"] == "den"
                await ann.send(json.dumps({"send": {"type": "broadcast", "text": "to all"}}))
                assert (await read_until(ann, "called"))["text"] == "said: to all"

            # A message waits for the process of the participants, and is delivered once it is back.
            await services.kill("outside")
            async with asyncio.TaskGroup() as group:
                waiting = group.create_task(client.request("called", "later", timeout_s=WAIT_S))
                await services.restart("outside")
            assert waiting.result().text == "said: later"
