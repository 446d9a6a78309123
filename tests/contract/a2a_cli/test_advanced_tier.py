"""Tier 3 of A2A's command-line standard.

Each test is named after the requirement that it covers.
"""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

from harness.a2a.standard_cli import StandardCli
from harness.a2a.tls_bridge import serving_tls
from harness.agents.conformance_agent import ConformanceAgent
from harness.conformance.registry import System
from harness.journal.manual_clock import ManualClock
from harness.mesh.command_line import start_command
from harness.mesh.small_mesh import open_small_mesh
from harness.remote.certificates import CertificateAuthority
from harness.remote.oauth_server import oauth_server
from harness.remote.scripted_agent import (
    http,
    result,
    scripted_agent,
    task,
)
from harness.remote.token_issuer import SigningKey, key_set
from harness.remote.web_server import serving
from trunkline.a2a_wire.card_signatures import CardSigner
from trunkline.json_values import message_to_dict, parse_dict
from trunkline.settings import Settings, TlsSettings
from trunkline.v1 import agent_card_pb2
from trunkline_bridge.app import Bridge
from trunkline_bridge.http.server_certificate import CertificateFiles, ServerCertificate

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a2acli_card_get_003(agent: StandardCli, cli: StandardCli, system: System) -> None:
    for transport in ("JSONRPC", "HTTP+JSON", "GRPC"):
        for version in ("1.0", "0.3"):
            flags = ("--transport", transport, "--a2a-version", version)
            shown = await agent.run("card", "get", "--extended", *flags)
            assert any(skill.startswith("secret: ") for skill in shown.fields("Skill")), shown
    public = await agent.run("card", "get")
    assert not any(skill.startswith("secret: ") for skill in public.fields("Skill"))
    url = system.mesh.bridged.url
    missing = await cli.run("card", "get", "--extended", "-a", url, "-o", "json")
    assert (missing.exit, missing.error["code"]) == (4, "A2ACLI_ERR_CREDENTIALS_MISSING")
    assert "A2ACLI_API_KEY" in missing.error["hint"]
    async with scripted_agent() as scripted:
        scripted.card["capabilities"]["extendedAgentCard"] = True
        line = cli.at(scripted.url, A2ACLI_BEARER="undeclared")
        refused = await line.run("card", "get", "--extended", "-o", "json")
        assert {call.method for call in scripted.calls} == {"card"}
    assert (refused.exit, refused.error["code"]) == (4, "A2ACLI_ERR_CREDENTIALS_MISSING")


async def test_a2acli_auth_008(agent: StandardCli, cli: StandardCli) -> None:
    async with scripted_agent(streaming=False) as scripted:
        scripted.card["securitySchemes"] = {"t": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}
        scripted.on("SendMessage", result(task("COMPLETED")))
        line = cli.at(scripted.url, "--bearer", "t-1", "--svc-param", "x-token:abcd")
        assert (await line.run("send", "hi")).exit == 0
        assert (await line.run("card", "get")).exit == 0
        cards = scripted.find_requests("card")
        assert len(cards) == 2
        for call in cards:
            assert not {"authorization", "x-token", "cookie"} & set(call.headers)
        (sent,) = scripted.find_requests("SendMessage")
    assert sent.headers["authorization"] == "Bearer t-1"


async def test_a2acli_card_get_004(cli: StandardCli, system: System) -> None:
    file = cli.home / "key.pem"
    file.write_bytes(SigningKey("any").pem())
    file.chmod(0o600)
    signer = CardSigner(file)
    documents: dict[str, Any] = {"card": await system.card()}
    app = Starlette(
        routes=[
            Route("/.well-known/agent-card.json", lambda _: JSONResponse(documents["card"])),
            Route("/.well-known/jwks.json", lambda _: JSONResponse(documents.get("keys"))),
        ]
    )
    with serving(app, "cards") as port:
        url = f"http://127.0.0.1:{port}"

        async def signature() -> str:
            shown = await cli.run("card", "get", "-a", url)
            assert shown.exit == 0
            return shown.field("Signature")

        assert await signature() == "absent"
        card = parse_dict(documents["card"], agent_card_pb2.AgentCard(), ignore_unknown_fields=True)
        signer.sign(card, base_url=url)
        documents["card"] = message_to_dict(card)
        assert (await signature()).startswith("unverifiable")
        documents["keys"] = json.loads(key_set(SigningKey("other")))
        assert (await signature()).startswith("unverifiable")
        documents["keys"] = signer.public_keys
        assert await signature() == f"verified (key {signer.key_id} of the card's origin)"
        documents["card"]["description"] = "Another text."
        assert (await signature()).startswith("unverifiable")


async def test_a2acli_card_get_005(agent: StandardCli, cli: StandardCli, system: System) -> None:
    url = system.mesh.bridged.url
    card = f"{url}/.well-known/agent-card.json"
    entries = [
        {"identifier": "urn:by-url", "displayName": "By URL", "url": card},
        {"identifier": "urn:inline", "displayName": "Inline", "inline": await system.card()},
        {"identifier": "urn:file", "displayName": "File", "url": "card.json"},
    ]
    file = cli.home / "catalog.json"
    file.write_text(json.dumps({"specVersion": "1.0", "entries": entries}))
    (cli.home / "card.json").write_text(json.dumps(await system.card()))
    for name in ("urn:by-url", "By%20URL", "urn:inline", "urn:file"):
        reference = f"{file}#{name}"
        assert (await cli.run("card", "get", "-a", reference)).field("Name") == "conformance"
        sent = await cli.run("send", "hi", "-a", reference, A2ACLI_API_KEY="key-of-ann")
        assert sent.field("State") == "TASK_STATE_COMPLETED"
    missing = await cli.run("send", "hi", "-a", f"{file}#nobody", "-o", "json")
    assert (missing.exit, missing.error["code"]) == (3, "A2ACLI_ERR_CARD_NOT_FOUND")
    async with scripted_agent() as scripted:
        catalog = json.dumps({"entries": [*entries, {"name": "spy", "url": "file:///etc/passwd"}]})
        scripted.on("card", http("200 OK", catalog, kind="application/json"))
        shown = await cli.run("card", "get", "-a", f"{scripted.url}#By URL")
        assert shown.field("Name") == "conformance"
        spied = await cli.run("card", "get", "-a", f"{scripted.url}#spy", "-o", "json")
    assert spied.error["code"] == "A2ACLI_ERR_CARD_NOT_FOUND"


async def test_a2acli_push_002(agent: StandardCli, system: System) -> None:
    command = ("a2a", "task", "push-config", "listen", "--token", "the-token", "-o", "json")
    async with start_command(*command, "--count", "3", HOME=str(agent.home)) as receiver:
        line = (await receiver.stderr.readline()).decode()
        url = line.split()[-1]
        assert url.startswith("http://127.0.0.1:")
        refused = await system.client.post(url, json=task("WORKING"))
        assert refused.status_code == 401
        # Agents of v0.3 post the task itself.
        older = {"kind": "task", "id": "t-0", "contextId": "c-0", "status": {"state": "working"}}
        headers = {"X-A2A-Notification-Token": "the-token"}
        assert (await system.client.get(url, headers=headers)).status_code == 405
        broken = await system.client.post(url, content="{", headers=headers)
        assert broken.status_code == 400
        large = await system.client.post(url, content=b"x" * (16 * 1024**2 + 1), headers=headers)
        assert large.status_code == 413
        assert (await system.client.post(url, json=older, headers=headers)).status_code == 204
        started = (await agent.run("send", "tck-long-running", "--async")).field("Task")
        words = ("task", "push-config", "create", started, url, "--token", "the-token")
        assert (await agent.run(*words)).exit == 0
        system.agent.release(started)
        out, _ = await receiver.communicate()
        assert receiver.returncode == 0
    events = [json.loads(text) for text in out.decode().splitlines()]
    assert len(events) == 3
    working = {"state": "TASK_STATE_WORKING"}
    assert events[0] == {"task": {"id": "t-0", "contextId": "c-0", "status": working}}
    for event in events[1:]:
        (payload,) = event.values()
        assert payload.get("taskId", payload.get("id")) == started


async def test_a2acli_chat_001(agent: StandardCli) -> None:
    lines = "hi\ntck-input-required\ndone\nhello again\n"
    talked = await agent.run("chat", stdin=lines)
    assert talked.exit == 0
    assert len(set(talked.fields("Context"))) == 1
    first, paused, answered, last = talked.fields("Task")
    assert paused == answered
    assert len({first, paused, last}) == 3
    states = ["COMPLETED", "INPUT_REQUIRED", "COMPLETED", "COMPLETED"]
    assert talked.fields("State") == [f"TASK_STATE_{state}" for state in states]


async def test_a2acli_tx_005(agent: StandardCli) -> None:
    grpc = agent.at(agent.arguments[1], "--transport", "GRPC", **agent.variables)
    sent = await grpc.run("send", "tck-artifact-data", "-o", "json", "--debug")
    assert "gRPC 127.0.0.1" in sent.err
    assert "/lf.a2a.v1.A2AService/SendStreamingMessage" in sent.err
    assert sent.json["task"]["artifacts"][0]["parts"] == [{"data": {"count": 3}}]
    over_http = await agent.run("task", "get", sent.json["task"]["id"], "-o", "json")
    assert over_http.json == sent.json["task"]


async def test_a2acli_auth_009(cli: StandardCli, tmp_path: Path) -> None:
    authority = CertificateAuthority()
    certificate, key = authority.issue("bridge", address="127.0.0.1").write(tmp_path, "bridge")
    client = authority.issue("client", dns="me.test").write(tmp_path, "client")
    roots = tmp_path / "roots.pem"
    roots.write_bytes(authority.certificate)
    tls = TlsSettings(
        certificate=certificate, key=key, client_roots=roots, require_client_certificate=True
    )
    files = CertificateFiles.from_settings(tls)
    assert files is not None
    async with open_small_mesh(tmp_path / "data") as mesh:
        await mesh.join(ConformanceAgent().agent())
        bridge = Bridge(mesh.directory, Settings(default_agent="conformance", tls=tls))
        async with serving_tls(bridge, ServerCertificate(files, ManualClock())):
            line = cli.at(bridge.addresses.http)
            identity = ("--client-cert", str(client[0]), "--client-key", str(client[1]))
            for transport in ("JSONRPC", "HTTP+JSON", "GRPC"):
                flags = ("--transport", transport)
                sent = await line.run("send", "hi", "--ca-cert", str(roots), *identity, *flags)
                assert sent.field("State") == "TASK_STATE_COMPLETED"
                insecure = await line.run("send", "hi", "--insecure", *identity, *flags)
                assert insecure.field("State") == "TASK_STATE_COMPLETED"
                assert "SECURITY WARNING" in insecure.err
            for wrong in (("--ca-cert", str(roots)), identity):
                refused = await line.run("send", "hi", *wrong, "-o", "json")
                assert (refused.exit, refused.error["code"]) == (3, "A2ACLI_ERR_UNREACHABLE")


async def test_a2acli_auth_010(cli: StandardCli) -> None:
    with oauth_server() as server:
        async with scripted_agent(streaming=False) as scripted:
            scripted.card["securitySchemes"] = {"oidc": server.openid_scheme()}
            scripted.on("SendMessage", result(task("COMPLETED")))
            line = cli.at(scripted.url, A2ACLI_CLIENT_ID="me")
            device = await line.run("auth", "login", "--scope", "openid profile")
            assert device.exit == 0, device
            assert device.field("Scheme") == "oidc"
            assert server.forms[0]["scope"] == "openid profile"
            secret = await line.run("auth", "login", A2ACLI_CLIENT_SECRET="secret-of-me")
            assert secret.exit == 0, secret
            assert server.forms[-1]["grant_type"] == "client_credentials"
            assert (await line.run("send", "hi")).exit == 0
            (call,) = scripted.find_requests("SendMessage")
    assert call.headers["authorization"] == "Bearer access-2"


async def test_a2acli_auth_011(agent: StandardCli) -> None:
    for transport in ("JSONRPC", "HTTP+JSON", "GRPC"):
        paused = await agent.run("send", "tck-auth-required", "--transport", transport)
        assert paused.exit == 0
        assert paused.field("State") == "TASK_STATE_AUTH_REQUIRED"
        assert "Message:\nlog in\n\n" in paused.out
        # The user logs in elsewhere; then the task can be awaited or answered.
        assert paused.field("Wait").endswith(f"--wait {paused.field('Task')}")
        resumed = await agent.run(
            "send", "done", "--task-id", paused.field("Task"), "--transport", transport
        )
        assert resumed.field("State") == "TASK_STATE_COMPLETED"
    talked = await agent.run("chat", stdin="tck-auth-required\n\ndone\n")
    states = ("AUTH_REQUIRED", "AUTH_REQUIRED", "COMPLETED")
    assert talked.fields("State") == [f"TASK_STATE_{state}" for state in states]
    assert len(set(talked.fields("Task"))) == 1


async def test_a2acli_demo_server_001(cli: StandardCli) -> None:
    command = ("a2a", "demo-server", "--listen", "127.0.0.1:0", "-o", "json")
    async with start_command(*command, folder=cli.home, HOME=str(cli.home)) as server:
        ready = json.loads(await server.stdout.readline())
        line = cli.at(ready["http"])
        assert (await line.run("send", "hello")).out.count("Text:\nhello\n\n") == 1
        expected = {"ask Who?": "INPUT_REQUIRED", "fail": "FAILED", "reject": "REJECTED"}
        for text, state in expected.items():
            assert (await line.run("send", text)).field("State") == f"TASK_STATE_{state}"
        file = await line.run("send", "file")
        assert file.field("File") == "report.csv (text/csv, 18 bytes)"
        assert "Text:\nhi\n\n" in (await line.run("send", "reply hi")).out
        server.send_signal(signal.SIGTERM)
        assert await server.wait() == 0


async def test_a2acli_ver_002(cli: StandardCli) -> None:
    uri = "https://example.com/ext/audit/v1"
    async with scripted_agent(streaming=False) as scripted:
        scripted.card["capabilities"]["extensions"] = [{"uri": uri, "required": True}]
        scripted.on("SendMessage", result(task("COMPLETED")))
        line = cli.at(scripted.url)
        refused = await line.run("send", "hi", "-o", "json")
        assert refused.error["code"] == "ExtensionSupportRequiredError"
        assert f"--extension {uri}" in refused.error["hint"]
        assert scripted.find_requests("SendMessage") == []
        assert (await line.run("send", "hi", "--extension", uri)).exit == 0
        (call,) = scripted.find_requests("SendMessage")
    assert call.headers["a2a-extensions"] == uri
