"""The turns of a conversation, one after another."""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

import pytest

from trunkline.reasoning import conversation_lock as ordering
from trunkline.reasoning.conversation_lock import lock_conversation
from trunkline.v1 import event_pb2, snapshot_pb2

if TYPE_CHECKING:
    from trunkline.tasks.turn_runtime import TurnRuntime

PATIENCE_S = 20.0


@dataclass
class Turn:
    """As much of a task as its conversation is named by."""

    id: str
    context_id: str = "c"
    parent: str = ""
    agent: str = "math"
    account: str = "anonymous"
    news: list[str] = field(default_factory=list)
    began: asyncio.Event = field(default_factory=asyncio.Event)
    go: asyncio.Event = field(default_factory=asyncio.Event)
    waits: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def snapshot(self) -> snapshot_pb2.TaskSnapshot:
        return snapshot_pb2.TaskSnapshot(parent=event_pb2.ParentTask(task_id=self.parent))

    async def working(self, text: str) -> None:
        self.news.append(text)
        self.waits.set()

    async def run(self) -> None:
        async with lock_conversation(cast("TurnRuntime", self)):
            self.began.set()
            await self.go.wait()


async def test_a_turn_waits_for_the_one_before_it_and_says_so() -> None:
    first, second, third = Turn("1"), Turn("2"), Turn("3")
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        for turn in (first, second, third):
            group.create_task(turn.run())
        await first.began.wait()
        await third.waits.wait()
        assert (second.began.is_set(), third.began.is_set()) == (False, False)
        first.go.set()
        await second.began.wait()
        assert not third.began.is_set()
        second.go.set()
        await third.began.wait()
        third.go.set()
    assert (len(first.news), len(second.news), len(third.news)) == (0, 1, 1)
    assert not ordering._locks


async def test_other_contexts_accounts_and_agents_do_not_wait() -> None:
    turns = [Turn("1"), Turn("2", context_id="d"), Turn("3", account="a"), Turn("4", agent="b")]
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        for turn in turns:
            group.create_task(turn.run())
        for turn in turns:
            await turn.began.wait()
        for turn in turns:
            turn.go.set()
    assert not any(turn.news for turn in turns)


async def test_what_one_parent_asks_for_runs_at_once() -> None:
    steps = [Turn("1", parent="p"), Turn("2", parent="p")]
    other = Turn("3")
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(steps[0].run())
        await steps[0].began.wait()
        group.create_task(other.run())
        await other.waits.wait()
        group.create_task(steps[1].run())
        await steps[1].began.wait()
        steps[0].go.set()
        steps[1].go.set()

        await other.began.wait()
        other.go.set()
    assert not any(step.news for step in steps)


async def test_one_that_is_canceled_while_it_waits_holds_up_nobody() -> None:
    first, second, third = Turn("1"), Turn("2"), Turn("3")
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        tasks = [group.create_task(turn.run()) for turn in (first, second, third)]
        await third.waits.wait()
        tasks[1].cancel()
        first.go.set()
        await third.began.wait()
        third.go.set()
    assert not second.began.is_set()
    assert not ordering._locks


async def test_one_that_is_canceled_as_it_is_let_in_passes_the_place_on() -> None:
    first, second, third = Turn("1"), Turn("2"), Turn("3")
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        tasks = [group.create_task(turn.run()) for turn in (first, second, third)]
        await third.waits.wait()
        first.go.set()
        await tasks[0]
        tasks[1].cancel()
        await third.began.wait()
        third.go.set()
    assert not second.began.is_set()
    assert not ordering._locks


async def test_nobody_waits_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordering, "WAIT_LIMIT_S", 0.01)
    first, second = Turn("1"), Turn("2")
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        group.create_task(first.run())
        group.create_task(second.run())
        await second.began.wait()
        assert not first.go.is_set()
        second.go.set()
        first.go.set()
    assert not ordering._locks
