"""The commands that look at tasks, against a real mesh: filters, events, watching, traces."""

import asyncio
import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from harness.a2a.sse_client import sse, user_message
from harness.a2a.standard_cli import StandardCli
from harness.mesh.processes import MeshProcess, running_mesh
from harness.terminal import terminal
from trunkline import ClientEvent
from trunkline.cli.agent_client import AgentClient, build_message
from trunkline.cli.commands import inspect, tasks
from trunkline.cli.exits import ExitCode
from trunkline.cli.options import MeshCall
from trunkline.errors import InvalidArgumentError

pytestmark = pytest.mark.asyncio(loop_scope="module")

LIMIT_S = 60.0


AGENT = """
import asyncio
import itertools

from trunkline import agent

@agent(tags=["greet"])
async def hello(task):
    '''Greets.'''
    return "Hello!"


@agent(tags=["count"])
async def count(task):
    '''Counts until it is canceled.'''
    for number in itertools.count():
        yield f"{number} "
        await asyncio.sleep(0.01)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mesh")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(folder: Path) -> AsyncIterator[MeshProcess]:
    (folder / "greeter.py").write_text(AGENT)
    flags = ("--agent", "greeter:hello", "--agent", "greeter:count")
    with (folder / "stderr").open("wb") as stderr:
        async with running_mesh(folder, *flags, stderr=stderr) as running:
            yield running


async def ask(mesh: MeshProcess, text: str, agent: str = "echo") -> dict[str, str]:
    """Ask an agent; return the ids of its task and of the trace."""
    # Unlike `Client`, it does not read the card, which makes a trace.
    async with AgentClient(f"{mesh.http_url}/agents/{agent}") as client:
        answer = await client.send(build_message(text), _discard)
        return {"task_id": answer.task_id, "trace_id": answer.trace_id}


async def _discard(_: ClientEvent) -> None:
    """Ignore an event."""


async def list_tasks(mesh: MeshProcess, capsys: pytest.CaptureFixture[str], **query: Any) -> Any:
    call = MeshCall(mesh=mesh.mesh_address, json=True)
    await tasks.tasks(**{"limit": 20, **query}, call=call)
    return json.loads(capsys.readouterr().out)


async def show_events(
    mesh: MeshProcess,
    capsys: pytest.CaptureFixture[str],
    task_id: str,
    *,
    wire: str = "",
    json: bool = False,
) -> str:
    await tasks.events(task_id, wire=wire, call=MeshCall(mesh=mesh.mesh_address, json=json))
    return capsys.readouterr().out


async def test_a_mesh_says_what_it_has_loaded(mesh: MeshProcess, folder: Path) -> None:
    async with asyncio.timeout(LIMIT_S):
        while True:
            report = (folder / "stderr").read_text()
            if "settings" in report:
                break
            await asyncio.sleep(0.05)
    lines = dict(line.split(maxsplit=1) for line in report.splitlines())
    assert "supervisor (bundled)" in lines["agents"]
    assert "echo, math, research (installed)" in lines["agents"]
    assert "hello, count (greeter:hello, greeter:count)" in lines["agents"]
    assert lines["model"] == "rules"
    assert "--http" in lines["settings"]
    assert "TRUNKLINE_MCP_FILE" in lines["settings"]
    log = (folder / "data" / "private" / "log.jsonl").read_text()
    assert json.loads(log.splitlines()[0])["http"] == mesh.http_url


async def test_tasks_are_selected_by_state_and_time(
    mesh: MeshProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    task_id = (await ask(mesh, "hello", agent="hello"))["task_id"]
    selected = await list_tasks(mesh, capsys, state="completed", since="10m", agent="hello")
    assert [task["task_id"] for task in selected] == [task_id]
    # Tests of this module run in any order, and others have tasks that failed.
    assert await list_tasks(mesh, capsys, state="failed", agent="hello") == []
    assert await list_tasks(mesh, capsys, since="2999-01-01") == []
    with pytest.raises(InvalidArgumentError, match="no such state; there are: submitted, working"):
        await list_tasks(mesh, capsys, state="finished")


async def test_new_tasks_are_followed(
    mesh: MeshProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    async with asyncio.TaskGroup() as group:
        following = group.create_task(
            tasks.tasks(agent="echo", follow=True, call=MeshCall(mesh=mesh.mesh_address, json=True))
        )
        report = await ask(mesh, "follow me")
        seen = ""
        async with asyncio.timeout(LIMIT_S):
            while report["task_id"] not in seen:
                await asyncio.sleep(0.05)
                seen += capsys.readouterr().out
        following.cancel()
    lines = [json.loads(line) for line in seen.splitlines()]
    assert len({(line["task_id"], line["status_time"]) for line in lines}) == len(lines)


async def test_a_task_is_shown_with_its_question_end_and_trace(
    mesh: MeshProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    report = await ask(mesh, "hello there")
    await tasks.task(report["task_id"], call=MeshCall(mesh=mesh.mesh_address))
    text = capsys.readouterr().out
    assert "question  hello there\n" in text
    assert "\nended     " in text
    assert f"\ntrace     {report['trace_id']}\n" in text


async def test_the_journal_is_shown_event_by_event(
    mesh: MeshProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    task_id = (await ask(mesh, "hello"))["task_id"]
    lines = (await show_events(mesh, capsys, task_id)).splitlines()
    assert "task created    for echo by anonymous: hello" in lines[0]
    assert lines[-1].endswith("state           completed")
    assert re.match(r" +1 +\+0 ms  echo ", lines[0])
    assert all(re.match(r" *\d+ +\+[\d.]+ (µs|ms|s)  ", line) for line in lines)
    typed = [
        json.loads(line)
        for line in (await show_events(mesh, capsys, task_id, json=True)).splitlines()
    ]
    assert len(typed) == len(lines)
    assert typed[0]["created"]["agent"] == "echo"
    assert [event["sequence"] for event in typed] == sorted(event["sequence"] for event in typed)


async def test_the_wire_of_v1_is_what_a_client_gets(
    mesh: MeshProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    message = {"message": user_message("a b c")}
    url = (mesh.http_url, "/agents/echo", "SendStreamingMessage")
    async with sse(*url, message) as response:
        received = [(event.id, event.result) async for event in response.events()]
    task_id = received[0][1]["task"]["id"]
    output = await show_events(mesh, capsys, task_id, wire="v1")
    blocks = [block.splitlines() for block in output.split("\n\n") if block]
    shown = [
        (event_id.removeprefix("id: "), json.loads(data.removeprefix("data: ")))
        for event_id, data in blocks
    ]
    assert shown == received


@pytest.mark.parametrize(
    ("wire", "mark"), [("v0.3", '"kind":"status-update"'), ("original", '"final":true')]
)
async def test_other_wires_are_shown(
    mesh: MeshProcess, capsys: pytest.CaptureFixture[str], wire: str, mark: str
) -> None:
    task_id = (await ask(mesh, "hello"))["task_id"]
    assert mark in await show_events(mesh, capsys, task_id, wire=wire)


async def test_an_unknown_wire_is_reported(
    mesh: MeshProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidArgumentError, match=r"there are: v1, v0\.3, original"):
        await show_events(mesh, capsys, "t", wire="v2")


@asynccontextmanager
async def counting(mesh: MeshProcess) -> AsyncIterator[str]:
    """A task of the agent `count`, which streams until the block ends."""
    async with AgentClient(f"{mesh.http_url}/agents/count") as client:
        task = await client.start(build_message("count"))
        yield task.id
        await client.cancel_task(task.id)


async def test_top_shows_what_the_page_shows(
    mesh: MeshProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    await ask(mesh, "hello")
    # The spans of a call arrive in batches.
    async with asyncio.timeout(LIMIT_S), counting(mesh) as task_id:
        shown: dict[str, Any] = {"edges": []}
        while not any(edge["to"] == "echo" for edge in shown["edges"]):
            await tasks.top(once=True, call=MeshCall(mesh=mesh.mesh_address, json=True))
            shown = json.loads(capsys.readouterr().out)
        await tasks.top(call=MeshCall(mesh=mesh.mesh_address))
    agents = {agent.pop("agent"): agent for agent in shown["agents"]}
    assert agents["count"].pop("tokens_per_s") > 0
    (host,) = (host for host in shown["hosts"] if "count" in host["agents"])
    assert agents["count"].pop("host") == host["host"]
    assert host["open_turns"] >= 0
    assert agents["count"] == {"kind": "agent", "breaker": "closed", "working": 1, "waiting": 0}
    assert agents["supervisor"]["kind"] == "supervisor"
    assert {task["task_id"]: task["state"] for task in shown["tasks"]} == {task_id: "working"}
    assert {host["state"] for host in shown["hosts"]} == {"ready"}
    page = await read_page_mesh(mesh)
    # Of other calls, spans may have arrived or got old meanwhile.
    (edge,) = (edge for edge in shown["edges"] if (edge["from"], edge["to"]) == ("client", "echo"))
    assert (edge["kind"], edge["error_ratio"]) == ("call", 0)
    assert edge["rate_per_s"] > 0
    assert 0 < edge["p50_ms"] <= edge["p95_ms"]
    assert ("client", "echo", "call") in {
        (edge["from"], edge["to"], edge["kind"]) for edge in page["edges"]
    }
    for field in ("name", "kind"):
        names = {agent[field] for agent in page["agents"]}
        assert names == (set(agents) if field == "name" else {a["kind"] for a in agents.values()})
    assert [host["id"] for host in page["hosts"]] == [host["host"] for host in shown["hosts"]]
    # To a pipe: the same as tables.
    tables = capsys.readouterr().out
    assert "AGENT" in tables
    assert re.search(r"^client +echo +call +closed +[0-9.]+/s +0% +[0-9.]+ .?s", tables, re.M)


async def read_page_mesh(mesh: MeshProcess) -> dict[str, Any]:
    """Return the first state of the mesh with edges that the page gets."""
    path = f"{mesh.http_url}/ui/api/mesh:watch"
    async with httpx.AsyncClient(timeout=LIMIT_S) as client, client.stream("GET", path) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: ") and (state := json.loads(line[6:]))["edges"]:
                return dict(state)
    raise AssertionError("the stream has ended")


async def test_top_is_live_on_a_terminal(
    mesh: MeshProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with terminal(monkeypatch) as reader:
        async with counting(mesh) as task_id, asyncio.TaskGroup() as group:
            showing = group.create_task(tasks.top(call=MeshCall(mesh=mesh.mesh_address)))
            output = b""
            async with asyncio.timeout(LIMIT_S):
                while output.count(b"Ctrl-C leaves") < 2:
                    output += await asyncio.to_thread(os.read, reader, 10_000)
            showing.cancel()
    assert task_id.encode() in output
    # A state in its colour.
    assert b"\x1b[36mworking\x1b[0m" in output


async def test_the_events_of_all_tasks_are_shown_as_they_happen(
    mesh: MeshProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    async with asyncio.TaskGroup() as group:
        call = MeshCall(mesh=mesh.mesh_address, json=True)
        following = group.create_task(tasks.events(call=call))
        seen = ""
        async with asyncio.timeout(LIMIT_S):
            while not seen:
                # Earlier ones may have ended before the command began.
                await ask(mesh, "hello")
                seen += capsys.readouterr().out
            # The supervisor passes on the events of a child.
            reports = [await ask(mesh, "a"), await ask(mesh, "@echo b", agent="supervisor")]
            while any(f'"{report["task_id"]}"' not in ended(seen) for report in reports):
                await asyncio.sleep(0.05)
                seen += capsys.readouterr().out
        following.cancel()
    lines = [json.loads(line) for line in seen.splitlines()]
    keys = [(line["task_id"], line["sequence"]) for line in lines]
    assert len(set(keys)) == len(keys)
    for report in reports:
        own = [line for line in lines if line["task_id"] == report["task_id"]]
        assert "created" in own[0]
        assert "status" in own[-1]
    assert not any("origin" in line for line in lines)
    created = {line["created"]["agent"] for line in lines if "created" in line}
    assert {"echo", "supervisor"} <= created


def ended(output: str) -> str:
    """Return the lines of events that end a task."""
    return "\n".join(line for line in output.splitlines() if "TASK_STATE_COMPLETED" in line)


async def test_the_wire_is_that_of_one_task(mesh: MeshProcess) -> None:
    with pytest.raises(InvalidArgumentError, match="is for one task; give its id"):
        await tasks.events(wire="v1", call=MeshCall(mesh=mesh.mesh_address))


async def test_watching_ends_with_the_task(
    mesh: MeshProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    task_id = (await ask(mesh, "hello"))["task_id"]
    code = await tasks.watch(task_id, call=MeshCall(mesh=mesh.mesh_address))
    assert code is ExitCode.OK
    assert capsys.readouterr().out.endswith("state           completed\n")
    text = "echo hello, and @echo fail no"
    partial = (await ask(mesh, text, agent="supervisor"))["task_id"]
    code = await tasks.watch(partial, call=MeshCall(mesh=mesh.mesh_address))
    assert code is ExitCode.PARTIAL
    assert capsys.readouterr().out.endswith("state           completed (partial)\n")


async def test_commands_that_look_make_no_traces(
    mesh: MeshProcess, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    reports = [await ask(mesh, "first")]
    await list_tasks(mesh, capsys)
    await show_events(mesh, capsys, reports[0]["task_id"])
    await tasks.task(reports[0]["task_id"], call=MeshCall(mesh=mesh.mesh_address, json=True))
    standard = StandardCli(tmp_path).at(f"{mesh.http_url}/agents/echo")
    for words in (
        ("task", "get", reports[0]["task_id"], "--wait"),
        ("task", "list"),
        ("card", "get"),
    ):
        assert (await standard.run(*words)).exit == 0
    reports.append(await ask(mesh, "last"))
    # Spans arrive in order: once the last question's trace is there, those before it are.
    await inspect.trace(reports[1]["trace_id"], mesh.mesh_address, json=True)
    capsys.readouterr()
    await inspect.trace("", mesh.mesh_address, json=True)
    rows = json.loads(capsys.readouterr().out)
    # A request that is still open has no root yet; the look of a command ends before the question.
    roots = {row["root_name"] for row in rows if "root_name" in row}
    assert roots <= {"SendStreamingMessage", "SendMessage", "CancelTask"}
