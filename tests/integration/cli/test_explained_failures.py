"""Why a task failed, or can't be found, is said by the command that one looks with."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from harness.journal.postgres_server import new_database
from harness.mesh.command_line import CompletedCommand, run_command
from harness.mesh.processes import MeshProcess, read_line, running_mesh, running_process
from harness.polling import poll

AGENT = """
from trunkline import agent, run

@agent(name="clerk", description="Files things.")
async def clerk(task):
    if task.text == "wait":
        await task.require_input("what?")
        return
    if task.text.startswith("refuse"):
        await task.fail("the cabinet " + task.text)
        return
    raise ValueError("the cabinet " + task.text)

@agent(name="chief", description="Delegates.")
async def chief(task):
    return (await task.ask("clerk", task.text, check=True)).text

if __name__ == "__main__":
    run(clerk, chief)
"""


@dataclass(frozen=True)
class Office:
    """A mesh, and the process of its agent."""

    mesh: MeshProcess
    folder: Path
    agent_pid: int

    async def run(self, *words: str) -> CompletedCommand:
        return await run_command(*words, folder=self.folder, TRUNKLINE_MESH=self.mesh.mesh_address)

    async def ask(self, text: str, *, agent: str = "clerk") -> CompletedCommand:
        words = ("ask", text, "--agent", agent, "--url", self.mesh.http_url, "--json")
        return await self.run(*words)


@asynccontextmanager
async def office(folder: Path, **settings: str) -> AsyncIterator[Office]:
    (folder / "clerk_agent.py").write_text(AGENT)
    environment = {"TRUNKLINE_LEASE_S": "1", **settings}
    command = (sys.executable, str(folder / "clerk_agent.py"), "--data", str(folder / "clerk"))
    with (folder / "agent.log").open("wb") as log:
        async with (
            running_mesh(folder, environment=environment) as mesh,
            running_process(
                *(*command, "--mesh", mesh.mesh_address),
                cwd=folder,
                environment=environment,
                stderr=log,
            ) as agent,
        ):
            await read_line(agent, "ready ")
            yield Office(mesh, folder, agent.pid)


async def test_the_exception_of_an_agent_is_named_where_one_looks(tmp_path: Path) -> None:
    async with office(tmp_path) as place:
        failed = (await place.ask("is secret")).json
        named = "agent 'clerk' failed: ValueError (at clerk_agent:12)"
        assert failed["status_text"] == f"{named}; its host's log has the text"
        task = await place.run("task", failed["task_id"])
        assert named in " ".join(task.out.split())
        assert "host      127.0.0.1:" in task.out
        trace = await place.run("trace", failed["trace_id"])
        assert "! ValueError (at clerk_agent:12)" in trace.out
        assert "the cabinet" not in task.out + trace.out


async def test_no_span_or_log_has_the_text_of_a_failed_call_unless_content_is_captured(
    tmp_path: Path,
) -> None:
    async with office(tmp_path) as place:
        failed = (await place.ask("refuse this", agent="chief")).json
        assert "the cabinet refuse this" in failed["status_text"]
        trace = await place.run("trace", failed["trace_id"], "--json")
        assert "invoke_agent chief" in trace.out
        log = (tmp_path / "agent.log").read_text()
        assert f"task.failed task_id={failed['task_id']}" in log
        assert "the cabinet" not in trace.out + log


async def test_the_text_of_an_exception_is_content(tmp_path: Path) -> None:
    async with office(tmp_path, TRUNKLINE_CAPTURE_CONTENT="1") as place:
        failed = (await place.ask("is locked, token=abcdefgh12345678")).json
        named = "ValueError: the cabinet is locked, [redacted] (at clerk_agent:12)"
        assert failed["status_text"] == f"agent 'clerk' failed: {named}"
        trace = await place.run("trace", failed["trace_id"])
        assert f"! {named}" in trace.out


HOST = "the host of clerk, chief at 127.0.0.1:"
UNLISTED = "ago, and what it has is not listed until it is back"


async def lose_the_agent(place: Office) -> str:
    """Kill the agent's process while it has a task; return the task's id."""
    task_id: str = (await place.ask("wait")).json["task_id"]
    assert (await place.run("task", task_id)).exit == 0
    os.kill(place.agent_pid, signal.SIGKILL)
    await poll(lambda: place.run("tasks"), lambda done: UNLISTED in done.err)
    return task_id


async def test_the_tasks_of_a_host_that_died_are_listed_from_the_database(tmp_path: Path) -> None:
    async with new_database() as url, office(tmp_path, TRUNKLINE_STORE=url) as place:
        task_id: str = (await place.ask("wait")).json["task_id"]
        os.kill(place.agent_pid, signal.SIGKILL)
        await poll(lambda: place.run("agents"), lambda done: "clerk" not in done.out)
        for words in (("agents",), ("tasks",), ("top", "--once")):
            listed = await place.run(*words)
            assert (listed.exit, listed.err) == (0, ""), words
        assert (await place.run("task", task_id)).exit == 0


async def check_lost_host(place: Office, task_id: str, *form: str) -> CompletedCommand:
    """Check what each command says of the host; return the last list."""
    for words in (("agents",), ("tasks",), ("approvals",), ("top", "--once")):
        listed = await place.run(*words, *form)
        assert listed.exit == 4, words
        assert f"error: {HOST}" in listed.err
        assert UNLISTED in listed.err
    for words in (("task", task_id), ("cancel", task_id), ("watch", task_id)):
        done = await place.run(*words, *form)
        assert (done.exit, done.out) == (4, ""), words
        assert HOST in done.err
        assert "ago, and no other host has the task" in done.err
    return listed


async def check_calls_of_lost_host(place: Office, task_id: str) -> None:
    traced = await place.run("trace", task_id)
    assert f"warning: {HOST}" in traced.err
    unknown = f"zzzzzzzz-{task_id.partition('-')[2]}"
    assert (await place.run("task", unknown)).exit == 1
    asked = await place.ask("anything")
    assert asked.exit == 4
    assert "the agent's host has left the mesh" in asked.err
    assert "no agent 'nobody' is on the mesh" in (await place.ask("anything", agent="nobody")).err


async def test_a_host_that_died_is_a_reason_also_after_a_restart_of_the_mesh(
    tmp_path: Path,
) -> None:
    async with office(tmp_path) as place:
        task_id = await lose_the_agent(place)
        await check_lost_host(place, task_id)
        await check_calls_of_lost_host(place, task_id)
    async with running_mesh(tmp_path, environment={"TRUNKLINE_LEASE_S": "1"}) as mesh:
        place = Office(mesh, tmp_path, place.agent_pid)
        listed = await check_lost_host(place, task_id, "--json")
        hosts = {each["state"]: each["agents"] for each in listed.json["hosts"]}
        assert hosts["lost"] == ["clerk", "chief"]
        released = await place.run("mesh", "release", task_id.partition("-")[0])
        assert released.exit == 0
        assert (await place.run("tasks")).exit == 0
        assert (await place.run("task", task_id)).exit == 1
