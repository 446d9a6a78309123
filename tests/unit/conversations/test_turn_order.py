"""The turns of a conversation run one after another, also those of several journals."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from trunkline.conversations.memory import AgentMemory
from trunkline.conversations.sqlite import open_sqlite_memory
from trunkline.conversations.store import ConversationKey, Turn
from trunkline.conversations.turn_order import LocalTurns

KEY = ConversationKey("math", "c", "anonymous")
PATIENCE_S = 60.0

OpenMemory: TypeAlias = Callable[[str], Awaitable[AgentMemory]]


@pytest.fixture(params=["one process", "processes"])
async def open_memory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenMemory]:
    """Open the memory of a journal, in one process or each in a process of its own."""
    local = LocalTurns() if request.param == "one process" else None
    opened: list[AgentMemory] = []

    async def open_journal_memory(name: str) -> AgentMemory:
        journal = tmp_path / f"{name}.db"
        journal.touch()
        memory = await open_sqlite_memory(journal, local=local)
        opened.append(memory)
        return memory

    yield open_journal_memory
    for memory in opened:
        await memory.close()


def turn(task_id: str, *ancestors: str, key: ConversationKey = KEY) -> Turn:
    return Turn(key, task_id, 1, ancestors)


async def end(memory: AgentMemory, task_id: str) -> None:
    removal = memory.order.end_turn(task_id)
    assert removal is not None
    await removal


@asynccontextmanager
async def waiting(memory: AgentMemory, later: Turn) -> AsyncIterator[asyncio.Task[None]]:
    """Let a turn wait during a block, which has to let it run."""
    ticket = await memory.order.take_ticket(later)
    assert not ticket.is_first
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        task = group.create_task(memory.order.wait(ticket))
        await asyncio.sleep(0.05)
        assert not task.done()
        yield task


async def test_turns_run_in_the_order_in_which_they_began(open_memory: OpenMemory) -> None:
    one, two = await open_memory("one"), await open_memory("two")
    assert (await one.order.take_ticket(turn("1"))).is_first
    async with waiting(two, turn("2")) as second, waiting(one, turn("3")) as third:
        await end(one, "1")
        await second
        assert not third.done()
        await end(two, "2")
        await third


async def test_other_contexts_accounts_and_agents_do_not_wait(open_memory: OpenMemory) -> None:
    memory = await open_memory("one")
    keys = (KEY, *(KEY._replace(**{name: "other"}) for name in KEY._fields))
    tickets = [await memory.order.take_ticket(turn(f"{key}", key=key)) for key in keys]
    assert all(ticket.is_first for ticket in tickets)


async def test_the_turns_of_one_request_run_together(open_memory: OpenMemory) -> None:
    one, two = await open_memory("one"), await open_memory("two")
    assert (await one.order.take_ticket(turn("1", "p"))).is_first
    async with waiting(one, turn("other")) as other:
        assert (await two.order.take_ticket(turn("2", "p"))).is_first
        assert (await two.order.take_ticket(turn("3", "p", "2"))).is_first
        await end(one, "1")
        await end(two, "2")
        await asyncio.sleep(0.05)
        assert not other.done()
        await end(two, "3")
        await other


async def test_a_waiting_turn_that_is_canceled_holds_nobody_up(open_memory: OpenMemory) -> None:
    one, two = await open_memory("one"), await open_memory("two")
    await one.order.take_ticket(turn("1"))
    ticket = await two.order.take_ticket(turn("2"))
    async with asyncio.TaskGroup() as group:
        canceled = group.create_task(two.order.wait(ticket))
        async with waiting(one, turn("3")) as third:
            canceled.cancel()
            await end(two, "2")
            await end(one, "1")
            await third
    assert canceled.cancelled()


async def test_the_tickets_of_a_host_that_died_wait_for_its_takeover(
    open_memory: OpenMemory, tmp_path: Path
) -> None:
    dead, other = await open_memory("dead"), await open_memory("other")
    for task_id in ("continues", "has ended"):
        await dead.order.take_ticket(turn(task_id))
    await dead.close()
    async with waiting(other, turn("later")) as later:
        taken = await open_memory("dead")
        for removal in taken.order.keep({"continues"}):
            await removal
        await asyncio.sleep(0.05)
        assert not later.done()
        # The turn runs again with its place.
        assert (await taken.order.take_ticket(turn("continues"))).is_first
        await end(taken, "continues")
        await later


async def test_the_tickets_of_a_journal_that_is_gone_hold_nobody_up(
    open_memory: OpenMemory, tmp_path: Path
) -> None:
    dead, other = await open_memory("dead"), await open_memory("other")
    await dead.order.take_ticket(turn("1"))
    await dead.close()
    async with waiting(other, turn("2")) as later:
        (tmp_path / "dead.db").unlink()
        await later
    assert not later.cancelled()
    (ticket,) = await other.conversations.list_tickets(KEY)
    assert ticket.turn.task_id == "2"


async def test_a_later_turn_of_a_task_has_a_place_of_its_own(open_memory: OpenMemory) -> None:
    memory = await open_memory("one")
    await memory.order.take_ticket(turn("1"))
    removal = memory.order.end_turn("1")
    assert removal is not None
    # The next turn of the task begins before the ticket is removed.
    assert (await memory.order.take_ticket(turn("1")._replace(number=2))).is_first
    await removal
    async with waiting(memory, turn("2")) as second:
        await end(memory, "1")
        await second


async def test_two_agents_that_call_each_other_for_two_requests_do_not_wait_for_ever(
    open_memory: OpenMemory,
) -> None:
    one, two = await open_memory("one"), await open_memory("two")
    math, currency = KEY, KEY._replace(agent="currency")
    await one.order.take_ticket(turn("a", key=math))
    await two.order.take_ticket(turn("b", key=currency))
    first = await one.order.take_ticket(turn("a calls", "a", key=currency))
    second = await two.order.take_ticket(turn("b calls", "b", key=math))
    assert not first.is_first
    assert not second.is_first
    async with asyncio.timeout(PATIENCE_S):
        async with asyncio.TaskGroup() as group:
            group.create_task(one.order.wait(first))
            group.create_task(two.order.wait(second))


async def test_steps_of_two_requests_that_wait_for_each_other_are_no_deadlock(
    open_memory: OpenMemory,
) -> None:
    one, two = await open_memory("one"), await open_memory("two")
    math, currency = KEY, KEY._replace(agent="currency")
    await one.order.take_ticket(turn("a1", "a", key=math))
    await two.order.take_ticket(turn("b1", "b", key=currency))
    async with (
        waiting(one, turn("a2", "a", key=currency)) as first,
        waiting(two, turn("b2", "b", key=math)) as second,
    ):
        await asyncio.sleep(2.0)
        assert not first.done()
        assert not second.done()
        await end(one, "a1")
        await end(two, "b1")
        await first
        await second
