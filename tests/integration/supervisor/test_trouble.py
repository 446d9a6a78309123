"""A supervisor with failures below it: cancels, deadlines, cuts, deaths; and its spans."""

import asyncio
import os
import signal
import sys
from pathlib import Path

from harness.agents.inline_agents import status_texts, texts
from harness.mesh.processes import read_line, running_process
from harness.mesh.small_mesh import PATIENCE_S, SmallMesh
from trunkline.agents import FunctionAgent, agent
from trunkline.tasks.context import TaskContext
from trunkline.v1 import message_service_pb2, registry_service_pb2, snapshot_pb2, task_pb2
from trunkline_agents.echo.agent import echo

State = task_pb2.TaskState


class Stuck:
    """Agents that wait forever, and the ends of their turns."""

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.stopped: list[str] = []

    def agent(self, name: str) -> FunctionAgent:
        @agent(name=name, description="Waits for ever.", tags=[name])
        async def stuck(task: TaskContext) -> None:
            await task.artifact("so far").append(f"{name} began")
            self.began.set()
            try:
                await asyncio.Event().wait()
            finally:
                self.stopped.append(name)

        return stuck


def is_over(snapshot: snapshot_pb2.TaskSnapshot) -> bool:
    return snapshot.task.status.state in (
        State.TASK_STATE_COMPLETED,
        State.TASK_STATE_FAILED,
        State.TASK_STATE_CANCELED,
    )


async def test_a_cancel_stops_every_running_child(mesh: SmallMesh) -> None:
    stuck = Stuck()
    await mesh.join(stuck.agent("tar"), stuck.agent("mud"))
    await mesh.supervise()
    task_id = await mesh.begin("into the tar, and into the mud")
    await mesh.until(task_id, lambda now: len(now.artifacts) == 2)

    client = mesh.client("supervisor")
    ended = await client.cancel_task(task_id, account="")

    assert ended.task.status.state == State.TASK_STATE_CANCELED
    assert sorted(stuck.stopped) == ["mud", "tar"]
    assert {child.finished.state for child in ended.children} == {State.TASK_STATE_CANCELED}
    for child in ended.children:
        child_task = await mesh.get_task(child.started.task_id)
        assert child_task.task.status.state == State.TASK_STATE_CANCELED
    assert sorted(texts(ended)) == ["mud began", "tar began"]


async def test_a_cancel_while_a_question_waits_cancels_the_child_too(mesh: SmallMesh) -> None:
    await mesh.join(echo)
    await mesh.supervise()
    waiting = await mesh.ask("@echo ask Which colour?")

    await mesh.client("supervisor").cancel_task(waiting.task.id, account="")

    child = await mesh.get_task(waiting.children[0].started.task_id)
    assert child.task.status.state == State.TASK_STATE_CANCELED


async def test_a_child_canceled_by_another_caller_is_a_failed_step(mesh: SmallMesh) -> None:
    stuck = Stuck()
    await mesh.join(echo, stuck.agent("tar"))
    await mesh.supervise()
    task_id = await mesh.begin("echo well, and into the tar")
    running = await mesh.until(task_id, lambda now: "tar began" in texts(now))
    child = next(c.started.task_id for c in running.children if c.started.agent == "tar")

    await mesh.client("tar").cancel_task(child, account="", reason="enough")
    ended = await mesh.until(task_id, is_over)

    assert ended.task.status.state == State.TASK_STATE_COMPLETED
    assert texts(ended)[-1] == 'well\nCould not answer "into the tar": enough (agent tar).'


KILLED = """
import asyncio
from trunkline import agent, run

@agent(name="victim", description="Begins and hangs.", tags=["victim"])
async def victim(task):
    await task.artifact("part").append("so far")
    await asyncio.Event().wait()

if __name__ == "__main__":
    run(victim)
"""


async def test_a_killed_process_fails_its_step_and_its_text_remains(
    mesh: SmallMesh, tmp_path: Path
) -> None:
    await mesh.join(echo)
    await mesh.supervise()
    (tmp_path / "victim.py").write_text(KILLED, encoding="utf-8")
    command = (sys.executable, "victim.py", "--mesh", mesh.registry_address, "--data", "victim")
    async with running_process(*command, cwd=tmp_path) as process:
        await read_line(process, "ready ")
        await mesh.directory.wait_until(
            lambda known: "victim" in known.list_agents(), timeout_s=PATIENCE_S
        )
        task_id = await mesh.begin("echo well, and go to the victim")
        await mesh.until(task_id, lambda now: "so far" in texts(now))

        os.kill(process.pid, signal.SIGKILL)
        ended = await mesh.until(task_id, is_over)

    assert ended.task.status.state == State.TASK_STATE_COMPLETED
    assert "so far" in texts(ended)
    assert texts(ended)[-1].startswith('well\nCould not answer "go to the victim": ')


async def test_an_agent_that_left_between_plan_and_call_fails_its_step(mesh: SmallMesh) -> None:
    child_task = await mesh.join(echo)
    await mesh.supervise()
    await child_task.cut()

    ended = await mesh.ask("echo hello")

    assert ended.task.status.state == State.TASK_STATE_FAILED
    assert status_texts(ended).startswith('Could not answer "echo hello": ')


async def test_a_step_that_lacks_the_result_it_needs_is_not_run(mesh: SmallMesh) -> None:
    await mesh.join(echo)
    await mesh.supervise()

    ended = await mesh.ask("echo well @echo fail boom, then @echo say that again, and echo bye")

    assert texts(ended)[-1] == (
        'well\nCould not answer "fail boom": boom (agent echo).\nsay that again, and echo bye'
    )
    followed = await mesh.ask("echo well @echo fail boom, then @echo echo {2}")
    assert texts(followed)[-1] == (
        'well\nCould not answer "fail boom": boom (agent echo).\n'
        'Could not answer "echo {2}": the result that it needs is missing (agent echo).'
    )


async def test_the_supervisor_asks_for_credentials_that_an_agent_needs(mesh: SmallMesh) -> None:
    @agent(name="vault", description="Needs a key.", tags=["vault"])
    async def vault(task: TaskContext) -> str | None:
        if task.turn > 1:
            return f"opened with {task.text}"
        await task.require_auth("Which key?")
        return None

    await mesh.join(vault)
    await mesh.supervise()

    waiting = await mesh.ask("open the vault")
    opened = await mesh.ask("this key", task_id=waiting.task.id)

    assert waiting.task.status.state == State.TASK_STATE_AUTH_REQUIRED
    assert status_texts(waiting) == "Which key?"
    assert texts(opened)[-1] == "opened with this key"


async def test_a_reply_survives_a_cut_and_is_delivered_once(mesh: SmallMesh) -> None:
    replies: list[str] = []
    proceed = asyncio.Event()

    @agent(name="clerk", description="Asks and writes down.", tags=["clerk"])
    async def clerk(task: TaskContext) -> str | None:
        if task.turn == 1:
            await task.require_input("Your name?")
            return None
        replies.append(task.text)
        await task.working()
        await proceed.wait()
        return f"noted {task.text}"

    child_task = await mesh.join(clerk)
    await mesh.supervise()
    waiting = await mesh.ask("to the clerk")
    await mesh.client("supervisor").send_message(
        agent="supervisor",
        message=mesh.message("Ada", task_id=waiting.task.id),
        submission=message_service_pb2.Submission(),
        return_immediately=True,
    )
    child = waiting.children[0].started.task_id
    await mesh.until(child, lambda now: now.turn == 2)

    await child_task.cut()
    proceed.set()
    await child_task.serve_again()
    ended = await mesh.until(waiting.task.id, is_over)

    assert texts(ended)[-1] == "noted Ada"
    assert replies == ["Ada"]


async def test_a_reply_to_a_host_that_is_briefly_unreachable_arrives(mesh: SmallMesh) -> None:
    child_task = await mesh.join(echo)
    await mesh.supervise()
    waiting = await mesh.ask("@echo ask Which colour?")

    await child_task.cut()
    task_id = waiting.task.id
    async with asyncio.TaskGroup() as group:
        answering = group.create_task(mesh.ask("blue", task_id=task_id))
        await mesh.until(task_id, lambda now: now.turn == 2 and len(now.tool_calls) == 2)
        await child_task.serve_again()

    assert texts(answering.result())[-1] == "answer: blue"


async def test_a_host_without_a_journal_fails_its_step(mesh: SmallMesh) -> None:
    no_journal = registry_service_pb2.Host(host_id="stranger", address="127.0.0.1:1")
    no_journal.agents.add(card=echo.card, routable=True)
    await mesh.register(no_journal)
    await mesh.supervise()

    ended = await mesh.ask("echo hello")

    assert ended.task.status.state == State.TASK_STATE_FAILED
    assert "registered no journal" in status_texts(ended)
