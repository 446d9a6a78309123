"""An agent passes on the text of another one, whose process is killed while it writes."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from harness.agents.inline_agents import texts
from harness.mesh.command_line import COMMAND
from harness.mesh.killable_agent import KillableAgent
from harness.mesh.small_mesh import open_small_mesh
from trunkline import AgentCallError, TaskContext, agent
from trunkline.tasks.lifecycle import TERMINAL, State

TESTS = Path(__file__).parents[2]


@agent(name="relay", description="Passes on what it is told.")
async def relay(task: TaskContext) -> AsyncGenerator[str, None]:
    async for piece in task.stream("teller", task.text):
        yield piece


@agent(name="careful", description="Passes on what it is told, and says when that changed.")
async def careful(task: TaskContext) -> AsyncGenerator[str, None]:
    told = task.stream("teller", task.text)
    try:
        async for piece in told:
            yield piece
    except AgentCallError as error:
        yield f"| {error.state}: {told.answer.text}"


@pytest.fixture
async def teller(tmp_path: Path) -> AsyncIterator[KillableAgent]:
    command = (*COMMAND, "serve", "agents", "--agent", "harness.agents.teller:teller")
    environment = {"TELLER_FOLDER": str(tmp_path)}
    async with open_small_mesh(tmp_path, lease_s=30.0) as mesh, AsyncExitStack() as stack:
        await mesh.join(relay, careful)
        yield KillableAgent(mesh, "teller", command, tmp_path / "data", stack, TESTS, environment)


@pytest.mark.parametrize(
    ("caller", "request_text", "state", "text"),
    [
        ("relay", "same", State.TASK_STATE_COMPLETED, "once upon a time"),
        ("careful", "same", State.TASK_STATE_COMPLETED, "once upon a time"),
        ("relay", "other", State.TASK_STATE_FAILED, "once upon "),
        (
            "careful",
            "other",
            State.TASK_STATE_COMPLETED,
            "once upon | completed: once more a time",
        ),
    ],
)
async def test_text_of_an_agent_that_runs_again_is_given_once(
    teller: KillableAgent, caller: str, request_text: str, state: int, text: str
) -> None:
    mesh = teller.mesh
    await teller.start()
    task_id = await mesh.begin(request_text, agent=caller)
    await mesh.until(task_id, lambda now: "".join(texts(now)) == "once upon ")

    await teller.kill_and_start()
    ended = await mesh.until(task_id, lambda now: now.task.status.state in TERMINAL)

    assert (ended.task.status.state, texts(ended)) == (state, [text])
    if state == State.TASK_STATE_FAILED:
        reason = ended.task.status.message.parts[0].text
        assert reason == (
            "agent 'teller' ran again and wrote something else than it had streamed; "
            "the answer of the stream has all of it"
        )
