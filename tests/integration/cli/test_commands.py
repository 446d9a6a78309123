"""The commands of the command line against a real mesh: output and exit codes."""

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import pytest_asyncio

from harness.mcp.bundled_servers import only_servers
from harness.mesh.command_line import (
    COMMAND,
    LIMIT_S,
    CompletedCommand,
    run_command,
    start_command,
    start_process,
)
from harness.mesh.processes import MeshProcess, free_address, running_mesh
from harness.polling import wait_for
from trunkline import Client
from trunkline.cli.directory import open_directory
from trunkline.cli.exits import ExitCode
from trunkline.v1 import snapshot_pb2, task_pb2, task_service_pb2

pytestmark = pytest.mark.asyncio(loop_scope="module")

PIPE = asyncio.subprocess.PIPE
Node: TypeAlias = dict[str, Any]
# The command waits two seconds for the task's end, and prints which of the two it saw.
CANCELED = r"cancel(?:ed|ing) task ([\w-]+)(?:; .*)?\n"
ADDRESSES = ("--http", "127.0.0.1:0", "--a2a-grpc", "127.0.0.1:0", "--mesh", "127.0.0.1:0")


@pytest.fixture(scope="module")
def mesh_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("mesh")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def mesh(mesh_folder: Path) -> AsyncIterator[MeshProcess]:
    async with running_mesh(mesh_folder, servers=("math", "currency")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def ended_task(mesh: MeshProcess) -> str:
    """The id of a task that has ended."""
    task_id: str = (await ask(mesh, "what is 1+2", "--json")).json["task_id"]
    return task_id


@pytest.fixture(scope="module")
def no_servers(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The file of MCP servers of a mesh that a command starts and that needs no tools."""
    return only_servers(tmp_path_factory.mktemp("servers"))["TRUNKLINE_MCP_FILE"]


def content_of(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def ask(mesh: MeshProcess, *words: str) -> CompletedCommand:
    return await run_command("ask", "--url", mesh.http_url, *words)


async def trace_of(mesh: MeshProcess, answer: Node, *services: str) -> list[Node]:
    """Return the spans of an answer, including late ones: MCP servers export theirs themselves."""
    nodes: list[Node] = []
    end = time.monotonic() + LIMIT_S
    while [node["depth"] for node in nodes].count(0) != 1 or not all(
        any(service in node["service"] for node in nodes) for service in services
    ):
        assert time.monotonic() < end, nodes
        nodes = (
            await run_command("trace", answer["trace_id"], "--mesh", mesh.mesh_address, "--json")
        ).json
    return nodes


async def working_task(mesh: MeshProcess, agent: str) -> snapshot_pb2.TaskSummary:
    """Return an agent's newest working task, once there is one."""
    working = task_pb2.TASK_STATE_WORKING
    request = task_service_pb2.ListTasksRequest(agent=agent, state=working, page_size=1)
    end = time.monotonic() + LIMIT_S
    async with open_directory(mesh.mesh_address) as directory:
        (host,) = [
            directory.client_at(host.address) for host in directory.hosts if host.journal_ids
        ]
        while True:
            for task in (await host.tasks.ListTasks(request)).tasks:
                return task
            assert time.monotonic() < end, f"no task of {agent} works"
            await asyncio.sleep(0.05)


async def wait_until_canceled(mesh: MeshProcess, task_id: str) -> None:
    """Wait until a task is canceled: the command that canceled it waits for two seconds at most."""
    end = time.monotonic() + LIMIT_S
    while "state     canceled" not in (
        output := (await run_command("task", task_id, "--mesh", mesh.mesh_address)).out
    ):
        assert time.monotonic() < end, output


async def test_a_question_is_answered_on_stdout_and_nothing_else_is_printed(
    mesh: MeshProcess,
) -> None:
    assert await ask(mesh, "what is 1+2") == CompletedCommand(0, "3\n", "")


async def test_an_answer_with_a_part_missing_is_printed_once_and_exits_with_5(
    mesh: MeshProcess,
) -> None:
    question = "what is 2+2, and @echo fail no, then @echo done"
    result = await ask(mesh, question)
    as_json = await ask(mesh, question, "--json")
    lines = result.out.splitlines()
    assert (lines[0], lines[-1], len(lines), result.exit) == ("4", "done", 3, 5)
    assert lines[1].startswith("Could not answer")
    assert (as_json.json["outcome"], as_json.json["agent"]) == ("partial", "math, echo")
    assert as_json.exit == 5


async def test_json_output_names_the_agent_and_the_reason(mesh: MeshProcess) -> None:
    result = await ask(mesh, "what is 1+2", "--json")
    assert result.exit == 0
    assert result.out.count("\n") == 1
    answer = result.json
    assert list(answer) == [
        "state", "outcome", "answer", "status_text", "agent", "confidence", "reasons", "task_id",
        "context_id", "trace_id",
    ]  # fmt: skip
    assert (answer["state"], answer["answer"], answer["agent"]) == ("completed", "3", "math")
    assert answer["outcome"] == "complete"
    assert 0 < answer["confidence"] <= 1
    assert answer["reasons"]
    assert re.fullmatch(r"[0-9a-f]{32}", answer["trace_id"])


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("count 3", CompletedCommand(0, "1 2 3 \n", "")),
        ("message hi there", CompletedCommand(0, "hi there\n", "")),
        ("file 1000", CompletedCommand(0, "[file 1000.bin, 1000 bytes]\n", "")),
        ("fail no luck", CompletedCommand(1, "", "failed: no luck\n")),
        ("reject not today", CompletedCommand(1, "", "rejected: not today\n")),
    ],
)
async def test_how_a_task_ends_shows_in_output_and_exit_code(
    mesh: MeshProcess, question: str, expected: CompletedCommand
) -> None:
    assert await ask(mesh, "--agent", "echo", question) == expected


async def test_a_question_of_the_task_can_be_answered(mesh: MeshProcess) -> None:
    result = await ask(mesh, "--agent", "echo", "ask your name?")
    assert (result.exit, result.out) == (3, "your name?\n")
    assert f"trunkline ask --url {mesh.http_url} --agent echo --task " in result.err
    task_id = result.err.split()[-2]
    result = await ask(mesh, "--task", task_id, "Ada")
    assert result.exit == 2
    assert "is no task of the default agent; give its own agent by --agent" in result.err
    result = await ask(mesh, "--agent", "echo", "--task", task_id, "Ada")
    assert result == CompletedCommand(0, "answer: Ada\n", "")
    result = await ask(mesh, "--agent", "echo", "--task", task_id, "again")
    assert result.exit == 1
    assert "has ended" in result.err


async def test_a_timeout_ends_the_task(mesh: MeshProcess) -> None:
    # On a busy machine the time may be over before there is a task.
    for timeout_s in ("0.3", "3", "30"):
        result = await ask(mesh, "--agent", "echo", "--timeout", timeout_s, "--json", "wait 60")
        if result.exit != ExitCode.UNREACHABLE:
            break
    assert result.exit == 1
    assert result.json["state"] == "failed"


async def test_the_error_for_an_unknown_agent_lists_the_known_ones(mesh: MeshProcess) -> None:
    result = await ask(mesh, "--agent", "nobody", "hello")
    assert result == CompletedCommand(
        1,
        "",
        "error: no agent 'nobody' is on the mesh; `trunkline agents` lists all agents\n",
    )


@pytest.mark.parametrize(
    "words",
    [
        ("--url", "http://nowhere.invalid:1"),
        ("--url", "http://127.0.0.1:1"),
        ("--url", "http://127.0.0.1:1", "--task", "t-1"),
        ("--url", "http://127.0.0.1:1", "--context", "c-1"),
    ],
)
async def test_an_unreachable_url_is_one_line(words: tuple[str, ...]) -> None:
    result = await run_command("ask", "hello", *words, NO_PROXY="*", no_proxy="*")
    assert (result.exit, result.out) == (4, "")
    assert result.err.startswith(f"error: {words[1]} can't be reached: no mesh answers there")
    assert result.err.count("\n") == 1


async def test_a_mesh_that_the_environment_names_is_not_replaced() -> None:
    url = "http://127.0.0.1:1/agents/echo"
    result = await run_command("ask", "echo hi", TRUNKLINE_URL=url)
    assert (result.exit, result.out) == (4, "")
    assert result.err.startswith(f"error: {url} can't be reached: no mesh answers there")


@pytest.mark.parametrize("lines", ["hello\n", ""])
async def test_a_chat_with_a_mesh_that_is_not_there_exits_with_4(lines: str) -> None:
    url = "http://127.0.0.1:1"
    result = await run_command("chat", "--url", url, stdin=lines)
    assert (result.exit, result.out) == (4, "")
    assert result.err.startswith(f"error: {url} can't be reached: no mesh answers there")
    assert result.err.count("\n") == 1


async def test_a_question_about_a_task_starts_no_mesh() -> None:
    result = await run_command("ask", "Ada", "--task", "t-1", TRUNKLINE_HTTP="127.0.0.1:1")
    assert (result.exit, result.out) == (4, "")
    assert result.err.startswith("error: http://127.0.0.1:1 can't be reached: no mesh answers")


async def test_text_that_stdout_cannot_encode_is_replaced(mesh: MeshProcess) -> None:
    words = ("ask", "--url", mesh.http_url, "--agent", "echo", "message né")
    assert await run_command(*words, PYTHONIOENCODING="ascii") == CompletedCommand(0, "n?\n", "")
    result = await run_command(*words, "--json", PYTHONIOENCODING="ascii")
    assert result.json["answer"] == "né"


async def test_a_line_that_is_not_utf_8_is_reported_and_the_chat_continues(
    mesh: MeshProcess,
) -> None:
    words = ("chat", "--url", mesh.http_url, "--agent", "echo")
    async with start_command(*words, stdin=PIPE) as chat, asyncio.timeout(LIMIT_S):
        out, err = await chat.communicate(b"\xff\xfe\necho still here\n")
    assert (chat.returncode, out) == (0, b"still here\n")
    assert err == b"error: the line: is not utf-8 text and was not sent; write it again\n"


@pytest.mark.parametrize(
    ("words", "says", "code"),
    [
        (("ask", " "), "QUESTION: is empty", 2),
        (("ask", "x", "--url", "nonsense"), "--url: 'nonsense' is not a URL", 2),
        (("agents", "--mesh", "nonsense"), "--mesh: 'nonsense' is not HOST:PORT", 2),
        (("agents", "--mesh", "http://a:1"), "--mesh: 'http://a:1' is not HOST:PORT", 2),
        (("agents", "--mesh", "127.0.0.1:1"), "no mesh answers there", 4),
        (("agents", "--mesh", "127.0.0.1:2"), "no mesh answers there", 4),
        (("up", "--http", "0.0.0.0:0"), "--insecure", 2),
        (("up", "--http", "127.0.0.1"), "--http: '127.0.0.1' is not HOST:PORT", 2),
        (("up", "--a2a-grpc", "0.0.0.0:0"), "--a2a-grpc: ", 2),
        (("up", "--data", "/dev/null/x"), "/dev/null/x", 1),
        (("up", "--agent", "nowhere:nothing"), "nowhere", 2),
        (("up", "--default", "nobody"), "nobody", 1),
    ],
)  # fmt: skip
async def test_an_invalid_option_is_one_line(
    tmp_path: Path, no_servers: str, words: tuple[str, ...], says: str, code: int
) -> None:
    command, *options = words
    if command == "up":
        # The last occurrence of an option counts.
        options = [*ADDRESSES, "--data", str(tmp_path), *options]
    result = await run_command(command, *options, TRUNKLINE_MCP_FILE=no_servers)
    assert result.exit == code
    assert result.err.startswith("error: ")
    assert says in result.err
    assert result.err.count("\n") == 1


async def test_a_port_in_use_is_one_line_with_advice(
    mesh: MeshProcess, tmp_path: Path, no_servers: str
) -> None:
    address = mesh.http_url.removeprefix("http://")
    for words in (
        ("--http", address),
        ("--a2a-grpc", mesh.a2a_grpc_address),
        ("--mesh", mesh.mesh_address),
    ):
        options = (*ADDRESSES, "--data", str(tmp_path), *words)
        result = await run_command("up", *options, TRUNKLINE_MCP_FILE=no_servers)
        assert result.exit == 1
        advice = r"\(port 0 picks a free one\)"
        assert re.match(rf"error: .*127\.0\.0\.1:\d+.*{advice}\n$", result.err)


async def test_agents_and_tools_are_listed(mesh: MeshProcess) -> None:
    agents = (await run_command("agents", "--mesh", mesh.mesh_address, "--json")).json
    assert {"supervisor", "echo", "math", "currency"} <= {agent["name"] for agent in agents}
    text = (await run_command("agents", TRUNKLINE_MESH=mesh.mesh_address)).out
    assert re.search(r"^echo +127\.0\.0\.1:\d+ +\S", text, re.MULTILINE)
    tools = (await run_command("tools", "--mesh", mesh.mesh_address)).out
    assert re.search(r"/calculate +ready", tools)
    assert re.search(r"/convert +ready", tools)


async def test_tasks_are_listed_and_shown(mesh: MeshProcess) -> None:
    answer = (await ask(mesh, "what is 15% of 240, and convert 36 USD to EUR", "--json")).json
    address = ("--mesh", mesh.mesh_address)
    listed = (
        await run_command("tasks", *address, "--context", answer["context_id"], "--json")
    ).json
    assert answer["task_id"] in {task["task_id"] for task in listed}
    (root,) = (
        await run_command("tasks", *address, "--agent", "supervisor", "--limit", "1", "--json")
    ).json
    assert (root["task_id"], root["state"]) == (answer["task_id"], "completed")
    text = (await run_command("task", answer["task_id"], *address)).out
    assert "state     completed" in text
    assert "agent     supervisor, turn 1" in text
    assert re.search(r"^route     math, confidence \d+%: .", text, re.MULTILINE)
    assert len(re.findall(r"^child     \S+ (math|currency) completed$", text, re.MULTILINE)) == 2
    assert "36" in text
    snapshot = (await run_command("task", answer["task_id"], *address, "--json")).json
    assert snapshot["task"]["id"] == answer["task_id"]


@pytest.mark.parametrize(
    "command",
    [
        "agents",
        "events ID --follow",
        "top --json",
        "logs --follow",
    ],
)
async def test_a_closed_pipe_is_not_an_error(
    mesh: MeshProcess, mesh_folder: Path, ended_task: str, command: str
) -> None:
    words = [ended_task if word == "ID" else word for word in command.split()]
    place = (
        ("--data", str(mesh_folder / "data"))
        if words[0] == "logs"
        else ("--mesh", mesh.mesh_address)
    )
    reading, writing = os.pipe()
    os.close(reading)
    process = await start_process(
        *(*COMMAND, *words, *place),
        stdout=writing,
        stderr=asyncio.subprocess.PIPE,
    )
    os.close(writing)
    async with asyncio.timeout(LIMIT_S):
        _, err = await process.communicate()
    assert (process.returncode, err) == (1, b"")


async def test_with_json_logs_every_line_of_stderr_is_json(tmp_path: Path) -> None:
    with (tmp_path / "stderr").open("wb") as stderr:
        async with (
            running_mesh(tmp_path, environment={"TRUNKLINE_LOG_FORMAT": "json"}, stderr=stderr),
            # It waits for a mesh to join.
            start_command(
                *("serve", "agents", "echo", "--listen", "127.0.0.1:0"),
                *("--mesh", free_address(), "--data", str(tmp_path / "alone")),
                TRUNKLINE_LOG_FORMAT="json",
            ) as waiting,
        ):
            async with asyncio.timeout(LIMIT_S):
                event = ""
                while event != "process.waiting":
                    event = json.loads(await waiting.stderr.readline())["event"]
    lines = [json.loads(line) for line in (tmp_path / "stderr").read_text().splitlines()]
    loaded = {line["kind"]: line["text"] for line in lines if line["event"] == "process.loaded"}
    assert {"agents", "model", "extras", "settings"} <= loaded.keys()
    assert "supervisor (bundled)" in loaded["agents"]


async def test_an_unknown_task_is_reported(mesh: MeshProcess) -> None:
    for command in ("task", "cancel"):
        result = await run_command(command, "no-such", "--mesh", mesh.mesh_address)
        assert result.exit == 1
        assert result.err.startswith("error: no task 'no-such' here")


async def test_a_trace_is_a_tree_without_orphans_by_its_id_and_by_its_tasks(
    mesh: MeshProcess,
) -> None:
    answer = (await ask(mesh, "what is 2*3", "--json")).json
    address = ("--mesh", mesh.mesh_address)
    nodes = await trace_of(mesh, answer, "bridge", "supervisor", "math", "mcp")
    assert {node["trace_id"] for node in nodes} == {answer["trace_id"]}
    text = (await run_command("trace", answer["task_id"], *address)).out
    assert text.startswith(f"trace {answer['trace_id']}: ")
    root = r"^ +\+0 [µm]s +[\d.]+ m?s\* bridge  SendStreamingMessage$"
    assert re.search(root, text, re.MULTILINE)
    assert "its parent is missing" not in text
    assert answer["trace_id"] in (await run_command("trace", *address)).out


async def test_a_trace_is_whole_also_when_a_tool_fails(mesh: MeshProcess) -> None:
    answer = (await ask(mesh, "calculate 9**9**9**9", "--json")).json
    nodes = await trace_of(mesh, answer, "bridge", "supervisor", "math", "mcp")
    failed = [node for node in nodes if node.get("is_error")]
    assert any("execute_tool" in node["name"] for node in failed)
    assert "9**9" not in json.dumps(nodes)


async def test_a_trace_is_whole_also_when_the_task_is_cancelled(mesh: MeshProcess) -> None:
    async with start_command("ask", "--url", mesh.http_url, "--json", "wait 600") as waiting:
        child = await working_task(mesh, "echo")
        canceling = await run_command("cancel", child.parent_task_id, "--mesh", mesh.mesh_address)
        assert canceling.exit == 0
        async with asyncio.timeout(LIMIT_S):
            out, _ = await waiting.communicate()
    answer = json.loads(out)
    assert (waiting.returncode, answer["state"]) == (130, "canceled")
    nodes = await trace_of(mesh, answer, "bridge", "supervisor", "echo")
    errors = {
        node["name"]: node.get("attributes", {}).get("error.type")
        for node in nodes
        if node.get("is_error")
    }
    assert errors["invoke_agent supervisor"] == errors["invoke_agent echo"] == "cancelled"


async def test_a_trace_says_that_a_deadline_has_passed(mesh: MeshProcess) -> None:
    result = await ask(mesh, "wait 600", "--agent", "echo", "--timeout", "5", "--json")
    assert result.json["state"] == "failed"
    nodes = await trace_of(mesh, result.json, "bridge", "echo")
    (turn,) = (node for node in nodes if node["name"] == "invoke_agent echo")
    assert turn["attributes"]["error.type"] == "timeout"


async def test_an_unknown_trace_is_reported(mesh: MeshProcess) -> None:
    result = await run_command("trace", "0" * 32, "--mesh", mesh.mesh_address)
    assert result.exit == 1
    assert result.err.startswith("error: no trace of '0000")


async def test_a_cancelled_task_ends_the_command_that_waits_for_it(mesh: MeshProcess) -> None:
    address = ("--mesh", mesh.mesh_address)
    async with start_command(
        "ask", "--url", mesh.http_url, "--agent", "echo", "wait 600"
    ) as waiting:
        task_id = (await working_task(mesh, "echo")).task_id
        listed = (await run_command("tasks", *address, "--agent", "echo", "--json")).json
        assert [task["task_id"] for task in listed if task["state"] == "working"] == [task_id]
        assert await run_command("cancel", task_id, *address) == CompletedCommand(
            0, f"{task_id} canceled\n", ""
        )
        async with asyncio.timeout(LIMIT_S):
            assert await waiting.wait() == 130
    result = await run_command("cancel", task_id, *address)
    assert result.exit == 1
    assert "has ended" in result.err or "canceled" in result.err


async def test_a_command_that_finds_no_mesh_says_that_it_takes_no_url(tmp_path: Path) -> None:
    (tmp_path / "trunkline.toml").write_text('mesh = "127.0.0.1:1"\n')
    url = "http://127.0.0.1:8000"
    lost = await run_command("tools", folder=tmp_path, TRUNKLINE_URL=url)
    assert lost.exit == 4
    assert "TRUNKLINE_URL is not for this command, TRUNKLINE_MESH is" in lost.err
    named = await run_command("tools", TRUNKLINE_URL=url, TRUNKLINE_MESH="127.0.0.1:1")
    assert "TRUNKLINE_URL" not in named.err


async def test_ctrl_c_cancels_the_task_and_reports_it(mesh: MeshProcess) -> None:
    words = ("ask", "--url", mesh.http_url, "--agent", "echo", "count 100000 20")
    async with start_command(*words) as process, asyncio.timeout(LIMIT_S):
        await process.stdout.readuntil(b"1 2 ")
        process.send_signal(signal.SIGINT)
        out, err = await process.communicate()
    assert process.returncode == 130
    # The line of the answer is complete.
    assert out.count(b"\n") == 1
    match = re.fullmatch(CANCELED, err.decode())
    assert match
    await wait_until_canceled(mesh, match[1])


async def test_ctrl_c_prints_what_is_known_as_json(mesh: MeshProcess) -> None:
    words = ("ask", "--url", mesh.http_url, "--agent", "echo", "count 100000 20", "--json")
    async with start_command(*words) as process, asyncio.timeout(LIMIT_S):
        task_id = (await working_task(mesh, "echo")).task_id
        process.send_signal(signal.SIGINT)
        out, _ = await process.communicate()
    assert process.returncode == 130
    answer = json.loads(out)
    assert answer["task_id"] == task_id
    assert (answer["state"], answer["agent"]) in (("canceled", "echo"), ("working", "echo"))
    await wait_until_canceled(mesh, task_id)


async def test_ctrl_c_ends_an_ephemeral_mesh_with_its_task(tmp_path: Path, no_servers: str) -> None:
    words = ("ask", "--agent", "echo", "count 100000 20")
    # If the command waited for the task, the limit would be exceeded.
    async with (
        start_command(
            *words,
            TMPDIR=str(tmp_path),
            TRUNKLINE_HTTP="127.0.0.1:1",
            TRUNKLINE_DRAIN_GRACE_S="3000",
            TRUNKLINE_MCP_FILE=no_servers,
        ) as process,
        asyncio.timeout(LIMIT_S),
    ):
        await process.stdout.readuntil(b"1 2 ")
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
    assert process.returncode == 130
    assert re.fullmatch(rf"no mesh at .*\n{CANCELED}", err.decode())
    assert content_of(tmp_path) == []


async def test_a_chat_keeps_its_context_and_answers_questions(mesh: MeshProcess) -> None:
    lines = "ask your name?\nAda\n\necho bye\n"
    words = ("chat", "--url", mesh.http_url, "--agent", "echo")
    result = await run_command(*words, stdin=lines)
    assert result == CompletedCommand(0, "your name?\nanswer: Ada\nbye\n", "")
    result = await run_command(*words, "--json", stdin=lines)
    turns = [json.loads(line) for line in result.out.splitlines()]
    assert [turn["state"] for turn in turns] == ["input-required", "completed", "completed"]
    assert len({turn["context_id"] for turn in turns}) == 1
    assert turns[0]["task_id"] == turns[1]["task_id"] != turns[2]["task_id"]


async def test_ctrl_c_in_a_chat_cancels_the_turn_and_the_chat_continues(mesh: MeshProcess) -> None:
    words = ("chat", "--url", mesh.http_url, "--agent", "echo")
    async with start_command(*words, stdin=PIPE) as chat, asyncio.timeout(LIMIT_S):
        chat.stdin.write(b"count 100000 20\n")
        await chat.stdout.readuntil(b"1 2 ")
        chat.send_signal(signal.SIGINT)
        chat.stdin.write(b"echo still here\n")
        chat.stdin.write_eof()
        out, err = await chat.communicate()
    assert chat.returncode == 0
    assert out.decode().endswith("\nstill here\n")
    assert re.fullmatch(CANCELED, err.decode())
    (last,) = (
        await run_command(
            "tasks", "--mesh", mesh.mesh_address, "--agent", "echo", "--limit", "2", "--json"
        )
    ).json[1:]
    assert last["state"] == "canceled"


async def test_a_chat_in_json_reports_an_interrupted_turn(mesh: MeshProcess) -> None:
    words = ("chat", "--url", mesh.http_url, "--agent", "echo", "--json")
    async with start_command(*words, stdin=PIPE) as chat, asyncio.timeout(LIMIT_S):
        chat.stdin.write(b"wait 600\n")
        task = await working_task(mesh, "echo")
        chat.send_signal(signal.SIGINT)
        chat.stdin.write(b"echo still here\n")
        chat.stdin.write_eof()
        out, _ = await chat.communicate()
    turns = [json.loads(line) for line in out.splitlines()]
    assert [turn["state"] for turn in turns] == ["canceled", "completed"]
    assert turns[0]["task_id"] == task.task_id


async def test_a_stopped_mesh_exits_with_0_and_silently(tmp_path: Path) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        async with running_mesh(tmp_path) as mesh:
            mesh.process.send_signal(number)
            async with asyncio.timeout(LIMIT_S):
                assert await mesh.process.wait() == 0


# Stops a process at the import of a module, until the test lets it continue.
HOLD = """
import os, pathlib, sys, time

class Hold:
    def find_spec(self, name, path=None, target=None):
        if name == os.environ["HOLD_AT"]:
            os.write(1, b"held\\n")
            while not pathlib.Path(os.environ["HOLD_UNTIL"]).exists():
                time.sleep(0.01)

sys.meta_path.insert(0, Hold())
"""


# Before it has read its options, before its services are loaded, and while they open.
@pytest.mark.parametrize(
    ("step", "number"),
    [
        ("trunkline.cli.app", signal.SIGTERM),
        ("trunkline.cli.app", signal.SIGINT),
        ("trunkline.processes.all_in_one", signal.SIGTERM),
        ("trunkline.observe.traces.processors", signal.SIGINT),
    ],
)
async def test_a_mesh_that_is_stopped_while_it_starts_exits_with_0_and_silently(
    tmp_path: Path, no_servers: str, step: str, number: signal.Signals
) -> None:
    (tmp_path / "sitecustomize.py").write_text(HOLD)
    gate = tmp_path / "go"
    words = ("up", *ADDRESSES, "--data", str(tmp_path / "data"))
    async with (
        start_command(
            *words,
            PYTHONPATH=str(tmp_path),
            HOLD_AT=step,
            HOLD_UNTIL=str(gate),
            TRUNKLINE_MCP_FILE=no_servers,
        ) as stopped,
        asyncio.timeout(LIMIT_S),
    ):
        assert await stopped.stdout.readline() == b"held\n"
        stopped.send_signal(number)
        gate.touch()
        out, err = await stopped.communicate()
    assert (stopped.returncode, out, err) == (0, b"", b"")


async def test_a_second_signal_ends_the_mesh_at_once(tmp_path: Path) -> None:
    variables = {"TRUNKLINE_DRAIN_GRACE_S": "3000", "TRUNKLINE_CANCEL_GRACE_S": "3000"}
    async with (
        running_mesh(tmp_path, environment=variables) as mesh,
        Client(mesh.http_url, agent="echo") as client,
    ):
        await anext(client.stream("count 100000 20"))

        def signal_again() -> bool:
            # Signals that come before the first is handled count as one.
            if mesh.process.returncode is None:
                mesh.process.send_signal(signal.SIGTERM)
            return mesh.process.returncode is not None

        await wait_for(signal_again)
        assert mesh.process.returncode == 1


async def test_an_attached_mesh_ends_with_its_parent_process(
    tmp_path: Path, no_servers: str
) -> None:
    words = ("up", *ADDRESSES, "--data", str(tmp_path), "--attached")
    async with (
        start_command(*words, stdin=PIPE, TRUNKLINE_MCP_FILE=no_servers) as process,
        asyncio.timeout(LIMIT_S),
    ):
        assert (await process.stdout.readline()).startswith(b"ready ")
        process.stdin.close()
        assert await process.wait() == 0
        _, err = await process.communicate()
    assert err == b""


async def test_a_mesh_that_stops_does_not_wait_for_loading_modules(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(HOLD)
    words = ("up", *ADDRESSES, "--data", str(tmp_path / "data"), "--attached")
    async with (
        start_command(
            *words,
            stdin=PIPE,
            PYTHONPATH=str(tmp_path),
            HOLD_AT="trunkline.agents.reasoning.graph",
            HOLD_UNTIL=str(tmp_path / "never"),
            TRUNKLINE_PREWARM="true",
        ) as process,
        asyncio.timeout(LIMIT_S),
    ):
        answer = sorted([await process.stdout.readline() for _ in range(2)])
        assert answer[0] == b"held\n"
        assert answer[1].startswith(b"ready ")
        process.stdin.close()
        out, err = await process.communicate()
    assert (process.returncode, out, err) == (0, b"", b"")


async def test_without_a_mesh_an_ephemeral_one_answers_and_exits(tmp_path: Path) -> None:
    result = await run_command(
        "ask", "what is 1+2", TRUNKLINE_HTTP="127.0.0.1:1", TMPDIR=str(tmp_path)
    )
    assert (result.exit, result.out) == (0, "3\n"), result.err
    [line] = result.err.splitlines()
    assert line.startswith("no mesh at http://127.0.0.1:1: starting an ephemeral one")
    assert content_of(tmp_path) == []


async def test_the_demo_shows_answers_and_a_whole_trace() -> None:
    result = await run_command("demo")
    assert result.exit == 0
    assert "> what is 1+2\n3\n" in result.out
    assert "x = 2 or x = 3" in result.out
    assert re.search(r"^trace [0-9a-f]{32}: \d+ spans, \d+ services", result.out, re.MULTILINE)
    assert result.err == ""
