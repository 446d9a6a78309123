"""Questions and tasks of MCP tools reach the caller of a mesh, and outlive its process."""

import asyncio
import json
import os
import pty
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from harness.mcp.bundled_servers import only_servers
from harness.mcp.scripted_servers import PLAIN, asking_over_http
from harness.mesh.command_line import COMMAND, LIMIT_S, CompletedCommand, run_command, start_command
from harness.mesh.processes import MeshProcess, running_mesh
from harness.polling import wait_for
from trunkline.cli.directory import open_directory
from trunkline.core.accounts import ANONYMOUS_ACCOUNT
from trunkline.core.json_values import read_text
from trunkline.tasks.lifecycle import TERMINAL, State
from trunkline.v1 import snapshot_pb2, task_service_pb2


@asynccontextmanager
async def bakery(folder: Path) -> AsyncIterator[dict[str, str]]:
    """Run the server over HTTP, and yield the environment of meshes that use it."""
    free = {"approval": False}
    own = {"tools": {"bake": free, "bake_to_taste": free}}
    async with asking_over_http(folder) as url:
        yield only_servers(folder, own={"bakery": {"url": url, "trunkline": own}})


def read_log(folder: Path) -> list[str]:
    file = folder / "log"
    return [line.split()[0] for line in file.read_text().splitlines()] if file.exists() else []


async def ask(mesh: MeshProcess, *words: str) -> CompletedCommand:
    return await run_command("ask", "--url", mesh.http_url, "--agent", "bakery", *words)


async def wait_for_task(
    mesh: MeshProcess, text: str, predicate: Callable[[snapshot_pb2.TaskSnapshot], bool]
) -> snapshot_pb2.TaskSnapshot:
    """Poll the task of a question until it fulfils a condition."""
    request = task_service_pb2.ListTasksRequest(account=ANONYMOUS_ACCOUNT, page_size=100)
    async with asyncio.timeout(LIMIT_S), open_directory(mesh.mesh_address) as directory:
        (host,) = [
            directory.client_at(host.address) for host in directory.hosts if host.journal_ids
        ]
        while True:
            for row in (await host.tasks.ListTasks(request)).tasks:
                task = await host.get_task(row.task_id, account=ANONYMOUS_ACCOUNT)
                if task.task.history[0].parts[0].text == text and predicate(task):
                    return task
            await asyncio.sleep(0.05)


def is_baking(task: snapshot_pb2.TaskSnapshot) -> bool:
    return any("in the oven" in part.text for part in task.task.status.message.parts)


async def call_on_terminal(text: bytes, *words: str) -> tuple[int | None, bytes]:
    """Run a command on a terminal on which a text is typed; return its exit code and stdout."""
    terminal, side = pty.openpty()
    try:
        os.write(terminal, text)
        process = await asyncio.create_subprocess_exec(
            *COMMAND, *words, stdin=side, stdout=asyncio.subprocess.PIPE, stderr=side
        )
        async with asyncio.timeout(LIMIT_S):
            out, _ = await process.communicate()
    finally:
        os.close(terminal)
        os.close(side)
    return process.returncode, out


async def test_a_question_and_a_task_outlive_a_killed_mesh(tmp_path: Path) -> None:
    async with bakery(tmp_path) as environment:
        async with running_mesh(tmp_path, servers=None, environment=environment) as mesh:
            waiting = await ask(mesh, "book a table in Rome", "--json")
            task_id = waiting.json["task_id"]
            assert waiting.exit == 3
            asked = await ask(mesh, "approve", "--task", task_id)
            assert asked.exit == 3
            assert "bakery/book_table asks: A table in Rome?" in asked.out
            assert "- seats (a whole number): How many people come." in asked.out
            assert "- view (one of garden, street)" in asked.out
            incomplete = await ask(mesh, "4 seats", "--task", task_id)
            assert incomplete.exit == 3
            command = ("ask", "--url", mesh.http_url, "--agent", "bakery", "bake tart")
            async with start_command(*command):
                await wait_for_task(
                    mesh, "bake tart", lambda task: any(c.task_handle for c in task.tool_calls)
                )
                mesh.process.kill()
                await mesh.process.wait()
        async with running_mesh(tmp_path, servers=None, environment=environment) as mesh:
            incomplete = await ask(mesh, "view: lake", "--task", task_id)
            assert incomplete.exit == 3
            assert "It has seats: 4." in incomplete.out
            booked = await ask(mesh, "view: garden", "--task", task_id)
            assert (booked.exit, booked.out) == (0, "A table in Rome for 4.\n")
            (tmp_path / "done").touch()
            baked = await wait_for_task(
                mesh, "bake tart", lambda task: task.task.status.state in TERMINAL
            )
    assert baked.task.status.state == State.TASK_STATE_COMPLETED
    assert "a plain tart" in str(baked.task.artifacts)
    assert read_log(tmp_path) == ["asked", "bake", "accept"]


async def test_a_task_of_a_tool_asks_and_is_canceled_with_the_task_of_the_mesh(
    tmp_path: Path,
) -> None:
    async with (
        bakery(tmp_path) as environment,
        running_mesh(tmp_path, servers=None, environment=environment) as mesh,
    ):
        asked = await ask(mesh, "sweeten tart", "--json")
        assert asked.exit == 3
        refused = await ask(mesh, "perhaps", "--task", asked.json["task_id"])
        assert refused.exit == 3
        (tmp_path / "done").touch()
        done = await ask(mesh, "Yes.", "--task", asked.json["task_id"])
        assert (done.exit, done.out) == (0, "a sweet tart\n")
        (tmp_path / "done").unlink()
        waiting = (await ask(mesh, "sweeten pie", "--json")).json["task_id"]
        canceled = await run_command("cancel", waiting, "--mesh", mesh.mesh_address)
        assert canceled.exit == 0
        assert read_log(tmp_path) == ["bake", "answered", "bake", "canceled"]
        command = ("ask", "--url", mesh.http_url, "--agent", "bakery", "bake pie")
        async with start_command(*command) as asking, asyncio.timeout(LIMIT_S):
            await wait_for_task(mesh, "bake pie", is_baking)
            asking.send_signal(2)
            await asking.wait()
        await wait_for(lambda: read_log(tmp_path).count("canceled") == 2)
        assert read_log(tmp_path)[4:] == ["bake", "canceled"]
        call = ("tools", "call", "bakery/book_table", "--yes", "--mesh", mesh.mesh_address)
        unanswered = await run_command(*call, "--arg", "city=Rome")
        assert unanswered.exit == 3
        assert "bakery/book_table asks: A table in Rome?" in unanswered.err
        typed = b"4 seats\n4 seats, garden\n"
        answered = await call_on_terminal(typed, *call, "--arg", "city=Oslo")
        assert answered == (0, b"A table in Oslo for 4.\n")
        sign = ("tools", "call", "bakery/sign", "--yes", "--mesh", mesh.mesh_address)
        signed = await call_on_terminal(b"what?\nyes\nno\n", *sign)
        assert signed == (0, b"{'news': True} {'terms': False}\n")


async def test_a_tool_of_an_older_server_asks_while_its_call_is_open_and_returns_resources(
    tmp_path: Path,
) -> None:
    plain = {"command": sys.executable, "args": PLAIN.args, "trunkline": {"approval": "never"}}
    environment = only_servers(tmp_path, own={"bakery": plain})
    everything = {"music": True, "name": "Ann", "seats": 3, "smoke": 0.5, "view": "garden"}
    async with running_mesh(tmp_path, servers=None, environment=environment) as mesh:
        asked = await ask(mesh, "reserve Rome", "--json")
        task_id = asked.json["task_id"]
        assert asked.exit == 3
        incomplete = await ask(mesh, "3 seats", "--task", task_id)
        assert incomplete.exit == 3
        assert "bakery/reserve asks: A table in Rome?" in incomplete.out
        done = await ask(mesh, "name: Ann", "--task", task_id)
        assert done.exit == 0
        assert json.loads(done.out) == {"action": "accept", "content": everything}

        assert (await ask(mesh, "fetch")).exit == 0
        fetched = await wait_for_task(mesh, "fetch", lambda task: bool(task.task.artifacts))
        parts = [part for artifact in fetched.task.artifacts for part in artifact.parts]
        files = [part for part in parts if part.filename]
        assert [part.WhichOneof("content") for part in files] == ["raw", "url"]
        assert [part.media_type for part in files] == ["text/csv"] * 2
        assert [read_text(part.metadata, "trunkline/uri") for part in files] == [
            "file:///t.csv"
        ] * 2

        words = (
            "tools",
            "call",
            "--mesh",
            mesh.mesh_address,
            "bakery/reserve",
            "--arg",
            "city=Oslo",
        )
        code, out = await call_on_terminal(b"Ann\n", *words)
        assert (code, json.loads(out)["content"]["name"]) == (0, "Ann")
        # Nobody can be asked, so the call ends, and the server is free for the next.
        assert (await run_command(*words)).exit == 3
        code, out = await call_on_terminal(b"decline\n", *words)
        assert (code, json.loads(out)) == (0, {"action": "decline"})
