"""The journal follows the state table, for any actions of an agent and any time of cancellation."""

import asyncio
import contextlib
import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from harness.agents.inline_agents import define, start
from harness.examples import share
from harness.journal.opening import open_journal
from trunkline.errors import InvalidAgentResponseError, TaskNotCancelableError
from trunkline.tasks.context import TaskContext
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, TRANSITIONS, State
from trunkline.v1 import event_pb2, snapshot_pb2

ACTIONS = (
    "working", "append", "close", "plan", "tool", "pause", "swallow",
    "complete", "fail", "reject", "require_input", "require_auth", "raise",
)  # fmt: skip


class ActionAgent:
    """An agent that runs a list of actions and ignores refusals."""

    def __init__(self, actions: Sequence[str]) -> None:
        self._actions = actions

    async def run(self, task: TaskContext) -> None:
        artifact = task.artifact()
        for action in self._actions:
            with contextlib.suppress(InvalidAgentResponseError):
                if action == "append":
                    await artifact.append("x")
                elif action == "close":
                    await artifact.close()
                elif action == "plan":
                    await task.plan().append("1. ")
                elif action == "tool":
                    async with task.tool("math/calculate"):
                        await asyncio.sleep(0)
                elif action == "pause":
                    await asyncio.sleep(0)
                elif action == "swallow":
                    with contextlib.suppress(asyncio.CancelledError):
                        await asyncio.sleep(0)
                elif action == "raise":
                    raise ValueError
                else:
                    await getattr(task, action)()


async def run_turn(
    folder: Path, actions: Sequence[str], cancel_after: int | None
) -> tuple[list[State.ValueType], snapshot_pb2.TaskSnapshot, bool]:
    """Run the turn; return the states in the journal, its fold, and the success of the cancel."""
    journal = open_journal(folder / "journal.db")
    try:
        async with TaskHost(journal, [define(ActionAgent(actions).run)]) as host:
            task_id = await start(host)
            was_canceled = False
            if cancel_after is not None:
                for _ in range(cancel_after):
                    await asyncio.sleep(0)
                with contextlib.suppress(TaskNotCancelableError):
                    await host.cancel(task_id, account="")
                    was_canceled = True
            snapshot = await host.wait_turn(task_id)
            states = [State.TASK_STATE_SUBMITTED]
            for sealed in await journal.read(task_id, 0, limit_bytes=1 << 20):
                events = event_pb2.EventBatch.FromString(sealed).events
                states += [
                    event.status.status.state for event in events if event.HasField("status")
                ]
            return states, snapshot, was_canceled
    finally:
        await journal.close()


@share(0.5)
@given(
    actions=st.lists(st.sampled_from(ACTIONS), max_size=8),
    cancel_after=st.none() | st.integers(0, 12),
)
def test_every_journal_follows_the_state_table(
    actions: list[str], cancel_after: int | None
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        states, snapshot, was_canceled = asyncio.run(run_turn(Path(folder), actions, cancel_after))
    for before, after in itertools.pairwise(states):
        assert after in TRANSITIONS[before]
    assert states[-1] == snapshot.task.status.state
    assert states[-1] in TERMINAL | INTERRUPTED
    assert was_canceled == (states[-1] == State.TASK_STATE_CANCELED)
    assert all(call.HasField("finished") for call in snapshot.tool_calls)
