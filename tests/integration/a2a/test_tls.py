"""TLS of the bridge over HTTP and gRPC: renewal, certificates of callers, and our client."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from a2a.types import a2a_pb2, a2a_pb2_grpc

from harness.a2a.grpc_client import collect, send_request
from harness.a2a.tls_bridge import serving_tls
from harness.journal.manual_clock import ManualClock
from harness.logs import find_logged
from harness.mesh.small_mesh import PATIENCE_S, open_small_mesh
from harness.remote.certificates import CertificateAuthority
from harness.remote.token_issuer import write_api_keys
from trunkline import Client, TaskContext, TaskState, agent
from trunkline.core.settings import Settings, TlsSettings
from trunkline.errors import ConfigurationError, PeerUnavailableError, TaskNotFoundError
from trunkline_bridge.app import Bridge
from trunkline_bridge.http.connection_limits import ConnectionLimits
from trunkline_bridge.http.server_certificate import (
    RELOAD_INTERVAL_S,
    CertificateFiles,
    ServerCertificate,
)

ROOT, CLIENT_ROOT = CertificateAuthority(), CertificateAuthority("clients")
URI = "spiffe://mesh.example/agents/ann"
KEY = "key-of-ann"
MAX_CONNECTIONS = 10
LIST = {"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": {}}


@agent(name="asker", description="Asks back.")
async def asker(task: TaskContext) -> None:
    await task.require_input("what else?")


@dataclass(slots=True)
class Edge:
    """A bridge with TLS, and how its clients see it."""

    folder: Path
    bridge: Bridge
    url: str
    address: str
    clock: ManualClock

    def client(self, identity: tuple[Path, Path] | None = None) -> httpx2.AsyncClient:
        """Return a client over HTTP; `identity` is its certificate."""
        verify = ROOT.client_context(identity)
        return httpx2.AsyncClient(
            base_url=self.url, verify=verify, trust_env=False, timeout=PATIENCE_S
        )

    def channel(self, identity: tuple[Path, Path] | None = None) -> grpc.aio.Channel:
        """Return a channel; `identity` is its certificate."""
        key, chain = (
            (identity[1].read_bytes(), identity[0].read_bytes()) if identity else (None, None)
        )
        credentials = grpc.ssl_channel_credentials(ROOT.certificate, key, chain)
        # Otherwise channels of one process share connections.
        options = (("grpc.use_local_subchannel_pool", 1),)
        return grpc.aio.secure_channel(self.address, credentials, options)

    def renew(self, authority: CertificateAuthority = ROOT) -> int:
        """Replace the bridge's certificate; return its serial number."""
        issued = authority.issue("bridge", address="127.0.0.1")
        issued.write(self.folder, "bridge")
        self.clock.now += RELOAD_INTERVAL_S
        return issued.serial

    async def http_serial(self) -> int:
        """Return the serial number of the certificate that a new connection over HTTP gets."""
        return await serial_of(self.url.removeprefix("https://"))

    async def grpc_serial(self) -> int:
        """Return the serial number of the certificate that a new connection over gRPC gets."""
        return await serial_of(self.address, alpn="h2")


async def serial_of(address: str, alpn: str = "http/1.1") -> int:
    context = ROOT.client_context()
    context.set_alpn_protocols([alpn])
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(PATIENCE_S):
        _, writer = await asyncio.open_connection(host, int(port), ssl=context)
        certificate: dict[str, Any] = writer.get_extra_info("peercert")
        writer.transport.abort()
    return int(certificate["serialNumber"], 16)


@asynccontextmanager
async def open_edge(
    folder: Path, *, roots: bool = False, is_required: bool = False, **settings: Any
) -> AsyncIterator[Edge]:
    certificate, key = ROOT.issue("bridge", address="127.0.0.1").write(folder, "bridge")
    (folder / "roots.pem").write_bytes(CLIENT_ROOT.certificate)
    tls = TlsSettings(
        certificate=certificate,
        key=key,
        client_roots=folder / "roots.pem" if roots else None,
        require_client_certificate=is_required,
    )
    clock = ManualClock()
    server_certificate = load(tls, clock)
    async with open_small_mesh(folder / "data") as mesh:
        await mesh.join(asker)
        bridge = Bridge(mesh.directory, Settings(default_agent="asker", tls=tls, **settings))
        limits = ConnectionLimits(max_connections=MAX_CONNECTIONS)
        async with serving_tls(bridge, server_certificate, limits):
            yield Edge(folder, bridge, bridge.addresses.http, bridge.addresses.grpc, clock)


@pytest.fixture
async def edge(tmp_path: Path) -> AsyncIterator[Edge]:
    async with open_edge(tmp_path) as opened:
        yield opened


def load(settings: TlsSettings, clock: ManualClock | None = None) -> ServerCertificate:
    files = CertificateFiles.from_settings(settings)
    assert files is not None
    return ServerCertificate(files, clock or ManualClock())


def stub(channel: grpc.aio.Channel) -> Any:
    return a2a_pb2_grpc.A2AServiceStub(channel)  # type: ignore[no-untyped-call]


async def test_both_bindings_are_served_with_tls_only(edge: Edge) -> None:
    assert edge.url.startswith("https://127.0.0.1:")
    async with edge.client() as client, edge.channel() as channel:
        assert (await client.post("/", json=LIST)).json()["result"]["tasks"] == []
        card = (await client.get("/.well-known/agent-card.json")).json()
        assert await stub(channel).ListTasks(a2a_pb2.ListTasksRequest())
    urls = {item["protocolBinding"]: item["url"] for item in card["supportedInterfaces"]}
    assert urls == {"JSONRPC": f"{edge.url}/", "HTTP+JSON": edge.url, "GRPC": edge.address}
    plain = edge.url.replace("https:", "http:")
    async with httpx2.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client:
        with pytest.raises(httpx2.RemoteProtocolError):
            await client.get(plain)
    async with grpc.aio.insecure_channel(edge.address) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as raised:
            await stub(channel).ListTasks(a2a_pb2.ListTasksRequest(), timeout=PATIENCE_S)
        assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize("binding", ["http", "grpc"])
async def test_versions_before_tls_1_2_are_refused(edge: Edge, binding: str) -> None:
    context = ROOT.client_context()
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
    address = edge.url.removeprefix("https://") if binding == "http" else edge.address
    host, _, port = address.rpartition(":")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        await asyncio.open_connection(host, int(port), ssl=context)


async def test_connections_that_begin_no_handshake_are_limited(edge: Edge) -> None:
    host, _, port = edge.url.removeprefix("https://").rpartition(":")
    with ExitStack() as stack:
        for _ in range(MAX_CONNECTIONS + 100):
            stack.enter_context(socket.create_connection((host, int(port)), PATIENCE_S))
        async with asyncio.timeout(PATIENCE_S):
            reader, writer = await asyncio.open_connection(host, int(port))
            assert await reader.read() == b""
            writer.close()
    async with edge.client() as client, asyncio.timeout(PATIENCE_S):
        while True:
            # The server notices the end of the others in its next iterations.
            with suppress(httpx2.TransportError):
                assert (await client.get("/healthz")).status_code == 200
                break


async def test_a_renewed_certificate_drops_no_stream(edge: Edge) -> None:
    first = await edge.http_serial()
    assert first == await edge.grpc_serial()
    async with edge.client() as client, edge.channel() as channel:
        message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
        sent = await client.post("/message:send", json={"message": message})
        task_id = sent.json()["task"]["id"]
        path = f"/tasks/{task_id}:subscribe"
        request = a2a_pb2.SubscribeToTaskRequest(id=task_id)
        async with asyncio.timeout(PATIENCE_S), client.stream("GET", path) as response:
            assert response.status_code == 200
            lines = response.aiter_lines()
            await anext(lines)
            call = stub(channel).SubscribeToTask(request)
            await call.read()
            for _ in range(3):
                serial = edge.renew()
                assert serial != first
                assert await edge.http_serial() == serial
                assert await edge.grpc_serial() == serial
            # A new connection ends the task, and the old ones see its end.
            async with edge.client() as other:
                canceled = await other.post(f"/tasks/{task_id}:cancel")
                assert canceled.status_code == 200
            assert "TASK_STATE_CANCELED" in "\n".join([line async for line in lines])
            events = await collect(call)
            assert events[-1].status_update.status.state == a2a_pb2.TASK_STATE_CANCELED


async def test_a_broken_certificate_is_reported_once_and_the_old_one_stays(
    edge: Edge, caplog: pytest.LogCaptureFixture
) -> None:
    first = await edge.http_serial()
    other_key = ROOT.issue("other").key
    broken: list[tuple[str, bytes]] = [
        ("bridge.key", other_key),
        ("bridge.key", b""),
        ("bridge.pem", b"no certificate"),
    ]
    caplog.set_level(logging.ERROR, "trunkline_bridge.http.server_certificate")
    for number, (name, content) in enumerate(broken, 1):
        (edge.folder / name).write_bytes(content)
        for _ in range(3):
            edge.clock.now += RELOAD_INTERVAL_S
            assert await edge.http_serial() == await edge.grpc_serial() == first
        assert [record.message for record in find_logged(caplog)] == ["tls.unusable"] * number
    (edge.folder / "bridge.key").chmod(0o644)
    edge.clock.now += RELOAD_INTERVAL_S
    assert await edge.http_serial() == first
    assert await edge.http_serial() == first
    serial = edge.renew()
    assert await edge.http_serial() == await edge.grpc_serial() == serial


def test_unusable_files_are_refused_at_the_start(tmp_path: Path) -> None:
    certificate, key = ROOT.issue("bridge").write(tmp_path, "bridge")
    _, other = ROOT.issue("other").write(tmp_path, "other")
    (tmp_path / "empty.pem").touch()

    def refusal(**settings: Any) -> str:
        named: dict[str, Any] = {"certificate": certificate, "key": key, **settings}
        with pytest.raises(ConfigurationError) as raised:
            load(TlsSettings(**named))
        return str(raised.value)

    assert "can't be used with the key" in refusal(key=other)
    assert "can't be read" in refusal(key=tmp_path / "none")
    assert "no certificates in PEM" in refusal(client_roots=tmp_path / "empty.pem")
    assert "both are needed" in refusal(key=None)
    assert "set client_roots" in refusal(require_client_certificate=True)
    key.chmod(0o644)
    assert "other users may read it" in refusal()
    assert CertificateFiles.from_settings(TlsSettings()) is None


@pytest.mark.parametrize(
    ("names", "caller"),
    [
        ({"uri": URI, "dns": "ann.example", "common_name": "ann"}, URI),
        ({"dns": "ann.example", "common_name": "ann"}, "ann.example"),
        ({"common_name": "ann"}, "ann"),
    ],
)
async def test_a_client_certificate_is_a_caller(
    tmp_path: Path, names: dict[str, str], caller: str
) -> None:
    identity = CLIENT_ROOT.issue(**names).write(tmp_path, "ann")
    other = CLIENT_ROOT.issue("bob").write(tmp_path, "bob")
    keys = [("cert", f"cert:{caller}", KEY), ("plain", caller, "key-of-plain")]
    api_keys = write_api_keys(tmp_path / "keys.toml", keys)
    async with (
        open_edge(tmp_path, roots=True, is_required=True, api_keys_file=api_keys) as edge,
        edge.client(identity) as client,
        edge.client(other) as others,
        edge.channel(identity) as channel,
    ):
        request = send_request("hi", now=True)
        task = (await stub(channel).SendMessage(request, timeout=PATIENCE_S)).task
        path = f"/tasks/{task.id}"
        assert (await client.get(path)).json()["id"] == task.id
        assert (await others.get(path)).status_code == 404
        # The account of a key is that of a certificate only if the file says so.
        same = await others.get(path, headers={"X-API-Key": KEY})
        assert same.status_code == 200
        assert (await others.get(path, headers={"X-API-Key": "key-of-plain"})).status_code == 404
        assert (await client.get(path, headers={"X-API-Key": "wrong"})).status_code == 401
        card = (await client.get("/.well-known/agent-card.json")).json()
        legacy = (await client.get("/.well-known/agent-card.json?A2A-Version=0.3")).json()
        extended = await client.get("/extendedAgentCard")
        ready = (await client.get("/readyz")).json()
    assert "mtlsSecurityScheme" in card["securitySchemes"]["mtls"]
    assert {"schemes": {"mtls": {"list": []}}} in card["securityRequirements"]
    assert legacy["securitySchemes"]["mtls"]["type"] == "mutualTLS"
    assert {"apiKey": [], "mtls": []} in legacy["security"]
    assert extended.status_code == 200
    assert "breakers" in ready


async def test_a_required_certificate_must_be_of_the_trusted_roots(tmp_path: Path) -> None:
    stranger = ROOT.issue("ann").write(tmp_path, "stranger")
    async with open_edge(tmp_path, roots=True, is_required=True) as edge:
        for identity in (None, stranger):
            async with edge.client(identity) as client:
                # TLS 1.3 clients learn it after their own side of the handshake.
                with pytest.raises(httpx2.TransportError):
                    await client.get("/healthz")
            async with edge.channel(identity) as channel:
                with pytest.raises(grpc.aio.AioRpcError) as raised:
                    await stub(channel).ListTasks(a2a_pb2.ListTasksRequest(), timeout=PATIENCE_S)
                assert raised.value.code() is grpc.StatusCode.UNAVAILABLE


async def test_an_optional_certificate_is_one_way_to_authenticate(tmp_path: Path) -> None:
    identity = CLIENT_ROOT.issue("ann").write(tmp_path, "ann")
    nameless = CLIENT_ROOT.issue(address="127.0.0.1").write(tmp_path, "nameless")
    async with open_edge(tmp_path, roots=True) as edge:
        answers = []
        for certificate in (identity, nameless, None):
            async with edge.client(certificate) as client:
                assert (await client.get("/healthz")).status_code == 200
                answers.append(await client.post("/", json=LIST))
        assert [answer.status_code for answer in answers] == [200, 401, 401]
        for answer in answers[1:]:
            problem = "send a client certificate with a URI, DNS or common name"
            assert problem in answer.json()["error"]["message"]


async def test_changed_roots_hold_for_the_next_connection(tmp_path: Path) -> None:
    identity = CLIENT_ROOT.issue("ann").write(tmp_path, "ann")
    async with open_edge(tmp_path, roots=True) as edge:
        context = ROOT.client_context(identity)
        for root, status in ((CLIENT_ROOT, 200), (CertificateAuthority("others"), 0)):
            (tmp_path / "roots.pem").write_bytes(root.certificate)
            edge.clock.now += RELOAD_INTERVAL_S
            # One context for both: its sessions could be resumed.
            async with httpx2.AsyncClient(
                base_url=edge.url, verify=context, trust_env=False, timeout=PATIENCE_S
            ) as client:
                if status:
                    assert (await client.post("/", json=LIST)).status_code == status
                else:
                    with pytest.raises(httpx2.TransportError):
                        await client.post("/", json=LIST)


async def test_the_client_library_has_a_certificate_or_a_key(tmp_path: Path) -> None:
    certificate, key = CLIENT_ROOT.issue("ann").write(tmp_path, "ann")
    root = tmp_path / "root.pem"
    root.write_bytes(ROOT.certificate)
    keys = write_api_keys(tmp_path / "keys.toml", [("ci", "acme", KEY)])
    trusted: dict[str, Any] = {
        "authority": root,
        "certificate": certificate,
        "certificate_key": key,
    }
    async with open_edge(tmp_path, roots=True, is_required=True, api_keys_file=keys) as edge:
        task_ids: dict[str, str] = {}
        for binding in ("JSONRPC", "GRPC"):
            async with Client(
                edge.url, bindings=[binding], hosts=["127.0.0.1"], **trusted
            ) as client:
                answer = await client.ask("hi")
                assert answer.state is TaskState.INPUT_REQUIRED
                task_ids[binding] = answer.task_id
        async with Client(edge.url, **trusted) as same:
            assert (await same.get(task_ids["GRPC"])).task_id == task_ids["GRPC"]
        async with Client(edge.url, key=KEY, **trusted) as other:
            with pytest.raises(TaskNotFoundError):
                await other.get(task_ids["GRPC"])
        async with Client(edge.url, authority=root) as unknown:
            with pytest.raises(PeerUnavailableError):
                await unknown.card()
    with pytest.raises(ConfigurationError, match="TLS"):
        Client("https://127.0.0.1:1", authority=tmp_path / "missing.pem")
