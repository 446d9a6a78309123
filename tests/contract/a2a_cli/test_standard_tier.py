"""Tier 2 of A2A's command-line standard.

Each test is named after the requirement that it covers.
"""

import asyncio
import itertools
import json
import stat
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from harness.a2a.standard_cli import StandardCli
from harness.conformance.registry import System
from harness.mesh.command_line import run_in_process, start_command
from harness.remote.oauth_server import oauth_server
from harness.remote.scripted_agent import (
    chunk,
    result,
    scripted_agent,
    status,
    stream,
    task,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

TRANSPORTS = ("JSONRPC", "HTTP+JSON", "GRPC")


async def test_a2acli_card_get_002(agent: StandardCli, cli: StandardCli, system: System) -> None:
    valid = await agent.run("card", "get", "--validate")
    assert valid.exit == 0
    assert valid.field("Schema") == "valid"
    card = (await agent.run("card", "get", "-o", "json")).json
    file = cli.home / "card.json"
    for broken in (
        {name: value for name, value in card.items() if name != "skills"},
        {**card, "supportedInterfaces": [{"url": "http://127.0.0.1"}]},
        {**card, "flavour": "salty"},
        {**card, "skills": [{"id": "s"}]},
    ):
        file.write_text(json.dumps(broken))
        checked = await cli.run("card", "get", "--validate", "-a", str(file), "-o", "json")
        assert "trunkline" not in checked.error["message"]
        assert checked.exit == 1
        assert checked.error["code"] == "A2ACLI_ERR_CARD_INVALID"
    # Without the flag, the card is shown as it is.
    assert (await cli.run("card", "get", "-a", str(file))).exit == 0


async def test_a2acli_task_list_001(agent: StandardCli) -> None:
    context = (await agent.run("send", "hi")).field("Context")
    for _ in range(2):
        assert (await agent.run("send", "hi", "--context-id", context)).exit == 0
    paused = (await agent.run("send", "tck-input-required", "--context-id", context)).field("Task")
    for transport in TRANSPORTS:
        flags = ("--context-id", context, "--transport", transport)
        first = await agent.run("task", "list", *flags, "--page-size", "3", "-o", "json")
        assert len(first.json["tasks"]) == 3
        assert first.json["totalSize"] == 4
        token = first.json["nextPageToken"]
        rest = await agent.run("task", "list", *flags, "--page-token", token, "-o", "json")
        seen = {entry["id"] for page in (first, rest) for entry in page.json["tasks"]}
        assert len(seen) == 4
        everything = ("--page-size", "1", "--all", "-o", "json", "--stream")
        assert {
            line["id"] for line in (await agent.run("task", "list", *flags, *everything)).lines
        } == seen
        waiting = await agent.run("task", "list", *flags, "--status", "input-required")
        assert waiting.fields("Task") == [paused]
    assert (await agent.run("task", "list", "--status", "asleep")).exit == 2


async def test_a2acli_task_subscribe_001(agent: StandardCli, system: System) -> None:
    for transport in TRANSPORTS:
        task_id = (await agent.run("send", "tck-long-running", "--async")).field("Task")
        words = ("task", "subscribe", task_id, "--transport", transport)
        command = ("a2a", *words, *agent.arguments, "-o", "json", "--stream")
        key = agent.variables["A2ACLI_API_KEY"]
        async with start_command(*command, HOME=str(agent.home), A2ACLI_API_KEY=key) as subscriber:
            first = json.loads(await subscriber.stdout.readline())
            assert first["task"]["id"] == task_id
            # From here on, only the stream can tell how the task goes on.
            system.agent.release(task_id)
            out, _ = await subscriber.communicate()
        final = json.loads(out.splitlines()[-1])["statusUpdate"]
        assert final["status"]["state"] == "TASK_STATE_COMPLETED"
        # A subscriber that comes late gets the ended task.
        document = await agent.run(*words, "-o", "json")
        assert document.json["status"]["state"] == "TASK_STATE_COMPLETED"
        text = await agent.run(*words)
        assert text.field("State") == "TASK_STATE_COMPLETED"
        assert text.field("Task") == task_id


async def test_a2acli_task_subscribe_002(cli: StandardCli) -> None:
    async with scripted_agent() as scripted:
        scripted.on(
            "SubscribeToTask",
            stream(task("WORKING"), chunk("one "), cut=True),
            stream(task("WORKING"), chunk("two"), status("COMPLETED")),
        )
        followed = await cli.at(scripted.url).run(
            "task", "subscribe", "t-1", "-o", "json", "--stream"
        )
        assert len(scripted.find_requests("SubscribeToTask")) == 2
        assert scripted.find_requests("GetTask") == []
    assert followed.lines == [
        task("WORKING"),
        chunk("one "),
        task("WORKING"),
        chunk("two"),
        status("COMPLETED"),
    ]


async def test_a2acli_auth_005(cli: StandardCli) -> None:
    with oauth_server() as server:
        async with scripted_agent(streaming=False) as scripted:
            scripted.card["securitySchemes"] = {"oauth": server.scheme()}
            scripted.on("SendMessage", result(task("COMPLETED")))
            line = cli.at(scripted.url, A2ACLI_CLIENT_ID="me")
            login = await line.run("auth", "login", "--flow", "device-code")
            assert login.exit == 0, login
            assert "WDJB-MJHT" in login.err
            assert login.field("Scheme") == "oauth"
            assert (await line.run("send", "hi")).exit == 0
            (call,) = scripted.find_requests("SendMessage")
        assert call.headers["authorization"] == "Bearer access-1"
        assert server.forms[0]["scope"] == "tasks"
        assert server.forms[-1]["device_code"] == "device-secret-1"
        assert "access-1" not in login.out + login.err


async def test_a2acli_auth_006(cli: StandardCli) -> None:
    with oauth_server() as server:
        async with scripted_agent(streaming=False) as scripted:
            scripted.card["securitySchemes"] = {"oauth": server.client_scheme()}
            scripted.on("SendMessage", result(task("COMPLETED")))
            line = cli.at(scripted.url, A2ACLI_CLIENT_ID="me")
            wrong = await line.run("auth", "login", "-o", "json", A2ACLI_CLIENT_SECRET="wrong-one")
            assert (wrong.exit, wrong.error["code"]) == (4, "A2ACLI_ERR_AUTH_FAILED")
            assert (await line.run("auth", "login")).exit == 2
            login = await line.run("auth", "login", A2ACLI_CLIENT_SECRET="secret-of-me")
            assert login.exit == 0, login
            assert (await line.run("send", "hi")).exit == 0
            (call,) = scripted.find_requests("SendMessage")
        assert call.headers["authorization"] == "Bearer access-1"
        assert server.forms[-1]["grant_type"] == "client_credentials"


async def test_a2acli_auth_007(cli: StandardCli) -> None:
    with oauth_server() as server:
        async with scripted_agent(streaming=False) as scripted, scripted_agent() as other:
            scripted.card["securitySchemes"] = {"oauth": server.client_scheme()}
            other.card["securitySchemes"] = {"oauth": server.client_scheme()}
            scripted.on("SendMessage", result(task("COMPLETED")))
            line = cli.at(scripted.url, A2ACLI_CLIENT_ID="me", A2ACLI_CLIENT_SECRET="secret-of-me")
            server.expires_in_s = 1
            assert (await line.run("auth", "login")).exit == 0
            stored = cli.home / ".config/a2a-cli/credentials.json"
            assert stat.S_IMODE(stored.stat().st_mode) == 0o600
            # The token has expired, and is renewed by its refresh token.
            server.expires_in_s = 3600
            assert (await line.run("send", "hi")).exit == 0
            assert (await line.run("send", "hi", "--bearer", "explicit")).exit == 0
            sent = [call.headers["authorization"] for call in scripted.find_requests("SendMessage")]
            assert sent == ["Bearer access-2", "Bearer explicit"]
            # Another agent does not get it, and no card request carries it.
            await cli.at(other.url).run("send", "hi")
            assert all("authorization" not in call.headers for call in other.calls)
            # Neither does this one, once its card has another scheme.
            scripted.card["securitySchemes"] = {"other": server.client_scheme()}
            assert (await line.run("send", "hi")).exit == 0
            last = scripted.find_requests("SendMessage")[-1]
            assert "authorization" not in last.headers
            cards = scripted.find_requests("card")
            assert cards
            assert all("authorization" not in call.headers for call in cards)
        assert server.forms[-1]["grant_type"] == "refresh_token"


async def test_a2acli_tx_004(agent: StandardCli) -> None:
    for transport, mark in (("JSONRPC", "SendStreamingMessage"), ("HTTP+JSON", "/message:stream")):
        sent = await agent.run("send", "hi", "--transport", transport, "--debug")
        assert sent.field("State") == "TASK_STATE_COMPLETED"
        assert mark in sent.err


async def test_a2acli_ver_003(cli: StandardCli) -> None:
    async with scripted_agent(streaming=False) as scripted:
        line = cli.at(scripted.url)
        scripted.on("SendMessage", result(task("COMPLETED")))
        expected = {
            ("task", "subscribe", "t-1"): "UnsupportedOperationError",
            ("task", "push-config", "list", "t-1"): "PushNotificationNotSupportedError",
            ("card", "get", "--extended"): "ExtendedAgentCardNotConfiguredError",
        }
        for words, name in expected.items():
            refused = await line.run(*words, "-o", "json")
            assert (refused.exit, refused.error["code"]) == (1, name)
        assert (await line.run("send", "hi", "--stream")).exit == 0
        assert {call.method for call in scripted.calls} == {"card", "SendMessage"}


async def test_a2acli_config_002(cli: StandardCli) -> None:
    files = {
        cli.home / ".config/a2a-cli/.env": "A2ACLI_TIMEOUT=4s\nA2ACLI_CONTEXT_ID=global\n",
        cli.home / "work/.env": "A2ACLI_TIMEOUT=3s\nA2ACLI_TASK_ID=local\n",
        cli.home / "agent.env": "A2ACLI_TIMEOUT=2s\nA2ACLI_AGENT_CARD=https://one.test\n",
    }
    for file, text in files.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    global_file, local, explicit = map(str, files)

    async def timeout(*flags: str, **variables: str) -> tuple[float, str]:
        line = replace(cli, variables=variables)
        shown = await line.run("config", "show", "-o", "json", *flags)
        (row,) = (row for row in shown.json["settings"] if row["name"] == "timeout")
        return row["value"], row["source"]

    assert await timeout("--timeout", "1s", A2ACLI_TIMEOUT="9s") == (1.0, "--timeout")
    assert await timeout("--config", explicit, A2ACLI_TIMEOUT="9s") == (9.0, "A2ACLI_TIMEOUT")
    assert await timeout("--config", explicit) == (2.0, explicit)
    assert await timeout() == (3.0, local)
    (cli.home / "work/.env").unlink()
    assert await timeout() == (4.0, global_file)
    (cli.home / ".config/a2a-cli/.env").unlink()
    assert await timeout() == (1800.0, "built-in default")
    # A file for one agent has its reference and what belongs to it.
    scoped = await cli.run("config", "show", "--config", explicit)
    assert scoped.field("agent-card") == f"https://one.test ({explicit})"
    assert (await cli.run("config", "show", "--config", "missing.env")).exit == 2


async def test_a2acli_download_001(agent: StandardCli, cli: StandardCli) -> None:
    for transport in TRANSPORTS:
        folder = cli.home / transport
        task_id = (await agent.run("send", "tck-artifact-file")).field("Task")
        flags = ("--dir", str(folder), "--transport", transport)
        for name in ("report.pdf", "report-2.pdf"):
            saved = await agent.run("task", "download", task_id, *flags)
            assert saved.exit == 0
            assert saved.field("Saved") == str(folder / name)
            assert (folder / name).read_bytes() == b"%PDF-1.4"
        assert saved.field("State") == "TASK_STATE_COMPLETED"
    for word, name, content in (
        ("tck-artifact-text", "tck-artifact-text.txt", "a text"),
        ("tck-artifact-data", "tck-artifact-data.json", '{\n  "count": 3\n}'),
    ):
        task_id = (await agent.run("send", word)).field("Task")
        await agent.run("task", "download", task_id, "--dir", str(folder))
        assert (folder / name).read_text() == content
    async with scripted_agent() as scripted:
        part = {"raw": "AAE=", "filename": "../../evil"}
        artifacts = [{"artifactId": "a", "parts": [part]}]
        scripted.on("GetTask", result(task("COMPLETED", artifacts=artifacts)["task"]))
        inside = cli.home / "inside"
        line = cli.at(scripted.url)
        assert (await line.run("task", "download", "t-1", "--dir", str(inside))).exit == 0
        # A file elsewhere that can't be fetched is named; the other files are saved.
        missing = {"url": "http://127.0.0.1:1/x.png", "filename": "x.png"}
        artifacts = [{"artifactId": "a", "parts": [missing, {"raw": "AAE=", "filename": "b"}]}]
        scripted.on("GetTask", result(task("COMPLETED", artifacts=artifacts)["task"]))
        some = await line.run("task", "download", "t-1", "--dir", str(inside), "-o", "json")
    assert (some.exit, some.error["code"]) == (3, "A2ACLI_ERR_UNREACHABLE")
    assert "http://127.0.0.1:1/x.png" in some.error["message"]
    assert f"saved {inside / 'b'}" in some.err
    assert sorted(path.name for path in inside.iterdir()) == ["b", "evil"]


async def test_a2acli_out_007(agent: StandardCli) -> None:
    for transport in TRANSPORTS:
        sent = await agent.run("send", "tck-stream-chunked", "--debug", "--transport", transport)
        assert "-->" in sent.err
        assert "tck-stream-chunked" in sent.err
        assert '"artifactUpdate"' in sent.err
        assert "debug" not in sent.out
        assert "-->" not in (await agent.run("send", "hi", "--transport", transport)).err


async def test_a2acli_conform_001(agent: StandardCli, cli: StandardCli, system: System) -> None:
    # A checkout of the TCK: its command line is the interface; the kit itself is not installed.
    tck = cli.home / "a2a-tck"
    tck.mkdir()
    script = """
import json, sys, urllib.request
url, level = sys.argv[2], sys.argv[4]
assert sys.argv[1::2] == ["--sut-host", "--level"], sys.argv
card = json.load(urllib.request.urlopen(url + "/.well-known/agent-card.json"))
print("checked", card["name"], level)
sys.exit(level == "may")
"""
    (tck / "run_tck.py").write_text(script)
    passed = await agent.run("conformance", "--tck", str(tck))
    assert passed.exit == 0, passed
    assert "checked conformance must" in passed.err
    assert passed.field("Conformance") == "passed"
    failed = await agent.run("conformance", "--level", "may", A2ACLI_TCK=str(tck))
    assert failed.exit == 1
    # The kit of A2A v0.3 has another command line.
    (tck / "run_tck.py").write_text("'--sut-url'")
    older = await agent.run("conformance", "--tck", str(tck), "-o", "json")
    assert (older.exit, older.error["code"]) == (2, "A2ACLI_ERR_USAGE")
    assert "the branch for A2A 1.0" in older.error["hint"]
    missing = await agent.run("conformance", "-o", "json")
    assert (missing.exit, missing.error["code"]) == (2, "A2ACLI_ERR_USAGE")
    assert "a2a-tck" in missing.error["hint"]


async def test_a2acli_cli_002(cli: StandardCli) -> None:
    for shell in ("bash", "zsh", "fish"):
        shown = await cli.run("completion", shell)
        assert shown.exit == 0
        # One script for all of `trunkline`: a second one would replace it in the shell.
        assert shown.out == run_in_process("completion", shell).out
    offered = {
        ("task", "push-config", "c"): ["create"],
        ("ta",): ["task"],
        ("send", "--agent"): ["--agent-card"],
        ("send", "--file", "x", "--med"): ["--media-type"],
        ("task", "get", "--hist"): ["--history"],
        ("-o", "json", "task", "push-config", "g"): ["get"],
        ("send", "-o", "j"): ["json"],
        ("-o", "j"): ["json"],
        ("task", "--agent"): ["--agent-card"],
        ("completion", "f"): ["fish"],
        ("task", "get", ""): [],
        ("dance", ""): [],
    }
    for words, expected in offered.items():
        found = run_in_process("completion", "words", "--", "a2a", *words).out.split()
        assert found == expected
    assert (await cli.run("completion", "tcsh")).exit == 2


async def test_a2acli_push_001(agent: StandardCli, system: System) -> None:
    hook = system.receiver.url
    for transport, version in itertools.product(TRANSPORTS, ("1.0", "0.3")):
        task_id = (await agent.run("send", "tck-input-required")).field("Task")
        where = ("--transport", transport, "--a2a-version", version)

        async def push(*words: str, where: Sequence[str] = where) -> Any:
            done = await agent.run("task", "push-config", *words, "-o", "json", *where)
            assert done.exit == 0, done
            return done.json

        flags = ("--id", "c-1", "--token", "notify-token", "--auth", "Bearer hook-secret")
        created = await push("create", task_id, hook, *flags)
        assert created["id"] == "c-1"
        assert created["url"] == hook
        assert (await push("get", task_id, "c-1"))["taskId"] == task_id
        assert [config["id"] for config in (await push("list", task_id))["configs"]] == ["c-1"]
        assert await push("delete", task_id, "c-1") == {}
        assert not (await push("list", task_id)).get("configs")
        gone = await agent.run("task", "push-config", "get", task_id, "c-1", "-o", "json")
        assert gone.exit == 1
    text = await agent.run("task", "push-config", "create", task_id, hook, "--debug", *flags)
    assert text.field("URL") == hook
    assert "hook-secret" not in text.err
    assert "notify-token" not in text.err


async def test_help_imports_no_code_of_servers() -> None:
    probe = """
import sys
from dataclasses import replace
from typing import Any
sys.argv = ["trunkline", "a2a", "--help"]
from trunkline.cli.app import run_command
assert run_command() == 0
servers = ("trunkline.processes", "trunkline.agents", "trunkline.mesh.server",
           "trunkline_bridge.app", "trunkline_bridge.http", "trunkline_bridge.a2a",
           "uvicorn", "langgraph", "mcp")
print([name for name in servers if name in sys.modules], file=sys.stderr)
"""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", probe), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    _, err = await process.communicate()
    assert err.decode().strip() == "[]"
