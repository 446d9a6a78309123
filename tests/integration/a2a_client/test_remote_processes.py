"""Remote agents on meshes of processes: joined, killed, and unreachable at the start."""

import asyncio
import os
import signal
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import httpx2

from harness.agents.inline_agents import status_texts, texts
from harness.mesh.command_line import COMMAND
from harness.mesh.processes import free_address, read_line, running_mesh, running_process
from harness.mesh.small_mesh import PATIENCE_S, open_small_mesh
from harness.polling import poll
from harness.remote.scripted_agent import (
    artifact,
    chunk,
    result,
    scripted_agent,
    status,
    stream,
    task,
)
from trunkline.tasks.lifecycle import TERMINAL, State

STREAM = "SendStreamingMessage"


def joined(folder: Path, *words: str) -> AbstractAsyncContextManager[asyncio.subprocess.Process]:
    """Run `trunkline join`."""
    command = (*COMMAND, "join", *words, "--data", str(folder))
    environment = {"TRUNKLINE_LEASE_S": "1", "FAR_TOKEN": "let me in"}
    return running_process(*command, cwd=folder, environment=environment)


async def test_a_task_continues_with_its_remote_task_after_its_host_was_killed(
    tmp_path: Path,
) -> None:
    async with (
        asyncio.timeout(PATIENCE_S),
        scripted_agent() as agent,
        open_small_mesh(tmp_path) as mesh,
    ):
        agent.on(STREAM, stream(task(), chunk("one "), then=asyncio.Event()))
        known = task(artifacts=[artifact("one two ")])
        agent.on("SubscribeToTask", stream(known, chunk("three", append=True), status("COMPLETED")))
        whole = task("COMPLETED", artifacts=[artifact("one two three")])
        agent.on("GetTask", result(whole["task"]))
        words = (agent.url, "--name", "far", "--mesh", mesh.registry_address)
        async with joined(tmp_path, *words, "--token-env", "FAR_TOKEN") as process:
            ready = await read_line(process, "ready ")
            assert ready["agent"] == "far"
            await mesh.directory.wait_until(
                lambda known: "far" in known.list_agents(), timeout_s=PATIENCE_S
            )
            task_id = await mesh.begin("hello", agent="far")
            await mesh.until(task_id, lambda found: texts(found) == ["one "])
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        async with joined(tmp_path, *words, "--token-env", "FAR_TOKEN") as process:
            await read_line(process, "ready ")
            await mesh.directory.wait_until(
                lambda known: known.knows_task_host(task_id), timeout_s=PATIENCE_S
            )
            ended = await mesh.until(task_id, lambda found: found.task.status.state in TERMINAL)
        assert ended.task.status.state == State.TASK_STATE_COMPLETED, status_texts(ended)
        assert texts(ended) == ["one two three"]
        # It received one message, and credentials with each request.
        assert len(agent.find_requests(STREAM)) == 1
        assert {call.headers["authorization"] for call in agent.calls} == {"Bearer let me in"}


async def test_a_remote_agent_unreachable_at_the_start_joins_later(tmp_path: Path) -> None:
    address = free_address()
    (tmp_path / "trunkline.toml").write_text(f'[remote.far]\nurl = "http://{address}"\n')
    async with (
        asyncio.timeout(PATIENCE_S),
        running_mesh(tmp_path, stderr=None) as mesh,
        httpx2.AsyncClient(trust_env=False, timeout=PATIENCE_S) as client,
    ):
        url = f"{mesh.http_url}/agents/far"
        assert (await client.get(f"{url}/.well-known/agent-card.json")).status_code == 404
        async with scripted_agent(port=int(address.rpartition(":")[2])) as agent:
            agent.on(STREAM, stream(task(), chunk("one"), status("COMPLETED")))
            card_url = f"{url}/.well-known/agent-card.json"
            found = await poll(
                partial(client.get, card_url), lambda found: found.status_code != 404
            )
            card = found.json()
            assert (card["name"], card["description"]) == ("far", "Answers by a script.")
            message = {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": "hi"}]}
            body = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage"}
            answer = await client.post(
                url,
                json={**body, "params": {"message": message}},
                headers={"traceparent": f"00-{'ab' * 16}-{'cd' * 8}-01"},
            )
            remote_task = answer.json()["result"]["task"]
            assert remote_task["artifacts"][0]["parts"] == [{"text": "one"}]
            # The trace continues there.
            assert agent.find_requests(STREAM)[0].headers["traceparent"].split("-")[1] == "ab" * 16


async def test_join_waits_for_an_agent_that_is_unreachable_and_says_why(tmp_path: Path) -> None:
    address = free_address()
    words = (f"http://{address}", "--data", str(tmp_path))
    command = (*COMMAND, "join", *words)
    async with asyncio.timeout(PATIENCE_S), open_small_mesh(tmp_path) as mesh:
        join = (*command, "--mesh", mesh.registry_address)
        async with running_process(*join, cwd=tmp_path, stderr=asyncio.subprocess.PIPE) as process:
            assert process.stderr is not None
            line = (await process.stderr.readline()).decode()
            assert line.startswith("waiting: ")
            assert "nothing answers at its address" in line
            async with scripted_agent(port=int(address.rpartition(":")[2])):
                assert (await read_line(process, "ready "))["agent"] == "scripted"


async def test_a_failed_join_is_one_line(tmp_path: Path) -> None:
    async with scripted_agent() as agent:
        agent.card["supportedInterfaces"][0]["url"] = "http://elsewhere.example/"
        command = (*COMMAND, "join", agent.url)
        pipe = asyncio.subprocess.PIPE
        async with running_process(*command, cwd=tmp_path, stderr=pipe) as process:
            _, errors = await process.communicate()
    assert process.returncode != 0
    (line,) = errors.decode().splitlines()
    assert "its card leads to elsewhere.example" in line
