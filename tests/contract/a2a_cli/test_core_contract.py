"""Tier 1 of A2A's command-line standard: output, exit codes, credentials, transports, settings.

Each test is named after the requirement that it covers.
"""

import io
import json
import re
import ssl
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from harness.a2a.standard_cli import StandardCli
from harness.conformance.registry import System
from harness.remote.certificates import CertificateAuthority
from harness.remote.scripted_agent import (
    ScriptedAgent,
    chunk,
    error,
    http,
    result,
    scripted_agent,
    status,
    stream,
    task,
)
from harness.remote.socket_server import listening
from trunkline.cli.a2a_cli.console import Console
from trunkline.cli.a2a_cli.failures import LocalCode
from trunkline.cli.a2a_cli.program import run

pytestmark = pytest.mark.asyncio(loop_scope="module")

TRANSPORTS = ("JSONRPC", "HTTP+JSON", "GRPC")
SKILLS = Path(__file__).parents[3] / "skills"
FIELD = re.compile(r"[A-Z][A-Za-z ]*: .*")


def declare(scripted: ScriptedAgent, **schemes: Mapping[str, Any]) -> None:
    """Declare security schemes on the card of a scripted agent."""
    scripted.card["securitySchemes"] = schemes


def api_key(name: str, location: str) -> Mapping[str, Any]:
    return {"apiKeySecurityScheme": {"name": name, "location": location}}


BEARER = {"httpAuthSecurityScheme": {"scheme": "Bearer"}}


async def test_a2acli_out_001(agent: StandardCli) -> None:
    for flags in ((), ("--stream",), ("--async",)):
        sent = await agent.run("send", "tck-input-required", *flags)
        task_id, context = sent.field("Task"), sent.field("Context")
        assert sent.field("State").startswith("TASK_STATE_")
        document = await agent.run("send", "tck-input-required", *flags, "-o", "json")
        last = document.lines[-1]
        found = last.get("task") or last["statusUpdate"]
        assert found.get("id") or found["taskId"]
        assert found["contextId"]
        assert found["status"]["state"]
        # Diagnostics are on stderr alone.
        assert document.err
        assert "warning" not in document.out
    for words in (("get",), ("cancel",)):
        shown = await agent.run("task", *words, task_id)
        assert (shown.field("Task"), shown.field("Context")) == (task_id, context)
        assert (await agent.run("task", *words, task_id, "-o", "json")).json["contextId"] == context


async def test_a2acli_out_002(agent: StandardCli) -> None:
    sent = await agent.run("send", "tck-stream-chunked", "-o", "json", A2ACLI_STREAM="1")
    (document,) = sent.lines
    assert document["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
    assert len(document["task"]["artifacts"][0]["parts"]) == 3
    task_id = document["task"]["id"]
    shown = await agent.run("task", "get", task_id, "-o", "json")
    assert shown.json["id"] == task_id
    assert len((await agent.run("task", "get", "none", "-o", "json")).lines) == 1


async def test_a2acli_out_003(agent: StandardCli, cli: StandardCli) -> None:
    sent = await agent.run("send", "tck-stream-chunked", "-o", "json", "--stream")
    assert sent.out.endswith("}\n")
    assert sent.lines[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
    async with scripted_agent() as scripted:
        failure = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32006, "message": "it broke"}}
        events = (task("WORKING"), chunk("one"), f"data: {json.dumps(failure)}")
        scripted.on("SendStreamingMessage", stream(*events))
        broken = await cli.at(scripted.url).run("send", "hi", "-o", "json", "--stream")
    assert broken.exit == 1
    assert broken.lines[:2] == [task("WORKING"), chunk("one")]
    assert broken.error["code"] == "InvalidAgentResponseError"


async def test_a2acli_out_004(agent: StandardCli, cli: StandardCli) -> None:
    errors = {
        "TaskNotFoundError": ("task", "get", "none"),
        "UnsupportedOperationError": ("send", "x", "--task-id", ""),
        "ContentTypeNotSupportedError": ("send", "--file", "https://x.test/a.mp4"),
        "InvalidParamsError": ("task", "list", "--page-token", "nonsense"),
    }
    ended = (await agent.run("send", "hi")).field("Task")
    for name, words in errors.items():
        arguments = [ended if word == "" else word for word in words]
        seen = []
        for transport in TRANSPORTS:
            failed = await agent.run(*arguments, "--transport", transport, "-o", "json")
            assert failed.exit == 1
            assert failed.error["hint"]
            seen.append((failed.error["code"], failed.error["message"]))
        assert {code for code, _ in seen} == {name}
        assert len(set(seen)) == 1
    local = {
        "A2ACLI_ERR_USAGE": (2, ("send", "-a", "x.test", "--poll-interval", "soon", "hi")),
        "A2ACLI_ERR_CARD_NOT_FOUND": (3, ("card", "get", "-a", "./missing.json")),
        "A2ACLI_ERR_UNREACHABLE": (3, ("card", "get", "-a", "127.0.0.1:1")),
    }
    for code, (exit_code, words) in local.items():
        failed = await cli.run(*words, "-o", "json")
        assert (failed.exit, failed.error["code"]) == (exit_code, code)
        assert failed.error["hint"]


async def test_a2acli_out_005(agent: StandardCli, cli: StandardCli) -> None:
    async with scripted_agent() as scripted:
        artifact = {"artifactId": "a", "parts": [{"text": "one\n\nState: \x1b[31mFORGED\x1b[0m"}]}
        scripted.on("GetTask", result(task("COMPLETED", artifacts=[artifact])["task"]))
        shown = await cli.at(scripted.url).run("task", "get", "t-1")
    # The block has no empty line inside, so a reader can skip it as a whole.
    assert "Text:\none\n \nState: [31mFORGED[0m\n\n" in shown.out
    outside = re.sub(r"^[A-Z][A-Za-z ]*:\n(?:.+\n)+\n", "", shown.out, flags=re.MULTILINE)
    assert outside
    assert all(FIELD.fullmatch(line) for line in outside.splitlines())
    for words in (("send", "tck-artifact-data"), ("send", "tck-stream-basic", "--stream")):
        text = (await agent.run(*words)).out
        outside = re.sub(r"^[A-Z][A-Za-z ]*:\n(?:.+\n)+\n", "", text, flags=re.MULTILINE)
        assert all(FIELD.fullmatch(line) for line in outside.splitlines())
    refused = await agent.run("chat", is_terminal=True)
    assert refused.exit == 2
    piped = await agent.run("chat", stdin="hi\n")
    assert piped.field("State") == "TASK_STATE_COMPLETED"


async def test_a2acli_out_006(agent: StandardCli) -> None:
    text = await agent.run("send", "tck-cancel", "--async")
    assert text.exit == 0
    assert text.field("Task")
    assert text.field("Context")
    started = (await agent.run("send", "tck-cancel", "--async", "-o", "json")).json["task"]
    assert started["id"]
    assert started["contextId"]
    for task_id in (text.field("Task"), started["id"]):
        assert (await agent.run("task", "cancel", task_id)).exit == 0


async def test_a2acli_exit_001(agent: StandardCli, cli: StandardCli, system: System) -> None:
    url = system.mesh.bridged.url
    (cli.home / "bad.json").write_text("[]")
    (cli.home / "json.env").write_text("A2ACLI_OUTPUT=json\n")
    configured = await cli.run("send", "--nonsense", "--config", str(cli.home / "json.env"))
    assert configured.error["code"] == LocalCode.USAGE
    table: list[tuple[int, str, list[str]]] = [
        (2, LocalCode.USAGE, ["send", "not \udcff text", "-a", url]),
        (0, "", ["card", "get", "-a", url]),
        (1, "TaskNotFoundError", ["task", "get", "none", "-a", url, "--api-key", "key-of-ann"]),
        (1, LocalCode.CARD_INVALID, ["card", "get", "-a", str(cli.home / "bad.json")]),
        (2, LocalCode.USAGE, ["send", "hi", "--nonsense"]),
        (2, LocalCode.USAGE, ["send", "hi"]),
        (2, LocalCode.USAGE, ["dance"]),
        (3, LocalCode.UNREACHABLE, ["send", "hi", "-a", "127.0.0.1:1"]),
        (3, LocalCode.CARD_NOT_FOUND, ["card", "get", "-a", f"{url}/nothing.json"]),
        (4, LocalCode.CREDENTIALS_MISSING, ["send", "hi", "-a", url]),
        (4, LocalCode.AUTH_FAILED, ["send", "hi", "-a", url, "--api-key", "a-wrong-key"]),
        (
            5,
            LocalCode.TIMEOUT,
            ["send", "tck-cancel", "-a", url, "--api-key", "key-of-ann", "--timeout", "100ms"],
        ),
    ]
    for exit_code, code, words in table:
        done = await cli.run(*words, "-o", "json")
        assert done.exit == exit_code, (words, done)
        if code:
            assert done.error["code"] == code, words


async def test_a2acli_exit_002(agent: StandardCli) -> None:
    states = {
        "tck-task-failure": "FAILED",
        "tck-reject-task": "REJECTED",
        "tck-input-required": "INPUT_REQUIRED",
        "tck-auth-required": "AUTH_REQUIRED",
    }
    for word, state in states.items():
        for flags in ((), ("--stream",), ("-o", "json")):
            sent = await agent.run("send", word, *flags)
            assert sent.exit == 0
            assert f"TASK_STATE_{state}" in sent.out
            assert f"TASK_STATE_{state}" in sent.err


async def test_a2acli_auth_001(cli: StandardCli) -> None:
    async with scripted_agent(streaming=False) as scripted:
        scripted.on("SendMessage", result(task("COMPLETED")))
        line = cli.at(scripted.url)

        async def headers(*flags: str, **variables: str) -> Mapping[str, str]:
            sent = await line.at(scripted.url, **variables).run("send", "hi", *flags)
            assert sent.exit == 0, sent
            return scripted.find_requests("SendMessage")[-1].headers

        declare(scripted, token=BEARER, key=api_key("X-Key", "header"))
        assert (await headers("--bearer", "t-1"))["authorization"] == "Bearer t-1"
        assert (await headers(A2ACLI_BEARER="t-2"))["authorization"] == "Bearer t-2"
        assert (await headers("--api-key", "k-1"))["x-key"] == "k-1"
        assert (await headers(A2ACLI_API_KEY="k-2"))["x-key"] == "k-2"
        declare(scripted, key=api_key("session", "cookie"))
        assert (await headers("--api-key", "k-3"))["cookie"] == "session=k-3"
        declare(scripted, key=api_key("key", "query"))
        # The scripted agent does not keep the target; the log of the wire shows the parameter.
        sent = await line.run("send", "hi", "--api-key", "k-44", "--debug")
        assert "?key=[redacted]" in sent.err
        given = await headers("--svc-param", "x-trace:abc", "--svc-param", "X-Team: red")
        assert (given["x-trace"], given["x-team"]) == ("abc", "red")
        declare(scripted)
        # Credentials go where the card declares them, and nowhere else.
        for flag, name in (("--api-key", "an API key"), ("--bearer", "a bearer token")):
            undeclared = await line.run("send", "hi", flag, "k-5", "-o", "json")
            assert undeclared.exit == 0
            assert f"declares no scheme for {name}, so yours is not sent" in undeclared.err
            sent_headers = scripted.find_requests("SendMessage")[-1].headers
            assert "k-5" not in str(sent_headers)
        # The schemes of a card of v0.3.
        declare(scripted, key={"type": "apiKey", "in": "header", "name": "X-Old"})
        assert (await headers("--api-key", "k-6"))["x-old"] == "k-6"
        declare(scripted, token={"type": "http", "scheme": "bearer"})
        assert (await headers("--bearer", "t-6"))["authorization"] == "Bearer t-6"
    (option,) = re.findall(
        r"--svc-param KEY:VALUE\s+(.*?)\n +--", (await cli.run("help", "send")).out, re.DOTALL
    )
    assert not re.search("auth|credential|token", option, re.IGNORECASE)


async def test_a2acli_auth_002(cli: StandardCli) -> None:
    shown = " ".join((await cli.run("send", "--help")).out.split())
    for flag, variable in (("--bearer", "A2ACLI_BEARER"), ("--api-key", "A2ACLI_API_KEY")):
        text = shown[shown.rindex(f"{flag} ") :][:200]
        assert "process list" in text
        assert "history" in text
        assert variable in text
    async with scripted_agent(streaming=False) as scripted:
        declare(scripted, token=BEARER)
        scripted.on("SendMessage", result(task("COMPLETED")))
        line = cli.at(scripted.url)
        assert (await line.run("send", "x", "--bearer", "flag", A2ACLI_BEARER="env")).exit == 0
        (call,) = scripted.find_requests("SendMessage")
    assert call.headers["authorization"] == "Bearer flag"


async def test_a2acli_auth_003(cli: StandardCli, tmp_path: Path) -> None:
    authority = CertificateAuthority()
    files = authority.issue("server", address="127.0.0.1").write(tmp_path, "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)
    async with scripted_agent(streaming=False) as scripted:
        declare(scripted, token=BEARER)
        scripted.on("SendMessage", result(task("COMPLETED")))
        async with listening(scripted.serve, context=context) as port:
            url = f"https://127.0.0.1:{port}"
            scripted.card["supportedInterfaces"][0]["url"] = url
            line = cli.at(url, A2ACLI_BEARER="secret")
            refused = await line.run("send", "hi", "-o", "json")
            assert (refused.exit, refused.error["code"]) == (3, "A2ACLI_ERR_UNREACHABLE")
            insecure = await line.run("send", "hi", "--insecure")
            (tmp_path / "roots.pem").write_bytes(authority.certificate)
            trusted = await line.run("send", "hi", "--ca-cert", str(tmp_path / "roots.pem"))
    assert insecure.exit == trusted.exit == 0
    assert "SECURITY WARNING" in insecure.err
    assert "credentials" in insecure.err
    assert "WARNING" not in trusted.err


async def test_a2acli_auth_004(agent: StandardCli, cli: StandardCli) -> None:
    secrets = ("tok-4711", "key-of-ann", "param-value")
    for transport in TRANSPORTS:
        for extra in ((), ("--verbose",), ("-o", "json")):
            sent = await agent.run(
                *("send", "hi", "--debug", "--transport", transport, *extra),
                *("--bearer", "tok-4711", "--svc-param", "x-secret:param-value"),
            )
            assert "-->" in sent.err
            assert "[redacted]" in sent.err
            assert not any(secret in sent.err + sent.out for secret in secrets)
    # A value that is too short to be replaced everywhere is replaced in its header.
    short = await agent.run("send", "hi", "--debug", "--svc-param", "x-pin:123")
    assert "x-pin: [redacted]" in short.err
    async with scripted_agent(streaming=False) as scripted:
        declare(scripted, token=BEARER)
        scripted.on("SendMessage", error(-32603, "you sent Bearer tok-4711"))
        line = cli.at(scripted.url, A2ACLI_BEARER="tok-4711")
        echoed = await line.run("send", "hi", "--debug", "-o", "json")
        shown = await line.run("config", "show")
    assert "tok-4711" not in echoed.out + echoed.err + shown.out


async def test_a2acli_tx_001(agent: StandardCli, cli: StandardCli, system: System) -> None:
    card = await system.card()
    interfaces = [x for x in card["supportedInterfaces"] if x["protocolVersion"] == "1.0"]
    assert len(interfaces) == 3
    file = cli.home / "card.json"
    for first in interfaces:
        order = [first, *(x for x in interfaces if x is not first)]
        file.write_text(json.dumps({**card, "supportedInterfaces": order}))
        shown = await cli.run("card", "get", "-a", str(file))
        assert shown.field("Selected").startswith(f"{first['protocolBinding']} 1.0")
        sent = await cli.run("send", "hi", "-a", str(file), A2ACLI_API_KEY="key-of-ann")
        assert sent.field("State") == "TASK_STATE_COMPLETED"


async def test_a2acli_tx_002(agent: StandardCli, cli: StandardCli, system: System) -> None:
    card = await system.card()
    unknown = {"url": "http://127.0.0.1", "protocolBinding": "CARRIER", "protocolVersion": "1.0"}
    offered = [x for x in card["supportedInterfaces"] if x["protocolBinding"] != "HTTP+JSON"]
    file = cli.home / "card.json"
    file.write_text(json.dumps({**card, "supportedInterfaces": [unknown, *offered]}))

    async def selected(*flags: str, **variables: str) -> str:
        shown = await cli.at(str(file), **variables).run("card", "get", *flags)
        return shown.field("Selected").split()[0]

    assert await selected() == "JSONRPC"
    assert await selected("--transport", "GRPC", "--transport", "JSONRPC") == "GRPC"
    # A binding that the card lacks is passed over.
    assert await selected("--transport", "HTTP+JSON", "--transport", "GRPC") == "GRPC"
    assert await selected("--transport", "HTTP+JSON") == "JSONRPC"
    assert await selected(A2ACLI_TRANSPORT="HTTP+JSON, GRPC") == "GRPC"
    assert (await cli.run("send", "x", "-a", str(file), "--transport", "pigeon")).exit == 2


async def test_a2acli_tx_003(agent: StandardCli, cli: StandardCli) -> None:
    async with scripted_agent(streaming=True) as scripted:
        interface = scripted.card["supportedInterfaces"][0]
        scripted.on("SendStreamingMessage", stream(task("WORKING"), status("COMPLETED")))
        scripted.on("GetTask", result(task("COMPLETED")["task"]))
        line = cli.at(scripted.url)
        for tenant in ("acme", ""):
            scripted.calls.clear()
            interface.pop("tenant", None)
            if tenant:
                interface["tenant"] = tenant
            for words in (("send", "hi"), ("task", "get", "t-1"), ("task", "cancel", "t-1")):
                assert (await line.run(*words)).exit == 0
            calls = [call for call in scripted.calls if call.method != "card"]
            assert {call.params.get("tenant", "") for call in calls} == {tenant}
            assert all(("tenant" in call.params) == bool(tenant) for call in calls)
        interface |= {"tenant": "acme", "protocolBinding": "HTTP+JSON"}
        logged = await line.run("task", "get", "t-1", "--debug")
    assert f"GET {scripted.url}/acme/tasks/t-1" in logged.err
    # The agent's own gRPC interface has a tenant.
    over_grpc = await agent.run("send", "hi", "--transport", "GRPC", "--debug")
    requests = [line for line in over_grpc.err.splitlines() if '"tenant"' in line]
    assert over_grpc.exit == 0
    assert sum('"tenant":"conformance"' in line for line in requests) >= 2


async def test_a2acli_ver_001(agent: StandardCli, cli: StandardCli) -> None:
    for transport in TRANSPORTS:
        logged = (await agent.run("send", "hi", "--debug", "--transport", transport)).err
        requests = logged.count("--> ")
        assert logged.count("a2a-version: 1.0") == requests
        refused = await agent.run(
            "send", "hi", "--a2a-version", "1.7", "--transport", transport, "-o", "json"
        )
        assert refused.error["code"] == "VersionNotSupportedError"
        # A version before 1.0 is spoken to those who ask for it, and signaled, too.
        older = await agent.run(
            "send", "hi", "--a2a-version", "0.3", "--transport", transport, "--debug"
        )
        assert older.exit == 0, older.err
        requests = older.err.count("--> ")
        assert older.err.count("a2a-version: 0.3") == requests
    unknown = await agent.run("send", "hi", "--a2a-version", "0.2", "-o", "json")
    assert unknown.error["code"] == "VersionNotSupportedError"
    async with scripted_agent() as scripted:
        scripted.card["supportedInterfaces"][0]["protocolVersion"] = "0.3"
        legacy = await cli.at(scripted.url).run("send", "hi", "-o", "json")
        assert [call.method for call in scripted.calls] == ["card"]
        # A card of v0.3 has its version elsewhere.
        del scripted.card["supportedInterfaces"]
        scripted.card |= {"url": scripted.url, "protocolVersion": "0.3.0"}
        original = await cli.at(scripted.url).run("send", "hi", "-o", "json")
        scripted.card["supportedInterfaces"] = [
            {"url": scripted.url, "protocolBinding": "JSONRPC", "protocolVersion": "2.0"}
        ]
        newer = await cli.at(scripted.url).run("send", "hi", "-o", "json")
        absent = await cli.at(scripted.url, A2ACLI_A2A_VERSION="0.3").run(
            "send", "hi", "-o", "json"
        )
        assert absent.error["code"] == "VersionNotSupportedError"
        assert absent.error["message"].endswith("no version 0.3 of A2A: 2.0")
    for refused, version in ((legacy, "0.3"), (original, "0.3.0"), (newer, "2.0")):
        assert refused.exit == 1
        assert refused.error["code"] == "VersionNotSupportedError"
        assert refused.error["message"].endswith(f": {version}")
        assert ("--a2a-version 0.3" in refused.error["hint"]) == version.startswith("0.3")


async def test_a2acli_default_001(agent: StandardCli, cli: StandardCli) -> None:
    shown = await agent.run("card", "get")
    assert shown.field("Selected").startswith("JSONRPC")
    preferred = await agent.run("card", "get", "--transport", "GRPC")
    assert preferred.field("Selected").startswith("GRPC")
    waited = await agent.run("send", "hi")
    assert waited.field("State") == "TASK_STATE_COMPLETED"
    assert (await agent.run("send", "tck-cancel", "--async")).field("Task")
    configured = await agent.run("send", "hi", "--wait", A2ACLI_ASYNC="true")
    assert configured.field("State") == "TASK_STATE_COMPLETED"
    assert (await agent.run("send", "hi", "-o", "json", A2ACLI_OUTPUT="text")).json
    assert "Task object" not in waited.out
    assert "Task object:\n" in (await agent.run("send", "hi", "--verbose")).out
    assert (await agent.run("send", "hi", "--a2a-version", "1.0")).exit == 0
    text = " ".join((await cli.run("send", "--help")).out.split())
    for default in ("[the order of the card]", "[on for send]", "[text]", "[off: concise]"):
        assert default in text
    assert "at least 1.0]" in text
    assert "[off: certificates are verified]" in text


async def test_a2acli_config_001(agent: StandardCli) -> None:
    folder = agent.home / ".config/a2a-cli"
    folder.mkdir(parents=True)
    (folder / ".env").write_text('A2ACLI_TIMEOUT="5m"\nA2ACLI_BEARER=hidden-token\n# a comment\n')
    shown = await agent.run("config", "show")
    assert shown.field("timeout") == f"5m ({folder / '.env'})"
    assert shown.field("poll-interval") == "20ms (A2ACLI_POLL_INTERVAL)"
    assert shown.field("output") == "text (built-in default)"
    flags = ("--insecure", "--transport", "GRPC", "--transport", "HTTP+JSON")
    given = await agent.run("config", "show", *flags)
    assert given.field("insecure") == "true (--insecure)"
    assert given.field("transport") == "GRPC, HTTP+JSON (--transport)"
    # The user's own file may have a secret that others can read.
    assert f"chmod 600 {folder / '.env'}" in shown.err
    (folder / ".env").chmod(0o600)
    assert "chmod" not in (await agent.run("config", "show")).err
    assert shown.field("bearer").startswith("[redacted]")
    assert "hidden-token" not in shown.out
    before = (folder / ".env").read_text()
    await agent.run("send", "tck-input-required")
    assert list(folder.rglob("*")) == [folder / ".env"]
    assert (folder / ".env").read_text() == before


async def test_a2acli_cli_001(cli: StandardCli) -> None:
    for words in (("help",), ("--help",), ("-h",)):
        shown = await cli.run(*words)
        assert shown.exit == 0
        assert "task push-config create" in shown.out
    for line in ("help task get", "task get --help", "task get -h"):
        shown = await cli.run(*line.split(), A2ACLI_POLL_INTERVAL="7s")
        assert shown.exit == 0
        assert shown.out.startswith("usage: trunkline a2a task get")
        assert "--history" in shown.out
        assert "polls. [7s, from A2ACLI_POLL_INTERVAL]" in " ".join(shown.out.split())
    assert "task list" in (await cli.run("task", "--help")).out
    for flag in ("-v", "--version"):
        shown = await cli.run(flag)
        assert shown.exit == 0
        assert re.fullmatch(r"\d+\.\d+\.\d+\S*\n", shown.out)
    assert (await cli.run()).exit == 2


async def test_a2acli_skill_001() -> None:
    (skill,) = SKILLS.rglob("SKILL.md")
    text = skill.read_text()
    assert len(text.split()) < 300
    assert "help" in text
    assert "push-config" not in text
    assert text.startswith("---\nname: ")
    assert "compatibility:" in text
    assert (skill.parent / "references/examples.md").is_file()


async def test_a2acli_skill_002() -> None:
    (skill,) = SKILLS.rglob("SKILL.md")
    text = skill.read_text()
    assert not re.search(r"\b(MUST|SHALL|SHOULD|REQUIRED)\b|A2ACLI_[A-Z]+_\d|§", text)


async def test_a_file_with_a_secret_is_stored_private(agent: StandardCli) -> None:
    from trunkline.cli.a2a_cli.token_store import StoredToken, TokenStore

    store = TokenStore(agent.home)
    store.save("https://x.test", StoredToken("s", "https://x.test/token", "me", "secret"))
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    store.path.chmod(0o644)
    refused = await agent.run("send", "hi", "-o", "json")
    assert refused.exit == 1
    assert refused.error["code"] == "A2ACLI_ERR_INTERNAL"
    assert "chmod" in refused.error["message"]


async def test_a_card_that_needs_credentials_is_no_public_card(cli: StandardCli) -> None:
    async with scripted_agent() as scripted:
        scripted.on("card", http("401 Unauthorized"))
        refused = await cli.at(scripted.url, A2ACLI_BEARER="t").run("send", "hi", "-o", "json")
        assert all("authorization" not in call.headers for call in scripted.calls)
    assert refused.exit == 4


class _ClosedPipe(io.StringIO):
    def write(self, _text: str) -> int:
        raise BrokenPipeError


async def test_a_reader_that_leaves_is_no_failure(agent: StandardCli) -> None:
    variables = {"HOME": str(agent.home), **agent.variables}
    err = io.StringIO()
    console = Console(io.StringIO(), _ClosedPipe(), err, variables, agent.home)
    # `main` ends quietly with it, as for `… | head -1`.
    with pytest.raises(BrokenPipeError):
        await run(["send", "hi", "--stream", *agent.arguments], console)
    assert "Error" not in err.getvalue()


NO_TASKS: dict[str, tuple[object, str]] = {
    "a wrapped task": (task("COMPLETED"), "its task has no id"),
    "an empty object": ({}, "its task has no id"),
    "no object": (["t-1"], "its task has no id"),
    "no state": ({"id": "t-1", "status": {}}, "its task has no status.state"),
    "no status": ({"id": "t-1"}, "its task has no status.state"),
}


@pytest.mark.parametrize("name", NO_TASKS)
async def test_an_answer_without_a_task_is_a_protocol_error(name: str, cli: StandardCli) -> None:
    answer, problem = NO_TASKS[name]
    async with scripted_agent() as scripted:
        scripted.on("SendStreamingMessage", stream(task(), status("COMPLETED")))
        scripted.on("GetTask", result(answer))
        scripted.on("CancelTask", result(answer))
        line = cli.at(scripted.url)
        for words in (("send", "hi"), ("task", "get", "t-1"), ("task", "cancel", "t-1")):
            failed = await line.run(*words, "-o", "json")
            assert failed.exit == 1, words
            assert problem in failed.error["message"]
    async with scripted_agent(streaming=False) as scripted:
        scripted.on("SendMessage", result({"task": answer}))
        failed = await cli.at(scripted.url).run("send", "hi", "-o", "json")
        assert failed.exit == 1
        assert "its task" in failed.error["message"]


async def test_events_after_the_end_of_the_task_are_shown(cli: StandardCli) -> None:
    async with scripted_agent() as scripted:
        scripted.on("SendStreamingMessage", stream(task(), status("COMPLETED"), chunk("late")))
        scripted.on("SubscribeToTask", stream(task(), status("COMPLETED"), chunk("late")))
        line = cli.at(scripted.url)
        for words in (("send", "hi"), ("task", "subscribe", "t-1")):
            shown = await line.run(*words, "-o", "json", "--stream")
            assert shown.lines[-1] == chunk("late"), words


async def test_an_entry_of_a_list_that_cannot_be_used_costs_only_itself(cli: StandardCli) -> None:
    webhook = {"taskId": "t-1", "id": "w", "url": "https://example.com"}
    lists: dict[tuple[str, ...], tuple[str, str, object, object]] = {
        ("task", "list"): ("ListTasks", "tasks", {"id": "x"}, task("COMPLETED")["task"]),
        ("task", "push-config", "list", "t-1"): (
            "ListTaskPushNotificationConfigs",
            "configs",
            {"id": "x"},
            webhook,
        ),
    }
    async with scripted_agent() as scripted:
        scripted.card["capabilities"]["pushNotifications"] = True
        line = cli.at(scripted.url)
        for words, (method, name, bad, good) in lists.items():
            scripted.on(method, result({name: [bad, 7, good]}))
            for flags in ((), ("-o", "json")):
                shown = await line.run(*words, *flags)
                assert shown.exit == 0, shown
                assert f"{name}[0] is left out: it has no" in shown.err
                assert f"{name}[1] is left out: it is no object" in shown.err
            assert shown.json[name] == [good]
            scripted.on(method, result({name: 7}))
            failed = await line.run(*words, "-o", "json")
            assert f"its {name} are no list" in failed.error["message"]
