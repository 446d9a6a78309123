"""Tier 1 of A2A's command-line standard: card, send, task get, task cancel, identifiers, polling.

Each test is named after the requirement that it covers.
"""

import json
import signal
import time
from pathlib import Path

import pytest

from harness.a2a.standard_cli import StandardCli
from harness.conformance.registry import System
from harness.mesh.command_line import start_command
from harness.remote.scripted_agent import (
    Answer,
    chunk,
    http,
    message,
    result,
    scripted_agent,
    status,
    stream,
    task,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")

TRANSPORTS = ("JSONRPC", "HTTP+JSON", "GRPC")


async def test_a2acli_card_get_001(agent: StandardCli, cli: StandardCli, system: System) -> None:
    url = f"{system.mesh.bridged.url}/.well-known/agent-card.json"
    file = cli.home / "card.json"
    file.write_text(json.dumps(await system.card()))
    host = system.mesh.bridged.url.removeprefix("http://")
    for reference in (host, system.mesh.bridged.url, url, str(file), file.as_uri()):
        shown = await cli.run("card", "get", "-a", reference)
        assert shown.exit == 0
        assert shown.field("Name") == "conformance"
        assert shown.field("Streaming") == "yes"
        assert shown.field("Selected").startswith("JSONRPC 1.0")
        document = await cli.run("card", "get", "-a", reference, "-o", "json")
        assert document.json["supportedInterfaces"] == (await system.card())["supportedInterfaces"]
    sent = await cli.run("send", "hi", "-a", str(file), A2ACLI_API_KEY="key-of-ann")
    assert sent.field("State") == "TASK_STATE_COMPLETED"


async def test_a_card_is_cached_as_its_server_allows(cli: StandardCli) -> None:
    async with scripted_agent(streaming=False) as scripted:

        def card(cache_control: str) -> Answer:
            more = f'etag: "e-1"\r\ncache-control: {cache_control}\r\n'
            body = json.dumps(scripted.card)
            return http("200 OK", body, kind="application/json", more=more)

        scripted.on("GetTask", result(task("COMPLETED")["task"]))
        line = cli.at(scripted.url)

        async def card_requests(*words: str) -> list[str]:
            scripted.calls.clear()
            assert (await line.run(*words)).exit == 0
            calls = scripted.find_requests("card")
            return [call.headers.get("if-none-match", "") for call in calls]

        get = ("task", "get", "t-1")
        scripted.on("card", card("max-age=60"), http("304 Not Modified"))
        # A card that was read without verifying its server is not for other commands.
        assert await card_requests(*get, "--insecure") == [""]
        scripted.on("card", card("max-age=60"), http("304 Not Modified"))
        assert await card_requests(*get) == [""]
        assert await card_requests(*get) == []
        # `card get` asks whether it has changed.
        assert '"e-1"' in await card_requests("card", "get")
        scripted.on("card", card("no-cache"), http("304 Not Modified"))
        assert '"e-1"' in await card_requests("card", "get")
        assert await card_requests(*get) == ['"e-1"']
        scripted.on("card", card("no-store"))
        assert await card_requests(*get) == ['"e-1"']
        assert await card_requests(*get) == [""]


async def test_a2acli_send_001(agent: StandardCli) -> None:
    for transport in TRANSPORTS:
        sent = await agent.run("send", "hello", "--transport", transport, "-o", "json")
        assert sent.exit == 0
        started = sent.json["task"]
        assert started["status"]["state"] == "TASK_STATE_COMPLETED"
        assert started["id"]
        assert started["contextId"]


async def test_a2acli_send_002(
    agent: StandardCli, plain_agent: StandardCli, system: System, plain_system: System
) -> None:
    for line, where in ((agent, system), (plain_agent, plain_system)):
        for flag in ("--async", "--return-immediately", "--no-wait"):
            started = (await line.run("send", "tck-long-running", flag, "-o", "json")).json["task"]
            assert started["status"]["state"] in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
            where.agent.release(started["id"])
        waited = await line.run("send", "tck-stream-basic", "-o", "json")
        assert waited.json["task"]["status"]["state"] == "TASK_STATE_COMPLETED"
        assert waited.json["task"]["artifacts"][0]["parts"] == [{"text": "a text"}]


async def test_a2acli_send_003(agent: StandardCli, plain_agent: StandardCli) -> None:
    for transport in TRANSPORTS:
        flags = ("--stream", "-o", "json", "--transport", transport)
        events = (await agent.run("send", "tck-stream-chunked", *flags)).lines
        assert "task" in events[0]
        assert sum("artifactUpdate" in event for event in events) == 3
        assert events[-1]["statusUpdate"]["status"]["state"] == "TASK_STATE_COMPLETED"
        reply = await agent.run("send", "tck-message-response", *flags)
        assert reply.exit == 0
        assert [list(line) for line in reply.lines] == [["message"]]
    fallback = await plain_agent.run("send", "hi", "--stream", "-o", "json")
    assert fallback.exit == 0
    assert [line["task"]["status"]["state"] for line in fallback.lines] == ["TASK_STATE_COMPLETED"]
    text = await plain_agent.run("send", "tck-message-response", "--stream")
    assert "Text:\na direct reply\n\n" in text.out


async def test_a2acli_send_004(agent: StandardCli) -> None:
    text = await agent.run("send", "tck-artifact-text")
    assert "Text:\na text\n\n" in text.out
    data = await agent.run("send", "tck-artifact-data")
    assert 'Data:\n{\n  "count": 3\n}\n\n' in data.out
    file = await agent.run("send", "tck-artifact-file")
    assert file.field("File") == "report.pdf (application/pdf, 8 bytes)"
    url = await agent.run("send", "tck-artifact-file-url")
    assert url.field("File") == "report.pdf (application/pdf, at https://example.com/report.pdf)"
    async with scripted_agent() as scripted:
        artifact = {"artifactId": "a", "parts": [{"hologram": "x"}]}
        unknown = task("COMPLETED", artifacts=[artifact])["task"]
        scripted.on("GetTask", result(unknown))
        shown = await agent.at(scripted.url).run("task", "get", "t-1")
    assert "hologram" in shown.out


async def test_a2acli_send_005(cli: StandardCli, tmp_path: Path) -> None:
    report = tmp_path / "report.csv"
    report.write_text("a,b\n")
    async with scripted_agent(streaming=False) as scripted:
        scripted.on("SendMessage", result(task("COMPLETED")))
        line = cli.at(scripted.url)
        flags = ("--file", str(report), "--media-type", "text/plain", "--text", "hi")
        assert (await line.run("send", *flags, "--media-type", "text/markdown")).exit == 0
        assert (await line.run("send", "--file", str(report))).exit == 0
        explicit, inferred = (
            call.params["message"]["parts"] for call in scripted.find_requests("SendMessage")
        )
        misplaced = await line.run(
            "send", "--media-type", "text/plain", "--text", "x", "-o", "json"
        )
    assert [part["mediaType"] for part in explicit] == ["text/plain", "text/markdown"]
    assert inferred[0]["mediaType"] == "text/csv"
    assert misplaced.exit == 2
    assert misplaced.error["code"] == "A2ACLI_ERR_USAGE"


async def test_a2acli_send_006(cli: StandardCli, tmp_path: Path) -> None:
    (tmp_path / "one.json").write_text('{"n": 1}')
    (tmp_path / "blob").write_bytes(b"\x00\x01")
    async with scripted_agent(streaming=False) as scripted:
        scripted.on("SendMessage", result(task("COMPLETED")))
        sent = await cli.at(scripted.url).run(
            *("send", "--text", "first", "--data", str(tmp_path / "one.json"), "--data", "-"),
            *("--file", str(tmp_path / "blob"), "--text", "last", "--file", "https://x.test/a.png"),
            stdin='["from", "stdin"]',
        )
        (call,) = scripted.find_requests("SendMessage")
    assert sent.exit == 0
    parts = call.params["message"]["parts"]
    assert [part.get("text") for part in parts] == ["first", None, None, None, "last", None]
    assert [part["data"] for part in parts if "data" in part] == [{"n": 1}, ["from", "stdin"]]
    assert parts[3]["raw"] == "AAE="
    assert parts[5]["url"] == "https://x.test/a.png"


async def test_a2acli_task_get_001(agent: StandardCli) -> None:
    task_id = (await agent.run("send", "tck-artifact-text")).field("Task")
    for transport in TRANSPORTS:
        shown = await agent.run("task", "get", task_id, "--transport", transport)
        assert shown.field("Task") == task_id
        assert shown.field("State") == "TASK_STATE_COMPLETED"
        assert "Text:\na text\n\n" in shown.out
        assert not shown.fields("History")
        flags = ("--history", "5", "--transport", transport)
        assert (await agent.run("task", "get", task_id, *flags)).fields("History") == ["ROLE_USER"]
        none = await agent.run("task", "get", task_id, "--history", "0", "-o", "json")
        assert "history" not in none.json
        assert none.json["artifacts"]


async def test_a2acli_task_cancel_001(agent: StandardCli) -> None:
    task_id = (await agent.run("send", "tck-cancel", "--async")).field("Task")
    for _ in range(2):
        canceled = await agent.run("task", "cancel", task_id)
        assert canceled.exit == 0
        assert canceled.field("State") == "TASK_STATE_CANCELED"
    ended = (await agent.run("send", "hi")).field("Task")
    refused = await agent.run("task", "cancel", ended, "-o", "json")
    assert refused.exit == 1
    assert refused.error["code"] == "TaskNotCancelableError"


async def test_a2acli_interact_001(agent: StandardCli) -> None:
    first = await agent.run("send", "hi")
    context = first.field("Context")
    second = await agent.run("send", "hi", "--context-id", context)
    assert second.field("Context") == context
    assert second.field("Task") != first.field("Task")


async def test_a2acli_interact_002(agent: StandardCli) -> None:
    for with_context in (False, True):
        paused = await agent.run("send", "tck-input-required")
        task_id, context = paused.field("Task"), paused.field("Context")
        more = ("--context-id", context) if with_context else ()
        answered = await agent.run("send", "done", "--task-id", task_id, *more)
        assert answered.field("Task") == task_id
        assert answered.field("State") == "TASK_STATE_COMPLETED"
    before = (await agent.run("task", "list", "-o", "json")).json["totalSize"]
    rejected = (
        ("--task-id", "no-such-task"),
        ("--task-id", task_id),
        ("--task-id", task_id, "--context-id", "another-context"),
    )
    for flags in rejected:
        for delivery in ((), ("--stream",)):
            refused = await agent.run("send", "again", *flags, *delivery, "-o", "json")
            assert refused.exit == 1
            assert not refused.error["code"].startswith("A2ACLI_ERR_")
            assert "--debug" in refused.error["hint"]
    assert (await agent.run("task", "list", "-o", "json")).json["totalSize"] == before


async def test_a2acli_interact_003(cli: StandardCli) -> None:
    async with scripted_agent(streaming=False) as scripted:
        scripted.on("SendMessage", result(message("hello")))
        shown = await cli.at(scripted.url).run("send", "hi")
        (call,) = scripted.find_requests("SendMessage")
    assert call.params["message"]["messageId"]
    assert "taskId" not in call.params["message"]
    assert "contextId" not in call.params["message"]
    assert not shown.fields("Task")
    assert "chat session" not in shown.out


async def test_a2acli_interact_004(agent: StandardCli, system: System) -> None:
    done = await agent.run("send", "hi")
    assert done.field("Continue").endswith(f'--context-id {done.field("Context")} "<message>"')
    for word, state in (("input", "INPUT_REQUIRED"), ("auth", "AUTH_REQUIRED")):
        for more in ((), ("--stream",)):
            paused = await agent.run("send", f"tck-{word}-required", *more)
            assert paused.field("State") == f"TASK_STATE_{state}"
            assert paused.field("Context")
            command = f"trunkline a2a send --agent-card {system.mesh.bridged.url} --task-id"
            assert paused.field("Resume") == f'{command} {paused.field("Task")} "<reply>"'
            assert paused.exit == 0


async def test_a2acli_interact_005(agent: StandardCli) -> None:
    first = await agent.run("send", "tck-input-required")
    second = await agent.run("send", "hi")
    assert second.field("Context") != first.field("Context")
    assert second.field("Task") != first.field("Task")
    # Cards may be cached, but nothing of a task.
    stored = [path.read_text() for path in agent.home.rglob("*") if path.is_file()]
    ids = [sent.field(name) for sent in (first, second) for name in ("Task", "Context")]
    assert not any(task_id in text for task_id in ids for text in stored)
    assert (await agent.run("send", "hi", "--continue")).exit == 2


async def test_a2acli_task_poll_001(agent: StandardCli, cli: StandardCli, system: System) -> None:
    task_id = (await agent.run("send", "tck-long-running", "--async")).field("Task")
    once = await agent.run("task", "get", task_id)
    assert once.field("State") in ("TASK_STATE_SUBMITTED", "TASK_STATE_WORKING")
    system.agent.release(task_id)
    async with scripted_agent(streaming=False) as scripted:
        line = cli.at(scripted.url, "--poll-interval", "10ms")
        for flag, end in (("--wait", "COMPLETED"), ("--watch", "INPUT_REQUIRED")):
            scripted.calls.clear()
            states = ("SUBMITTED", "WORKING", end)
            scripted.on("GetTask", *(result(task(state)["task"]) for state in states))
            waited = await line.run("task", "get", "t-1", flag)
            assert waited.field("State") == f"TASK_STATE_{end}"
            assert len(scripted.find_requests("GetTask")) == len(states)


async def test_a2acli_task_poll_002(cli: StandardCli) -> None:
    async with scripted_agent(streaming=False) as scripted:
        scripted.on("GetTask", result(task("WORKING")["task"]))
        line = cli.at(scripted.url)
        flags = ("--wait", "--poll-interval", "100ms", "--timeout", "650ms", "-o", "json")
        begin = time.monotonic()
        expired = await line.run("task", "get", "t-1", *flags)
        elapsed_s = time.monotonic() - begin
        polls = len(scripted.find_requests("GetTask"))
        assert expired.exit == 5
        assert expired.error["code"] == "A2ACLI_ERR_TIMEOUT"
        assert "task get" in expired.error["hint"]
        assert elapsed_s >= 0.65
        # After 0, 100, 250 and 475 ms: a busy machine polls less often, and never more.
        assert 1 <= polls <= 4
        scripted.on("SendMessage", result(task("WORKING")))
        command = ("a2a", "send", "hi", "-a", scripted.url)
        async with start_command(*command, folder=cli.home, HOME=str(cli.home)) as process:
            announced = (await process.stderr.readline()).decode()
            assert "t-1" in announced
            process.send_signal(signal.SIGINT)
            assert await process.wait() == 130


async def test_a2acli_task_poll_003(agent: StandardCli, cli: StandardCli) -> None:
    for word in ("input", "auth"):
        started = await agent.run("send", f"tck-{word}-required", "--async")
        shown = await agent.run("task", "get", started.field("Task"), "--wait")
        assert shown.field("State") == f"TASK_STATE_{word.upper()}_REQUIRED"
    async with scripted_agent(streaming=False) as scripted:
        states = ("UNSPECIFIED", "UNSPECIFIED", "COMPLETED")
        scripted.on("GetTask", *(result(task(state)["task"]) for state in states))
        line = cli.at(scripted.url)
        waited = await line.run("task", "get", "t-1", "--wait", "--poll-interval", "10ms")
        assert waited.field("State") == "TASK_STATE_COMPLETED"
        assert len(scripted.find_requests("GetTask")) == 3
        scripted.on("GetTask", result(task("UNSPECIFIED")["task"]))
        once = await line.run("task", "get", "t-1", "-o", "json")
        assert once.json["status"]["state"] == "TASK_STATE_UNSPECIFIED"
        flags = ("--wait", "--poll-interval", "10ms", "--timeout", "50ms")
        assert (await line.run("task", "get", "t-1", *flags)).exit == 5


async def test_a2acli_task_poll_004(cli: StandardCli) -> None:
    async with scripted_agent() as scripted:
        cut = stream(task("WORKING"), chunk("half"), cut=True)
        scripted.on("SendStreamingMessage", cut)
        # Without SubscribeToTask, which is an unknown method.
        states = ("WORKING", "COMPLETED", "COMPLETED")
        scripted.on("GetTask", *(result(task(state)["task"]) for state in states))
        line = cli.at(scripted.url, "--poll-interval", "10ms")
        waited = await line.run("send", "hi")
        assert waited.exit == 0
        assert waited.field("State") == "TASK_STATE_COMPLETED"
        assert "stream broke" in waited.err
        scripted.on("SendStreamingMessage", cut)
        scripted.on("GetTask", result(task("INPUT_REQUIRED")["task"]))
        streamed = await line.run("send", "hi", "--stream", "-o", "json")
        # A stream that ends with an error is replaced, too: the task tells what became of it.
        failure = {"jsonrpc": "2.0", "id": 1, "error": {"code": -32603, "message": "it broke"}}
        failing = stream(task("WORKING"), f"data: {json.dumps(failure)}")
        scripted.on("SendStreamingMessage", failing)
        scripted.on("GetTask", result(task("FAILED")["task"]))
        failed = await line.run("send", "hi")
    assert failed.exit == 0
    assert failed.field("State") == "TASK_STATE_FAILED"
    assert "it broke" in failed.err
    assert streamed.lines[-1]["task"]["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    assert status("WORKING") not in streamed.lines
