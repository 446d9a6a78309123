"""The turns of a conversation run one after another."""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from trunkline.agents.reasoning import conversation_lock as ordering
from trunkline.agents.reasoning.conversation_lock import lock_conversation
from trunkline.v1 import event_pb2, snapshot_pb2

if TYPE_CHECKING:
    from trunkline.tasks.turn_runtime import TurnRuntime

TIMEOUT_S = 300.0


@dataclass
class Turn:
    """The part of a task that names its conversation."""

    id: str
    context_id: str = "c"
    parent: str = ""
    agent: str = "math"
    account: str = "anonymous"
    statuses: list[str] = field(default_factory=list)
    started: asyncio.Event = field(default_factory=asyncio.Event)
    released: asyncio.Event = field(default_factory=asyncio.Event)
    is_waiting: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def snapshot(self) -> snapshot_pb2.TaskSnapshot:
        return snapshot_pb2.TaskSnapshot(parent=event_pb2.ParentTask(task_id=self.parent))

    async def working(self, text: str) -> None:
        self.statuses.append(text)
        self.is_waiting.set()

    async def run(self) -> None:
        async with lock_conversation(cast("TurnRuntime", self)):
            self.started.set()
            await self.released.wait()


async def test_a_turn_waits_for_the_one_before_it_and_reports_that() -> None:
    first, second, third = Turn("1"), Turn("2"), Turn("3")
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
        for turn in (first, second, third):
            group.create_task(turn.run())
        await first.started.wait()
        await third.is_waiting.wait()
        assert (second.started.is_set(), third.started.is_set()) == (False, False)
        first.released.set()
        await second.started.wait()
        assert not third.started.is_set()
        second.released.set()
        await third.started.wait()
        third.released.set()
    assert (len(first.statuses), len(second.statuses), len(third.statuses)) == (0, 1, 1)


async def test_other_contexts_accounts_and_agents_do_not_wait() -> None:
    turns = [Turn("1"), Turn("2", context_id="d"), Turn("3", account="a"), Turn("4", agent="b")]
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
        for turn in turns:
            group.create_task(turn.run())
        for turn in turns:
            await turn.started.wait()
        for turn in turns:
            turn.released.set()
    assert not any(turn.statuses for turn in turns)


async def test_steps_of_one_parent_run_concurrently() -> None:
    steps = [Turn("1", parent="p"), Turn("2", parent="p")]
    other = Turn("3")
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
        group.create_task(steps[0].run())
        await steps[0].started.wait()
        group.create_task(other.run())
        await other.is_waiting.wait()
        group.create_task(steps[1].run())
        await steps[1].started.wait()
        steps[0].released.set()
        steps[1].released.set()

        await other.started.wait()
        other.released.set()
    assert not any(step.statuses for step in steps)


async def test_canceling_a_waiting_turn_does_not_block_others() -> None:
    first, second, third = Turn("1"), Turn("2"), Turn("3")
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
        tasks = [group.create_task(turn.run()) for turn in (first, second, third)]
        await third.is_waiting.wait()
        tasks[1].cancel()
        first.released.set()
        await third.started.wait()
        third.released.set()
    assert not second.started.is_set()


async def test_canceling_a_turn_as_it_gets_the_lock_passes_the_lock_on() -> None:
    first, second, third = Turn("1"), Turn("2"), Turn("3")
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
        tasks = [group.create_task(turn.run()) for turn in (first, second, third)]
        await third.is_waiting.wait()
        first.released.set()
        await tasks[0]
        tasks[1].cancel()
        await third.started.wait()
        third.released.set()
    assert not second.started.is_set()


async def test_waiting_for_the_lock_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "WAIT_LIMIT_S", 0.01)
    first, second = Turn("1"), Turn("2")
    async with asyncio.timeout(TIMEOUT_S), asyncio.TaskGroup() as group:
        group.create_task(first.run())
        group.create_task(second.run())
        await second.started.wait()
        assert not first.released.is_set()
        second.released.set()
        first.released.set()
