"""A repeatable task ends with the same content after a crash of its host at any event."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from harness.agents.inline_agents import NOTHING, define_runtime, message, status_texts
from harness.examples import share
from harness.journal.builders import delta_event
from harness.journal.host_death import find_replayed, replay_journal
from harness.journal.opening import open_journal
from trunkline.journal.batches import parse_batch
from trunkline.journal.events import EventKind, build_draft, parse_header, seal
from trunkline.journal.journal import Journal
from trunkline.tasks.host import TaskHost
from trunkline.tasks.lifecycle import INTERRUPTED, TERMINAL, State
from trunkline.tasks.resources import OtherHosts
from trunkline.tasks.submission import SubmitResult
from trunkline.tasks.turn_runtime import TurnRuntime
from trunkline.tasks.writers import PlanWriter
from trunkline.v1 import event_pb2, part_pb2, snapshot_pb2

ACTIONS = (
    "text",
    "text",
    "part",
    "close",
    "new",
    "plan",
    "steps",
    "tool",
    "child",
    "status",
    "pause",
)


class Script:
    """A deterministic agent with two turns of actions."""

    def __init__(self, first: Sequence[str], second: Sequence[str]) -> None:
        self._turns = (first, second)

    async def run(self, task: TurnRuntime) -> None:
        artifact, plan = task.artifact("first"), task.plan()
        is_open = True
        for number, action in enumerate(self._turns[task.turn - 1]):
            if action in ("close", "new") and is_open:
                await artifact.close()
                is_open = False
            if action in ("text", "part", "new"):
                if not is_open:
                    artifact, is_open = task.artifact(f"at {number}"), True
                piece = part_pb2.Part(url=f"file:{number}")
                await artifact.append(piece if action == "part" else f"{task.turn}.{number} ")
            await run_other_action(task, plan, action, number)
        if task.turn < len(self._turns):
            await task.require_input("and then?")
        else:
            await task.complete("done")


async def run_other_action(task: TurnRuntime, plan: PlanWriter, action: str, number: int) -> None:
    """Run an action that does not concern the agent's own artifacts."""
    if action == "plan":
        await plan.append(f"step {number} ")
    elif action == "steps":
        await plan.finish([event_pb2.PlanStep(step_id=str(number))])
    elif action == "tool":
        async with task.tool("math/calculate"):
            await asyncio.sleep(0)
    elif action == "child":
        await call_child(task, number)
    elif action == "status":
        await task.working(f"at {number}")
    elif action == "pause":
        await asyncio.sleep(0.003)


async def call_child(task: TurnRuntime, number: int) -> None:
    """Forward the events of a child; each attempt has its own child."""
    child = f"child-{task.turn}-{number}-{task.attempt}"
    started = event_pb2.ChildStarted(task_id=child, agent="math")
    await task.record(event_pb2.Event(child_started=started))
    sequence = 3
    for begin in (0, 2):
        start = event_pb2.ArtifactStart(name=f"of {number}") if begin == 0 else None
        event = delta_event("answer", [f"{begin} ", f"{begin + 1} "], start=start, last=begin == 2)
        body = build_draft([event])
        sealed = seal(body, task_id=child, epoch=1, first_sequence=sequence, time_ns=1)
        task.forward(sealed, parse_batch(sealed), agent="math")
        await task.make_room()
        sequence += 2
        await asyncio.sleep(0)
    ended = event_pb2.ChildFinished(task_id=child, agent="math", state=State.TASK_STATE_COMPLETED)
    await task.record(event_pb2.Event(child_finished=ended))


async def run_to_end(journal: Journal, agent: Any, task_id: str) -> snapshot_pb2.TaskSnapshot:
    """Run the task on a host to its end, and answer its question."""

    async def cancel_child(task_id: str, account: str) -> None:
        return None

    async with (
        TaskHost(journal, [agent], others=OtherHosts(cancel_child)) as host,
        asyncio.timeout(30),
    ):
        if task_id:
            find_replayed(host, task_id)
        else:
            accepted = await host.submit("tested", message("first"), NOTHING)
            assert isinstance(accepted, SubmitResult)
            task_id = accepted.task_id
        while True:
            snapshot = await host.wait_turn(task_id)
            if snapshot.task.status.state in TERMINAL:
                return snapshot
            assert snapshot.task.status.state in INTERRUPTED
            answer = message("second", message_id="m-2", task_id=task_id)
            await host.submit("tested", answer, NOTHING)


async def cut_point(journal: Journal, task_id: str, position: float) -> int:
    """Return the sequence of the crash: any except between the two events that open a turn."""
    at = 1 + int(position * await journal.head(task_id))
    at = min(at, await journal.head(task_id))
    for sealed in await journal.read(task_id, at - 1, limit_bytes=1):
        if parse_header(sealed).kinds & EventKind.TURN_STARTED.bit:
            at += 1
    return at


def content(snapshot: snapshot_pb2.TaskSnapshot) -> dict[str, Any]:
    """Return everything that a reader sees at the end; artifacts rewound to nothing are ignored."""
    own, forwarded = [], []
    for artifact, info in zip(snapshot.task.artifacts, snapshot.artifacts, strict=True):
        summary = (
            artifact.artifact_id,
            artifact.name,
            [str(p) for p in artifact.parts],
            info.closed,
        )
        if info.HasField("origin"):
            if artifact.parts:
                forwarded.append(summary)
        else:
            own.append(summary)
    return {
        "state": snapshot.task.status.state,
        "status": status_texts(snapshot),
        "history": [
            [str(part) for part in history_message.parts]
            for history_message in snapshot.task.history
        ],
        "turn": snapshot.turn,
        "own": own,
        "forwarded": forwarded,
        "plans": [(p.plan_id, p.text, [s.step_id for s in p.steps]) for p in snapshot.plans],
    }


async def check_crashes(folder: Path, agent: Any, cuts: Sequence[float]) -> None:
    journal = open_journal(folder / "0.db")
    expected = await run_to_end(journal, agent, "")
    task_id = expected.task.id
    snapshot = expected
    for number, position in enumerate(cuts, 1):
        next_journal = open_journal(folder / f"{number}.db")
        at = await cut_point(journal, task_id, position)
        await replay_journal(journal, task_id, next_journal, until=at)
        await journal.close()
        journal = next_journal
        snapshot = await run_to_end(journal, agent, task_id)
        assert content(snapshot) == content(expected), f"died at {at}"
    await journal.close()
    assert all(call.HasField("finished") for call in snapshot.tool_calls)


SCRIPTS = st.lists(st.sampled_from(ACTIONS), max_size=10)


@share(0.4)
@given(first=SCRIPTS, second=SCRIPTS, cuts=st.lists(st.floats(0, 1), min_size=1, max_size=2))
def test_a_repeatable_agent_ends_the_same_after_crashes(
    first: list[str], second: list[str], cuts: list[float]
) -> None:
    agent = define_runtime(Script(first, second).run, repeatable=True)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check_crashes(Path(folder), agent, cuts))


@share(0.2)
@given(
    script=st.lists(
        st.sampled_from([action for action in ACTIONS if action != "child"]), max_size=12
    ),
    position=st.floats(0, 1),
)
def test_a_resumable_agent_that_rewinds_ends_the_same_after_crashes(
    script: list[str], position: float
) -> None:
    class RewindingScript(Script):
        async def run(self, task: TurnRuntime) -> None:
            await task.rewind()
            await super().run(task)

    agent = define_runtime(RewindingScript(script, script).run, resumable=True)
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(check_crashes(Path(folder), agent, [position]))
