"""A reasoning agent whose process is killed in the middle of a streamed answer, and restarted."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path

import pytest

from harness.a2a.bridged_mesh import BridgedMesh, Event, open_bridged_mesh
from harness.agents.inline_agents import texts
from harness.agents.slow_reasoner import FIRST
from harness.mesh.command_line import COMMAND
from harness.mesh.killable_agent import KillableAgent
from trunkline.conversations.sqlite import CONVERSATION_FILE
from trunkline.tasks.lifecycle import TERMINAL, State

TESTS = Path(__file__).parents[2]
WHOLE = "".join(f"{number} " for number in range(100))


@pytest.fixture
async def bridged(tmp_path: Path) -> AsyncIterator[BridgedMesh]:
    async with open_bridged_mesh(tmp_path) as opened:
        yield opened


@pytest.fixture
async def reasoner(bridged: BridgedMesh, tmp_path: Path) -> AsyncIterator[KillableAgent]:
    command = (*COMMAND, "serve", "agents", "--agent", "harness.agents.slow_reasoner:reasoner")
    environment = {"REASONER_FOLDER": str(tmp_path)}
    async with AsyncExitStack() as stack:
        yield KillableAgent(bridged.mesh, "reasoner", command, tmp_path, stack, TESTS, environment)


async def test_the_answer_is_whole_and_completed_steps_are_not_repeated(
    bridged: BridgedMesh, reasoner: KillableAgent
) -> None:
    mesh, folder = bridged.mesh, reasoner.data
    await reasoner.start()
    caller = bridged.at("/agents/reasoner")
    async with caller.streamed("count") as stream:
        first = await anext(stream)
    task_id = first.result["task"]["id"]
    await mesh.until(task_id, lambda now: any(text.endswith("49 ") for text in texts(now)))

    await reasoner.kill()
    (folder / "go").touch()
    await reasoner.start()
    ended = await mesh.until(task_id, lambda now: now.task.status.state in TERMINAL)
    events = [event for batch in await mesh.events(task_id) for event in batch.events]

    assert ended.task.status.state == State.TASK_STATE_COMPLETED
    (artifact,) = ended.task.artifacts
    assert [part.WhichOneof("content") for part in artifact.parts] == ["text", "raw"]
    assert artifact.parts[0].text == WHOLE
    assert ended.artifacts[0].closed
    # The first reply and the tool call have a checkpoint, so only the second reply runs again.
    # The text beside the tool call was withdrawn at once, the partial count at the restart.
    rewound = [event.rewound for event in events if event.HasField("rewound")]
    assert [len(item.remains.parts) for item in rewound] == [0, 0]
    assert (folder / "called").read_text(encoding="utf-8").split() == [task_id]
    assert sum(event.HasField("tool_started") for event in events) == 1
    # No checkpoint had the partial answer, so the artifact is created again under its id.
    assert sum(event.delta.HasField("start") for event in events) == 2
    # On the wire each rewind is an update that starts again with the remaining text.
    headers = {"Last-Event-ID": first.id}
    async with caller.stream("SubscribeToTask", {"id": task_id}, headers) as stream:
        updates = [update for update in await stream.rest() if is_answer_update(update)]
    anew = [update.text for update in updates if not update.result["artifactUpdate"].get("append")]
    assert anew == [FIRST, "", "", "0 "]
    assert folded_text(updates) == WHOLE
    (checkpoints,) = folder.rglob("*.checkpoints")
    with closing(sqlite3.connect(checkpoints)) as connection:
        threads = connection.execute("SELECT thread_id FROM checkpoints").fetchall()
    # The turn leaves no checkpoint, and the conversation its messages.
    assert threads == []
    (conversations,) = folder.rglob(CONVERSATION_FILE)
    with closing(sqlite3.connect(conversations)) as connection:
        contexts = connection.execute("SELECT agent, context_id FROM conversations").fetchall()
    assert contexts == [("reasoner", ended.task.context_id)]


def is_answer_update(event: Event) -> bool:
    """Return True if an event updates the answer."""
    update = event.result.get("artifactUpdate", {})
    return bool(update.get("artifact", {}).get("name") == "answer")


def folded_text(updates: list[Event]) -> str:
    """Return the answer's text as a client folds it from the updates."""
    text = ""
    for update in updates:
        text = text + update.text if update.result["artifactUpdate"].get("append") else update.text
    return text
