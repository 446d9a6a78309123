"""The turns of a conversation run one after another, also those of several journals."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from trunkline.conversations.sqlite import CONVERSATION_FILE, SqliteConversations
from trunkline.conversations.store import ConversationKey, Ticket, Turn
from trunkline.conversations.turn_order import LocalTurns, TurnOrder

KEY = ConversationKey("math", "c", "anonymous")
PATIENCE_S = 60.0


class ObservedConversations(SqliteConversations):
    """Tickets in a file that tell what a waiting turn has read. It decides at once what it does."""

    def __init__(self, path: Path, *, journal: str) -> None:
        super().__init__(path, journal=journal)
        self.was_asked = asyncio.Event()
        """Set when the tickets of a conversation are read."""
        self.was_asked_for_calls = asyncio.Event()
        """Set when the tickets of called agents are read: the turns may wait for each other."""

    async def list_tickets(self, key: ConversationKey) -> Sequence[Ticket]:
        tickets = await super().list_tickets(key)
        self.was_asked.set()
        return tickets

    async def list_tickets_below(self, task_id: str, request: str) -> Sequence[Ticket]:
        tickets = await super().list_tickets_below(task_id, request)
        self.was_asked_for_calls.set()
        return tickets


@dataclass(frozen=True)
class Journal:
    """The turns of one journal."""

    order: TurnOrder
    conversations: ObservedConversations
    open_turns: set[str]
    """The tasks of the open turns of its process."""

    async def take(self, turn: Turn) -> Ticket:
        self.open_turns.add(turn.task_id)
        return await self.order.take_ticket(turn)

    async def end(self, task_id: str) -> None:
        self.open_turns.discard(task_id)
        removal = self.order.end_turn(task_id)
        assert removal is not None
        await removal

    def close(self) -> None:
        self.order.close()
        self.conversations.file.close()


OpenJournal: TypeAlias = Callable[[str], Awaitable[Journal]]


@pytest.fixture(params=["one process", "processes"])
async def open_journal(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[OpenJournal]:
    """Open the turns of a journal, in one process or each in a process of its own."""
    processes: defaultdict[str, tuple[LocalTurns, set[str]]] = defaultdict(
        lambda: (LocalTurns(), set())
    )
    opened: list[Journal] = []

    async def open_one(name: str) -> Journal:
        path = tmp_path / f"{name}.db"
        path.touch()
        conversations = ObservedConversations(tmp_path / CONVERSATION_FILE, journal=path.name)
        process = name if request.param == "processes" else "one"
        local, open_turns = processes[process]
        order = TurnOrder(conversations, local)
        await order.load()
        opened.append(Journal(order, conversations, open_turns))
        return opened[-1]

    yield open_one
    for journal in opened:
        journal.close()


def turn(task_id: str, *ancestors: str, key: ConversationKey = KEY) -> Turn:
    return Turn(key, task_id, 1, ancestors)


@asynccontextmanager
async def waiting(journal: Journal, later: Turn) -> AsyncIterator[asyncio.Task[None]]:
    """Let a turn wait during a block, which has to let it run."""
    ticket = await journal.take(later)
    assert not ticket.is_first
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        journal.conversations.was_asked.clear()
        task = group.create_task(journal.order.wait(ticket))
        if journal.open_turns == {later.task_id}:
            await journal.conversations.was_asked.wait()
        else:
            # It waits until a turn of its process ends, and does not ask before.
            await asyncio.sleep(0)
        assert not task.done()
        yield task


@asynccontextmanager
async def asking_again(journal: Journal) -> AsyncIterator[None]:
    """Return after a turn of a journal has asked for its place after a block."""
    yield
    # Nothing else has run since the last statement of the block.
    journal.conversations.was_asked.clear()
    await journal.conversations.was_asked.wait()


async def test_turns_run_in_the_order_in_which_they_began(open_journal: OpenJournal) -> None:
    one, two = await open_journal("one"), await open_journal("two")
    assert (await one.take(turn("1"))).is_first
    async with waiting(two, turn("2")) as second, waiting(one, turn("3")) as third:
        async with asking_again(one):
            await one.end("1")
        await second
        assert not third.done()
        await two.end("2")
        await third


async def test_other_contexts_accounts_and_agents_do_not_wait(open_journal: OpenJournal) -> None:
    one = await open_journal("one")
    keys = (KEY, *(KEY._replace(**{name: "other"}) for name in KEY._fields))
    tickets = [await one.take(turn(f"{key}", key=key)) for key in keys]
    assert all(ticket.is_first for ticket in tickets)


async def test_the_turns_of_one_request_run_together(open_journal: OpenJournal) -> None:
    one, two = await open_journal("one"), await open_journal("two")
    assert (await one.take(turn("1", "p"))).is_first
    async with waiting(one, turn("other")) as other:
        assert (await two.take(turn("2", "p"))).is_first
        assert (await two.take(turn("3", "p", "2"))).is_first
        await one.end("1")
        async with asking_again(one):
            await two.end("2")
        assert not other.done()
        await two.end("3")
        await other


async def test_a_waiting_turn_that_is_canceled_holds_nobody_up(open_journal: OpenJournal) -> None:
    one, two = await open_journal("one"), await open_journal("two")
    await one.take(turn("1"))
    ticket = await two.take(turn("2"))
    async with asyncio.TaskGroup() as group:
        canceled = group.create_task(two.order.wait(ticket))
        async with waiting(one, turn("3")) as third:
            canceled.cancel()
            await two.end("2")
            await one.end("1")
            await third
    assert canceled.cancelled()


async def test_the_tickets_of_a_host_that_died_wait_for_its_takeover(
    open_journal: OpenJournal, tmp_path: Path
) -> None:
    dead, other = await open_journal("dead"), await open_journal("other")
    for task_id in ("continues", "has ended"):
        await dead.take(turn(task_id))
    dead.close()
    async with waiting(other, turn("later")) as later:
        taken = await open_journal("dead")
        (removal,) = taken.order.keep({"continues"})
        async with asking_again(other):
            await removal
        assert not later.done()
        # The turn runs again with its place.
        assert (await taken.take(turn("continues"))).is_first
        await taken.end("continues")
        await later


async def test_the_tickets_of_a_journal_that_is_gone_hold_nobody_up(
    open_journal: OpenJournal, tmp_path: Path
) -> None:
    dead, other = await open_journal("dead"), await open_journal("other")
    await dead.take(turn("1"))
    dead.close()
    async with waiting(other, turn("2")) as later:
        (tmp_path / "dead.db").unlink()
        await later
    assert not later.cancelled()
    (ticket,) = await other.conversations.list_tickets(KEY)
    assert ticket.turn.task_id == "2"


async def test_a_later_turn_of_a_task_has_a_place_of_its_own(open_journal: OpenJournal) -> None:
    one = await open_journal("one")
    await one.take(turn("1"))
    removal = one.order.end_turn("1")
    assert removal is not None
    # The next turn of the task begins before the ticket is removed.
    assert (await one.take(turn("1")._replace(number=2))).is_first
    await removal
    async with waiting(one, turn("2")) as second:
        await one.end("1")
        await second


async def test_two_agents_that_call_each_other_for_two_requests_do_not_wait_for_ever(
    open_journal: OpenJournal,
) -> None:
    one, two = await open_journal("one"), await open_journal("two")
    math, currency = KEY, KEY._replace(agent="currency")
    await one.take(turn("a", key=math))
    await two.take(turn("b", key=currency))
    first = await one.take(turn("a calls", "a", key=currency))
    second = await two.take(turn("b calls", "b", key=math))
    assert not first.is_first
    assert not second.is_first
    async with asyncio.timeout(PATIENCE_S):
        async with asyncio.TaskGroup() as group:
            group.create_task(one.order.wait(first))
            group.create_task(two.order.wait(second))


async def test_steps_of_two_requests_that_wait_for_each_other_are_no_deadlock(
    open_journal: OpenJournal,
) -> None:
    one, two = await open_journal("one"), await open_journal("two")
    math, currency = KEY, KEY._replace(agent="currency")
    await one.take(turn("a1", "a", key=math))
    await two.take(turn("b1", "b", key=currency))
    async with (
        waiting(one, turn("a2", "a", key=currency)) as first,
        waiting(two, turn("b2", "b", key=math)) as second,
    ):
        for journal in (one, two):
            await journal.conversations.was_asked_for_calls.wait()
        assert not first.done()
        assert not second.done()
        await one.end("a1")
        await two.end("b1")
        await first
        await second
