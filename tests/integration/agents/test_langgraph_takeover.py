"""A LangGraph agent whose process is killed in the middle of its answer, and while it waits."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from harness.agents.inline_agents import status_texts, texts
from harness.agents.slow_graph import WORDS
from harness.mesh.command_line import COMMAND
from harness.mesh.killable_agent import KillableAgent
from harness.mesh.small_mesh import open_small_mesh
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, State

TESTS = Path(__file__).parents[2]


@pytest.fixture
async def counter(tmp_path: Path) -> AsyncIterator[KillableAgent]:
    command = (*COMMAND, "serve", "agents", "--agent", "harness.agents.slow_graph:counter")
    environment = {"GRAPH_FOLDER": str(tmp_path)}
    # The restarted process gets its own journal back: no lease needs to end, nor may it on a busy
    # machine.
    async with open_small_mesh(tmp_path, lease_s=30.0) as mesh, AsyncExitStack() as stack:
        yield KillableAgent(mesh, "counter", command, tmp_path, stack, TESTS, environment)


async def test_the_answer_is_whole_and_completed_nodes_are_not_repeated(
    counter: KillableAgent,
) -> None:
    mesh, folder = counter.mesh, counter.data
    await counter.start()
    waiting = await mesh.ask("ask", agent="counter")
    assert waiting.task.status.state == State.TASK_STATE_INPUT_REQUIRED
    counting = await mesh.begin("count", agent="counter")
    await mesh.until(counting, lambda now: any(text.endswith("50 ") for text in texts(now)))

    await counter.kill()
    (folder / "go").touch()
    await counter.start()
    ended = await mesh.until(counting, lambda now: now.task.status.state in TERMINAL)
    events = [event for batch in await mesh.events(counting) for event in batch.events]

    assert ended.task.status.state == State.TASK_STATE_COMPLETED
    assert texts(ended) == [WORDS]
    assert sum(event.HasField("rewound") for event in events) == 1
    # Once for the task that asks, and once for the one that counts, which continued after its node.
    assert (folder / "began").read_text(encoding="utf-8") == "began\nbegan\n"
    # The question from before the kill is answered now.
    assert status_texts(waiting) == "what?"
    answered = await mesh.ask("this", agent="counter", task_id=waiting.task.id)
    assert answered.task.status.state not in INTERRUPTED
    assert texts(answered) == ["told this"]
    assert (folder / "began").read_text(encoding="utf-8") == "began\nbegan\n"
